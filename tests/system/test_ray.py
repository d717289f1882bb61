"""A real Ray cluster of two nodes on this machine, with token authentication."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import pieces
from protofission.core.errors import InputError
from protofission.system.launch.launcher import MOST_TRIES
from protofission.system.launch.ray_launcher import RayLauncher

# Ray reads its token's mode when it is imported, which the fixture does.
pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


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
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
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
