"""A real Ray cluster of two nodes on this machine, with token authentication."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import pieces
from protofission.core.errors import InputError
from protofission.system.launch import ray_launcher
from protofission.system.launch.launcher import MOST_TRIES
from protofission.system.launch.local_launcher import LocalLauncher
from protofission.system.launch.ray_launcher import RayLauncher
from protofission.training.run_elsewhere import RunWork, perform_elsewhere
from shared_runs import COMMAND, perform_killed
from small_folds import assert_same_models

# Ray reads its token's mode when it is imported, which the fixture does.
pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """A head without processors, and two nodes with one each."""
    path = [str(Path(pieces.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path))
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_health_check_period_ms", "1000")
        from ray.cluster_utils import Cluster

        made = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "include_dashboard": False,
                "ray_client_server_port": free_port(),
            },
        )
        for _ in range(2):
            made.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
        made.shutdown()


def test_pieces_fail_and_are_lost_and_the_others_go_on(cluster: object, tmp_path: Path) -> None:
    told = RayLauncher("auto").run(pieces.work(tmp_path, pieces.faulty), range(7))
    ended = {news.place: news for news in told if news.ended}
    failures = {place: news.failure for place, news in ended.items() if news.failure}
    assert failures == {3: "RuntimeError: no luck with 3", 4: "4 is refused: give another."}
    assert {p: n.told for p, n in ended.items() if not n.failure} == {
        p: p**2 for p in (0, 1, 2, 5, 6)
    }
    assert pieces.tries(tmp_path, 3) == MOST_TRIES
    assert pieces.tries(tmp_path, 6) == 2  # the kill did happen


@pytest.mark.slow
def test_processes_of_a_run_meet_on_two_nodes_and_go_on_if_one_is_lost(
    cluster: object, tmp_path: Path
) -> None:
    """The weights are those of processes of this machine, which meet in the same way."""
    perform_killed(RayLauncher("auto", processes=2), tmp_path / "run")
    work = RunWork(COMMAND, tmp_path / "here", 2, False, 60.0, None, "cpu")
    list(perform_elsewhere(work, LocalLauncher(2)))
    here, there = (
        (tmp_path / name / "weights.safetensors").read_bytes() for name in ("here", "run")
    )
    assert here == there


@pytest.mark.slow
def test_more_processes_that_meet_than_processors_are_refused(
    cluster: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_launcher, "PATIENCE", 1.0)
    work = RunWork(COMMAND, tmp_path / "run", 9, False, 60.0, None, "cpu")
    with pytest.raises(InputError, match="9 processes want 9 of CPU at once, and the Ray cluster"):
        list(perform_elsewhere(work, RayLauncher("auto", processes=9)))
    assert not (tmp_path / "run").exists()


def test_a_cluster_without_accelerators_does_not_wait_for_one(
    cluster: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_launcher, "PATIENCE", 1.0)
    with pytest.raises(InputError, match=r"1 process wants 0.1 of GPU at once, and the .* has 0:"):
        list(RayLauncher("auto", gpus=0.1).run(pieces.work(tmp_path), [1]))


@pytest.mark.slow
def test_models_of_folds_are_those_of_this_machine(cluster: object) -> None:
    assert_same_models(RayLauncher("auto"))


@pytest.mark.slow
def test_a_client_from_elsewhere_has_its_pieces_carried_out(
    cluster: object, tmp_path: Path
) -> None:
    port = cluster.head_node._ray_params.ray_client_server_port
    launcher = RayLauncher(f"ray://127.0.0.1:{port}", processes=2)
    told = launcher.run(pieces.work(tmp_path, pieces.faulty), range(7))
    ended = {news.place: news for news in told if news.ended}
    assert {place for place in ended if ended[place].failure} == {3, 4}
    assert pieces.tries(tmp_path, 6) == 2  # the kill did happen
    again = launcher.run(pieces.work(tmp_path), [7])  # it can be used twice
    assert [news.told for news in again if news.ended] == [49]


def test_more_pieces_at_once_than_processors_do_not_starve_and_a_node_may_be_lost(
    cluster: object, tmp_path: Path
) -> None:
    told = RayLauncher("auto", processes=8).run(pieces.work(tmp_path, pieces.slow), range(12))
    ended, lost = {}, False
    for news in told:
        if news.ended:
            ended[news.place] = news
        if len(ended) >= 2 and not lost:
            lost = True
            assert len(ended) < 12
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    assert lost
    assert [ended[place].told for place in range(12)] == [place**2 for place in range(12)]


def test_without_the_token_nobody_is_let_in(cluster: object, tmp_path: Path) -> None:
    code = "import ray; ray.init(address='auto', logging_level='ERROR'); print('in')"
    wrong = {**os.environ, "RAY_AUTH_TOKEN": "f" * 64}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=wrong)
    assert done.returncode != 0
    assert "in\n" not in done.stdout


def test_no_cluster_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def init(**options: object) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)  # as Ray's does
        raise ConnectionError("Could not find any running Ray instance.\nMore.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(InputError, match=r"--on auto finds no Ray cluster \(Could not .*\)"):
        list(RayLauncher("auto").run(pieces.work(tmp_path), [1]))
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_start_that_was_too_slow_is_tried_again_and_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[object] = []

    def init(**options: object) -> None:
        begun.append(options["address"])
        raise Exception("The current node timed out during startup. More.")  # as Ray says it

    ray = SimpleNamespace(init=init, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(InputError, match=r"Ray cannot be started \(The current node timed out"):
        list(RayLauncher("ray").run(pieces.work(tmp_path), [1]))
    assert begun == ["local"] * MOST_TRIES


def test_a_cluster_that_goes_away_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def put(work: object) -> None:
        raise ConnectionError("Client is shutting down.")  # as Ray's client says it

    ray = SimpleNamespace(
        init=lambda **_: None,
        put=put,
        shutdown=lambda: None,
        cluster_resources=lambda: {"CPU": 1.0},
        exceptions=SimpleNamespace(RaySystemError=RuntimeError),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(
        InputError, match=r"The Ray cluster is gone \(Client is shutting down\): st"
    ):
        list(RayLauncher("auto").run(pieces.work(tmp_path), [1]))
