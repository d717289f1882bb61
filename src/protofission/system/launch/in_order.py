"""Tasks of one command in their order, by processes of this machine where they take long."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, TypeVar

from protofission.core.errors import require
from protofission.system.launch.launcher import Work
from protofission.system.launch.local_launcher import KILLED, LocalLauncher
from protofission.system.worker_processes import is_loaded_ahead

SHORT = 20.0
"""Seconds of work for which no process is started: each takes some to begin."""
SHORT_AHEAD = 3.0
"""The same for processes whose libraries are loaded ahead."""

Task = TypeVar("Task")


def run_in_order(
    tasks: Sequence[Task],
    run_here: Callable[[Task], Any],
    work: Work,
    piece_of: Callable[[Task], Any],
    processes: int,
    short: float | None = None,
) -> Generator[Any, None, None]:
    """Yield the results of tasks in their order, by other processes where they take long.

    A caller that may stop before the last result closes the generator: that ends the processes.

    Args:
        work: carries out in another process what `run_here` does in this one.
        piece_of: the piece of a task; made in this process shortly before it is begun.
        short: no process is started where fewer seconds of work than this are left; by default
            SHORT, or SHORT_AHEAD.
    """
    if short is None:
        short = SHORT_AHEAD if is_loaded_ahead() else SHORT
    started = time.monotonic()
    for done, task in enumerate(tasks):
        left = (time.monotonic() - started) * (len(tasks) - done) / max(done, 1)
        if done and processes > 1 and left > short:
            yield from _run_by_processes(tasks[done:], run_here, work, piece_of, processes)
            return
        yield run_here(task)


def _run_by_processes(
    tasks: Sequence[Task],
    run_here: Callable[[Task], Any],
    work: Work,
    piece_of: Callable[[Task], Any],
    processes: int,
) -> Generator[Any, None, None]:
    place, early = 0, dict[int, Any]()
    processes = min(processes, len(tasks))
    launcher = LocalLauncher(processes, ahead=processes + 1)
    with closing(launcher.run(work, map(piece_of, tasks))) as told:
        for news in told:
            if news.failure == KILLED and place == len(early) == 0:
                break  # none could start, as where a script has no `if __name__ == "__main__":`
            require(not news.failure, news.failure)
            if news.ended:
                early[news.place] = news.told
            while place in early:
                yield early.pop(place)
                place += 1
        else:
            return
    yield from map(run_here, tasks)
