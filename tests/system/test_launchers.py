"""Launchers: every piece is carried out; failures are tried again and told, and others go on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pieces
from protofission.core.errors import InputError
from protofission.system.launch.counted_pieces import run_counted
from protofission.system.launch.launcher import MOST_TRIES, Launcher, Work, find_launcher
from protofission.system.launch.local_launcher import LocalLauncher
from protofission.system.launch.slurm_launcher import SlurmLauncher

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


def test_what_cannot_begin_says_so_for_each_piece(launcher: Launcher, tmp_path: Path) -> None:
    work = Work(pieces.refused, (str(tmp_path),), pieces.square)
    news = [each for each in launcher.run(work, [1, 2]) if each.ended]
    assert [each.failure for each in news] == ["There is no encoder: install one."] * 2


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


@pytest.mark.parametrize("on", ["", "cloud", "ray:/x", "http://x"])
def test_an_unknown_launcher_is_refused(on: str) -> None:
    with pytest.raises(InputError, match="give local, ray, ray://HOST:PORT, auto, slurm"):
        find_launcher(on)
    with pytest.raises(InputError, match="processes = 0"):
        find_launcher("local", 0)


@pytest.mark.parametrize(("on", "module"), [("ray", "ray"), ("slurm:gpu", "submitit")])
def test_a_missing_library_is_named(
    on: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    extra = on.partition(":")[0]
    with pytest.raises(InputError, match=rf'needs {module}: pip install "protofission\[{extra}\]"'):
        list(find_launcher(on).run(pieces.work(tmp_path), [1]))
