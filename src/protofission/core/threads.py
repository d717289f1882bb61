"""Control the number of threads: large products on all, small operations of a step on one.

Waking a sleeping thread takes about as long as a small operation. Beside a step, one thread may
make the next batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

Item = TypeVar("Item")


class _IdleThreads(threading.local):
    """The number of threads that `all_threads` may use again; 0 for none."""

    number = 0


_idle = _IdleThreads()


@contextmanager
def one_thread(wanted: bool = True, *, strictly: bool = False) -> Iterator[None]:
    """Run torch on one thread, and restore the number of threads at the end.

    Args:
        strictly: also within `all_threads`, so that no bit depends on the number of threads.
    """
    before, idle = torch.get_num_threads(), _idle.number
    if not wanted or (before == 1 and not strictly):
        yield
        return
    _idle.number = 0 if strictly else before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _idle.number = idle
        torch.set_num_threads(before)


@contextmanager
def all_threads() -> Iterator[None]:
    """Within `one_thread`, use all threads again, unless it is strict."""
    if not _idle.number:
        yield
        return
    torch.set_num_threads(_idle.number)
    try:
        yield
    finally:
        torch.set_num_threads(1)


@contextmanager
def one_library_thread() -> Iterator[None]:
    """Run the BLAS and OpenMP of all libraries on one thread.

    Several threads of scikit-learn add up in the order in which they end.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


class Prefetcher(Generic[Item]):
    """Values of a pure function of a number; one of them can be made in the background.

    Args:
        thread: makes it; without one, every value is made by `at`.
    """

    def __init__(self, make: Callable[[int], Item], thread: ThreadPoolExecutor | None) -> None:
        self._make, self._thread = make, thread
        self._pending: tuple[int, Future[Item]] | None = None

    def begin(self, number: int) -> None:
        """Start making a value in the background."""
        if self._thread is not None:
            self._pending = number, self._thread.submit(self._make, number)

    def wait(self) -> None:
        """Wait for the value that is being made; its error, if any, is raised by `at`."""
        if self._pending is not None:
            self._pending[1].exception()

    def at(self, number: int) -> Item:
        """Return the value that was made in the background, or make it now."""
        pending, self._pending = self._pending, None
        if pending is not None and pending[0] == number:
            return pending[1].result()
        return self._make(number)


@contextmanager
def prefetcher(make: Callable[[int], Item], wanted: bool = True) -> Iterator[Prefetcher[Item]]:
    """A `Prefetcher` with a background thread on one core, if torch has more than one."""
    if not wanted or torch.get_num_threads() == 1:
        yield Prefetcher(make, None)
        return
    with ThreadPoolExecutor(1, "prefetch", take_one_core) as thread:
        yield Prefetcher(make, thread)


def take_one_core() -> None:
    """Run torch on one thread in this thread; for the start of a worker thread."""
    torch.get_num_threads()  # the first call in a thread takes over the number that others have set
    torch.set_num_threads(1)
