"""Processes that work for a first one: they leave Ctrl-C to it, and end when it does."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import current_process, get_context, parent_process
from typing import Any, Generic, TypeVar

import torch

from protofission.errors import require

SHORT = 20.0
"""Seconds of work for which no other process is started: each takes some to begin."""

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Away(Generic[Task, Result]):
    """How another process does a task."""

    begin: Callable[..., None]
    """What it does first, with `given`: a function of a module, as `carry_out` is."""
    given: tuple[Any, ...]
    carry_out: Callable[..., Result]
    handed: Callable[[Task], tuple[Any, ...]]
    """What `carry_out` is called with; read when it is time to hand it over."""


def check_processes(processes: int) -> None:
    """Refuse a number that is out of range; leave a script without a main guard, begun again."""
    require(1 <= processes <= 1024, f"processes = {processes} must be between 1 and 1024.")
    if getattr(current_process(), "_inheriting", False):
        raise SystemExit(1)


def in_turn(
    tasks: Sequence[Task],
    here: Callable[[Task], Result],
    away: Away[Task, Result],
    processes: int,
    short: float = SHORT,
) -> Iterator[Result]:
    """The results of tasks in their order: done here, or, where that takes long, by processes.

    Args:
        short: no other process is started where so many seconds of work are left.
    """
    begun = time.monotonic()
    for done, task in enumerate(tasks):
        left = (time.monotonic() - begun) * (len(tasks) - done) / max(done, 1)
        if done and processes > 1 and left > short:
            yield from _shared(tasks[done:], here, away, processes)
            return
        yield here(task)


def _shared(
    tasks: Sequence[Task],
    here: Callable[[Task], Result],
    away: Away[Task, Result],
    processes: int,
) -> Iterator[Result]:
    """The results of tasks by a pool of processes, with few tasks under way at any time."""
    processes = min(processes, len(tasks))
    pool = ProcessPoolExecutor(processes, get_context("spawn"), away.begin, away.given)
    waiting: deque[Future[Result]] = deque()
    left = deque(tasks)
    came = 0
    try:
        while left or waiting:
            while left and len(waiting) <= 2 * processes:
                waiting.append(pool.submit(away.carry_out, *away.handed(left.popleft())))
            yield waiting.popleft().result()
            came += 1
    except BrokenProcessPool:
        require(
            came == 0,
            "A process that computes features was killed or ran out of memory: give the same "
            "command again, with fewer --processes if memory is short.",
        )
        # None could start, as where a script has no `if __name__ == "__main__":`.
        yield from map(here, tasks)
    finally:
        if left or waiting:  # what is under way nobody waits for
            for worker in list((pool._processes or {}).values()):
                worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def begin_worker(threads: int) -> None:
    """What every worker does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process is told, and ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
