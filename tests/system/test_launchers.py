"""Launchers: every piece is carried out; failures are tried again and told, and others go on."""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import pieces
from protofission.core.errors import InputError
from protofission.system.launch.counted_pieces import run_counted
from protofission.system.launch.in_order import run_in_order
from protofission.system.launch.launcher import (
    MOST_TRIES,
    Launcher,
    PieceOutcome,
    Work,
    Worker,
    find_launcher,
)
from protofission.system.launch.local_launcher import LocalLauncher
from protofission.system.launch.slurm_launcher import SlurmLauncher, _Jobs
from small_folds import assert_same_models

pytestmark = [  # submitit leaves its logs open
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TESTS = str(Path(pieces.__file__).parent)


@pytest.fixture(params=["local", "slurm debug", "slurm local"])
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    if request.param == "local":
        return LocalLauncher(2)
    pytest.importorskip("submitit", reason="submitit is not installed")
    path = [TESTS, *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    return SlurmLauncher(processes=2, cluster=request.param.split()[1])


def test_pieces_that_fail_are_tried_again_and_the_others_go_on(
    launcher: Launcher, tmp_path: Path
) -> None:
    numbers = [0, 1, 2, 3, 4, 5]
    ended = {}
    for news in launcher.run(pieces.work(tmp_path, pieces.faulty), numbers):
        if news.ended:
            assert news.place not in ended
            ended[news.place] = news
    assert sorted(ended) == numbers
    failures = {place: news.failure for place, news in ended.items() if news.failure}
    assert failures == {3: "RuntimeError: no luck with 3", 4: "4 is refused: give another."}
    assert {p: n.told for p, n in ended.items() if not n.failure} == {
        p: p**2 for p in numbers if p not in (3, 4)
    }
    assert pieces.tries(tmp_path, 3) == MOST_TRIES
    assert pieces.tries(tmp_path, 4) == 1
    assert pieces.tries(tmp_path, 5) == 2
    assert not list(tmp_path.glob(".protofission-jobs-*"))


@pytest.mark.usefixtures("ready_workers")
@pytest.mark.slow
def test_a_piece_that_loses_its_process_is_tried_again(launcher: Launcher, tmp_path: Path) -> None:
    if getattr(launcher, "cluster", "") == "debug":
        pytest.skip("its pieces are of this very process")
    told = launcher.run(pieces.work(tmp_path, pieces.faulty), [6, 0, 1])
    ended = {news.place: news for news in told if news.ended}
    assert [ended[place].told for place in range(3)] == [36, 0, 1]
    assert not any(news.failure for news in ended.values())
    lines = (tmp_path / "6.tries").read_text().splitlines()
    assert len(lines) == len(set(lines)) == 2  # the kill did happen


@pytest.mark.usefixtures("ready_workers")
@pytest.mark.slow
def test_models_of_folds_are_those_of_this_process(launcher: Launcher) -> None:
    assert_same_models(launcher)


@pytest.mark.usefixtures("ready_workers")
def test_what_cannot_begin_says_so_for_each_piece(launcher: Launcher, tmp_path: Path) -> None:
    work = Work(pieces.refused, (str(tmp_path),), pieces.square)
    news = [each for each in launcher.run(work, [1, 2]) if each.ended]
    assert [each.failure for each in news] == ["There is no encoder: install one."] * 2


def test_a_worker_that_cannot_begin_tries_again_with_the_next_piece(tmp_path: Path) -> None:
    """A folder that one machine does not see, or an encoder that did not fit, is no refusal."""
    here = os.getcwd()
    try:
        worker = Worker(Work(pieces.begin_late, (str(tmp_path),), pieces.square, str(tmp_path)))
        first, second = (worker.carry_out(3, lambda told: None) for _ in range(2))
        lost = Worker(Work(pieces.begin, (str(tmp_path),), pieces.square, str(tmp_path / "gone")))
        unseen = lost.carry_out(3, lambda told: None)
    finally:
        os.chdir(here)
    assert first == PieceOutcome(failure="RuntimeError: no memory for it")
    assert second == PieceOutcome(9)
    assert unseen.failure.startswith("A worker cannot begin (No such file or directory): every")
    assert not unseen.final


def test_a_slurm_job_that_ends_after_its_outcome_loses_nothing(tmp_path: Path) -> None:
    """Its file of the piece is still there; the next job's is another one."""
    (tmp_path / "queue").mkdir()
    jobs = SimpleNamespace(
        submit=lambda *_: SimpleNamespace(done=lambda: True, job_id="7", state="TIMEOUT")
    )
    queue = _Jobs(jobs, tmp_path / "queue", pieces.work(tmp_path), most=1, tasks=1)
    queue.submit(0, "piece")
    queue.submit(1, "piece")
    (name,) = queue._jobs
    own = tmp_path / "queue" / "taken" / name
    own.mkdir()
    for number in ("000000", "000001"):
        (tmp_path / "queue" / "todo" / number).rename(own / number)
    line = base64.b64encode(pickle.dumps((0, PieceOutcome("done"))))
    (tmp_path / "queue" / "told" / name).write_bytes(line + b"\n" + line[:9])
    assert list(queue.wait()) == [
        (0, PieceOutcome("done")),
        (1, PieceOutcome(failure="The job 7 ended: TIMEOUT.")),
    ]
    assert not list(own.iterdir())


@pytest.mark.usefixtures("ready_workers")
def test_pieces_are_taken_one_by_one(tmp_path: Path) -> None:
    taken = []

    def endless() -> Iterator[int]:
        for number in range(10**9):
            taken.append(number)
            yield number

    told = LocalLauncher(2).run(pieces.work(tmp_path), endless())
    while not next(told).ended:
        pass
    told.close()
    assert len(taken) < 20


@pytest.mark.usefixtures("ready_workers")
def test_results_come_in_order_though_one_is_lost_and_another_is_late(tmp_path: Path) -> None:
    """The first is done here, 6 loses its process once, and 1 ends after the others."""
    here: list[int] = []

    def run_here(number: int) -> int:
        here.append(number)
        return number**2

    tasks = [0, 1, 2, 6]
    work = pieces.work(tmp_path, pieces.uneven)
    found = list(run_in_order(tasks, run_here, work, lambda number: number, 2, short=-1))
    assert found == [number**2 for number in tasks]
    assert here == [0]
    assert pieces.tries(tmp_path, 6) == 2  # the kill did happen
    assert (
        max((tmp_path / f"{n}.square").stat().st_mtime_ns for n in (1, 2))
        == (tmp_path / "1.square").stat().st_mtime_ns
    )


@pytest.mark.slow
def test_a_script_that_cannot_be_imported_computes_alone(tmp_path: Path) -> None:
    """Its processes would begin the script again; they see that, and end."""
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {TESTS!r})\n"
        "import pieces\n"
        "from pathlib import Path\n"
        "from protofission.system.launch.in_order import run_in_order\n"
        "from protofission.system.worker_processes import check_processes\n"
        "check_processes(2)\n"
        f"work = pieces.work(Path({str(tmp_path)!r}))\n"
        "print(list(run_in_order([1, 2, 3], lambda n: -n, work, lambda n: n, 2, short=-1)))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.stdout == "[-1, -2, -3]\n", done.stderr


@pytest.mark.usefixtures("ready_workers")
@pytest.mark.slow
def test_counts_add_up_and_failures_come_at_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    said: list[str] = []
    results = run_counted(
        LocalLauncher(2),
        pieces.work(tmp_path, pieces.faulty),
        [1, 4, 2],
        lambda told: told,
        5,
        lambda *counts: seen.append(counts),
        said.append,
    )
    found: list[tuple[int, int]] = []
    with pytest.raises(InputError, match=r"1 of 3 shards failed. The first: shard 1: 4 is refused"):
        found.extend(results)
    assert sorted(found) == [(0, 1), (2, 4)]
    assert seen[0] == (0, 5)
    assert seen[-1] == (5, 5)
    assert said == ["Failed: shard 1: 4 is refused: give another."]


@pytest.mark.parametrize(
    "on", ["", "cloud", "ray:/x", "ray://", "ray://host", "slurm:", "http://x"]
)
def test_an_unknown_launcher_is_refused(on: str) -> None:
    with pytest.raises(InputError, match="give local, ray, ray://HOST:PORT, auto, slurm"):
        find_launcher(on)
    with pytest.raises(InputError, match="processes = 0"):
        find_launcher("local", 0)
    with pytest.raises(InputError, match="--on slurm computes on processors"):
        find_launcher("slurm", gpus=1)


@pytest.mark.parametrize(("on", "module"), [("ray", "ray"), ("slurm:gpu", "submitit")])
def test_a_missing_library_is_named_before_anything_is_computed(
    on: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    extra = on.partition(":")[0]
    with pytest.raises(InputError, match=rf'needs {module}: pip install "protofission\[{extra}\]"'):
        find_launcher(on)
