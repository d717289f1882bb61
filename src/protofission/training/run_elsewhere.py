"""A run by processes of a launcher, which share each batch as those of one machine do.

The processes work together: one that is lost ends the others, and all begin again at the last saved
state. They meet through a file in the folder of the run, which all machines see.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from protofission.core.errors import InputError, require
from protofission.system.distributed import LostProcessError, Processes, launch_processes
from protofission.system.launch.launcher import (
    LOOK_AGAIN,
    MOST_TRIES,
    Launcher,
    PieceNews,
    Tell,
    Work,
)
from protofission.system.launch.meeting import meeting
from protofission.system.locks import folder_lock
from protofission.system.partial_files import partial_path
from protofission.system.worker_processes import set_threads
from protofission.training.command import Command
from protofission.training.experiment import Experiment
from protofission.training.run import perform
from protofission.training.run_folder import RunFolder
from protofission.training.run_words import RunLine, tell_moments
from protofission.training.schedules import number_of_steps
from protofission.training.tracking import find_tracker
from protofission.training.trunk_cache import load_data

OUTLIVED = 60.0
"""Seconds in which processes of a launcher that was lost end, and leave the folder."""


@dataclass(frozen=True)
class RunWork:
    """A run that processes carry out together."""

    command: Command
    folder: Path
    """Every machine sees it."""
    size: int
    """The number of processes."""
    resume: bool
    save_every: float
    track: str | None
    """A name of TRACKERS."""
    accelerator: str


class RunNews(NamedTuple):
    """News of a run by its first process."""

    done: int = 0
    steps: int = 0
    lines: tuple[RunLine, ...] = ()
    """Told by the first process, all so far: what is told may come late, or not at all."""


def perform_elsewhere(work: RunWork, launcher: Launcher) -> Generator[RunNews, None, None]:
    """Carry out a run by a launcher; yields its steps, and its lines, each once.

    Raises:
        InputError: it is refused, or its processes are lost again and again without a step between.
    """
    lost, furthest = 0, 0
    while True:
        failure, done = yield from _attempt(work, launcher)
        if failure is None:
            return
        lost, furthest = (0 if done > furthest else lost) + 1, max(furthest, done)
        require(not failure.final and lost < MOST_TRIES, failure.failure)
        line = RunLine(f"{failure.failure} The run goes on at its last saved state.", True)
        yield RunNews(done, lines=(line,))
        work = replace(work, resume=True)


def _attempt(
    work: RunWork, launcher: Launcher
) -> Generator[RunNews, None, tuple[PieceNews | None, int]]:
    """Carry out a run until it is finished or a process fails; returns the failure and the step."""
    done, shown, failure = 0, 0, None
    pieces = Work(_begin, (work, partial_path(work.folder / "meeting")), _carry_out)
    with closing(launcher.run(pieces, range(work.size), together=True)) as told:
        for news in told:
            if news.failure:
                return news, done
            if news.told is None:
                failure = PieceNews(news.place, failure="The processes lost each other.")
            elif news.place == 0:
                done = news.told.done
                yield news.told._replace(lines=news.told.lines[shown:])
                shown = len(news.told.lines)
    return failure, done


def _begin(work: RunWork, file: Path) -> tuple[RunWork, Path]:
    set_threads(1)
    return work, file


def _carry_out(begun: tuple[RunWork, Path], rank: int, tell: Tell) -> RunNews | None:
    """Carry out the share of one process; None if it lost the others, whose loss has a reason."""
    work, file = begun
    experiment, folder = work.command.experiment(), RunFolder(work.folder)
    if rank == 0:
        _wait_for_others(folder)
    try:
        with meeting(file, rank, work.size):
            processes = launch_processes(1, 1, work.accelerator, experiment.recipe.precision)
            return _perform(work, experiment, folder, processes, tell)
    except LostProcessError:
        return None


def _wait_for_others(folder: RunFolder) -> None:
    """Wait until processes of an earlier launcher, which was lost, have left the folder."""
    end = time.monotonic() + OUTLIVED
    while True:
        try:
            with folder_lock(folder.path):
                return
        except InputError:
            if time.monotonic() > end:
                raise
            time.sleep(LOOK_AGAIN)


def _perform(
    work: RunWork, experiment: Experiment, folder: RunFolder, processes: Processes, tell: Tell
) -> RunNews:
    if processes.first:
        load_data(experiment)  # computes maps of a trunk that are missing
    processes.wait()
    data = load_data(experiment)
    steps, news = number_of_steps(experiment.recipe, data.training), RunNews()
    moments = perform(
        experiment,
        data,
        folder,
        resume=work.resume,
        processes=processes,
        save_every=work.save_every,
        command=work.command,
    )
    tracker = find_tracker(work.track, folder) if processes.first else None
    for done, lines in tell_moments(moments, experiment, steps, tracker):
        news = RunNews(done, steps, (*news.lines, *lines))
        if processes.first:
            tell(news)
    return news
