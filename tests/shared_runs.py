"""Runs whose processes meet by a launcher, and one of which is killed; workers import this file."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from protofission.system.launch.launcher import Launcher, Tell
from protofission.training import run_elsewhere
from protofission.training.command import Command
from protofission.training.run_elsewhere import RunNews, RunWork, perform_elsewhere

OPTIONS = (
    "backbone.width=4",
    "recipe.epochs=2",
    "recipe.steps_per_epoch=3",
    "recipe.labeled_batch=16",
    "recipe.unlabeled_batch=24",
)
COMMAND = Command("orca+pf", "digits", OPTIONS)
KILLED_AFTER = 4
"""The step, of six, after which a process is killed."""
carry_out = run_elsewhere._carry_out


def killed_once(begun: Any, rank: int, tell: Tell) -> RunNews | None:
    """As it is; but of the first life of a run, its first process is killed after a step."""
    mark = begun[0].folder.parent / "killed"

    def tell_and_die(news: RunNews) -> None:
        if news.done == KILLED_AFTER and not mark.exists():
            mark.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        tell(news)

    return carry_out(begun, rank, tell_and_die)


def perform_killed(launcher: Launcher, folder: Path) -> list[RunNews]:
    """Perform the run of COMMAND by two processes of a launcher; a state is saved every step."""
    run_elsewhere._carry_out = killed_once
    try:
        work = RunWork(COMMAND, folder, 2, False, 0.0, None, "cpu")
        return list(perform_elsewhere(work, launcher))
    finally:
        run_elsewhere._carry_out = carry_out
        assert (folder.parent / "killed").exists()  # it did happen
