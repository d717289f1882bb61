"""Processes that work for a first one: they leave Ctrl-C to it, and end when it does.

A signal that comes while they are started or ended is put off until that is done: of a pool in
between nobody knows which processes there are.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import current_process, get_context, parent_process
from typing import Any, Generic, TypeVar

import torch

from protofission.core.errors import InputError, require

SHORT = 20.0
"""Seconds of work for which no other process is started: each takes some to begin."""
LOOK_EVERY = 0.5
"""Seconds between two looks at whether the parent is still there."""

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
) -> Generator[Result, None, None]:
    """The results of tasks in their order: done here, or, where that takes long, by processes.

    Who may stop before the last result closes it: the processes end then, and not sometime.

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
    waiting: deque[Future[Result]] = deque()
    left = deque(tasks)
    came = 0
    try:
        with pool_of(processes, away.begin, away.given, "or give --processes 1") as submit:
            while left or waiting:
                while left and len(waiting) <= 2 * processes:
                    waiting.append(submit(away.carry_out, *away.handed(left.popleft())))
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


@contextmanager
def pool_of(
    processes: int, begin: Callable[..., None], given: tuple[Any, ...], otherwise: str
) -> Iterator[Callable[..., Future[Any]]]:
    """A function that hands work to so many new processes, each of which begins by `begin(*given)`.

    At the end none is left: what is still under way then nobody waits for.

    Args:
        otherwise: what a user may do where no process can be started.
    """
    with starting_processes(otherwise):
        pool = ProcessPoolExecutor(processes, get_context("spawn"), begin, given)

    def submit(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        with starting_processes(otherwise), undisturbed():
            return pool.submit(function, *arguments)

    try:
        yield submit
    finally:
        with undisturbed():
            for worker in list((pool._processes or {}).values()):
                worker.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def starting_processes(otherwise: str) -> Iterator[None]:
    """Say what is wrong where locks or processes cannot be made, and where room is missing."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"Other processes cannot be started ({error.strerror or error}): make room in memory "
            f"and in /dev/shm, where their locks are, {otherwise}."
        ) from None


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put off Ctrl-C and SIGTERM until what follows is done; processes started are deaf to Ctrl-C.

    Signals go to the main thread, so that in another one nothing is to be done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number)) or signal.SIG_DFL
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # a new process inherits it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[-1])


def begin_worker(threads: int) -> None:
    """What every worker does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process is told, and ends the others
    parent = parent_process()
    if parent is not None and parent.pid is not None:
        end_with(parent.pid)
    torch.set_num_threads(threads)


def end_with(parent: int) -> None:
    """End this process soon after its parent, by process id, has ended: at once if it has already.

    Otherwise it would wait for ever for work, or for others to meet it.
    """

    def watch() -> None:
        while os.getppid() == parent:  # an orphan is given another parent
            time.sleep(LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
