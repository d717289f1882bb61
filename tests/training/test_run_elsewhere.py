"""Runs by processes that a launcher starts: they meet, and end in the weights of --processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import Killing
from protofission.core.errors import InputError
from protofission.system.launch.launcher import Launcher
from protofission.system.launch.local_launcher import LocalLauncher
from protofission.system.launch.slurm_launcher import SlurmLauncher
from protofission.training.run_elsewhere import RunWork, perform_elsewhere
from shared_runs import COMMAND, KILLED_AFTER, OPTIONS, perform_killed

TESTS = str(Path(__file__).parents[1])
pytestmark = [
    pytest.mark.usefixtures("ready_workers"),
    # submitit leaves its logs open
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def weights(killing: Killing, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of two processes as torchrun starts them, none of which is killed."""
    out = tmp_path_factory.mktemp("together") / "run"
    sets = [word for option in OPTIONS for word in ("--set", option)]
    said = killing(out, 0, ["train", COMMAND.method, *sets, "--out", str(out)], 2)
    assert said["saved"] == [0], said
    return (out / "weights.safetensors").read_bytes()


@pytest.fixture(params=["local", pytest.param("slurm local", marks=pytest.mark.slow)])
def launcher(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Launcher:
    monkeypatch.chdir(tmp_path)
    if request.param == "local":
        return LocalLauncher(2)
    pytest.importorskip("submitit", reason="submitit is not installed")
    path = [TESTS, *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    return SlurmLauncher(processes=2, cluster="local")


def test_a_lost_process_ends_the_others_and_all_go_on_at_the_saved_state(
    launcher: Launcher, weights: bytes, tmp_path: Path
) -> None:
    told = perform_killed(launcher, tmp_path / "run")
    assert told[-1][:2] == (6, 6)
    said = [line.text for news in told for line in news.lines]
    assert any("goes on at its last saved state" in text for text in said)
    assert f"Going on after step {KILLED_AFTER} of 6." in said
    assert sum(text.startswith("epoch 2 ") for text in said) == 1
    assert (tmp_path / "run" / "weights.safetensors").read_bytes() == weights
    assert not list((tmp_path / "run").glob(".meeting*"))


def test_a_refusal_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "other").write_text("")
    work = RunWork(COMMAND, tmp_path / "run", 1, False, 60.0, None, "cpu")
    with pytest.raises(InputError, match="holds other files, such as other"):
        list(perform_elsewhere(work, LocalLauncher(1)))
