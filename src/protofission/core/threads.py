"""Threads where they pay: large products on all of them, a step's many small operations on one, and
beside these the reading of the next batch.

To wake a sleeping thread takes about as long as a small operation itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class _Spared(threading.local):
    """The threads that `one_thread` put aside in this thread; 0 outside of it."""

    number = 0


_spared = _Spared()


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Run what follows on one thread, but for what is in `all_threads`."""
    before = torch.get_num_threads()
    if not wanted or before == 1:
        yield
        return
    _spared.number = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _spared.number = 0
        torch.set_num_threads(before)


@contextmanager
def all_threads() -> Iterator[None]:
    """Within `one_thread`, run what follows on all of them after all."""
    if not _spared.number:
        yield
        return
    torch.set_num_threads(_spared.number)
    try:
        yield
    finally:
        torch.set_num_threads(1)


class Ahead(Generic[T]):
    """The values of a pure function of a number, of which the next one may be made beforehand."""

    def __init__(self, make: Callable[[int], T], thread: ThreadPoolExecutor | None) -> None:
        """Make values in that thread, or all of them where they are asked for."""
        self._make, self._thread = make, thread
        self._begun: tuple[int, Future[T]] | None = None

    def begin(self, number: int) -> None:
        """Let a value be made beside what follows, up to `wait`."""
        if self._thread is not None:
            self._begun = number, self._thread.submit(self._make, number)

    def wait(self) -> None:
        """Until nothing is being made; if that failed, `at` tells."""
        if self._begun is not None:
            self._begun[1].exception()

    def at(self, number: int) -> T:
        """The value that was begun, or else made now."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == number:
            return begun[1].result()
        return self._make(number)


@contextmanager
def ahead(make: Callable[[int], T], wanted: bool = True) -> Iterator[Ahead[T]]:
    """`Ahead` with a thread of its own, on one core, if there is a second one."""
    if not wanted or torch.get_num_threads() == 1:
        yield Ahead(make, None)
        return
    with ThreadPoolExecutor(1, "ahead", _take_one_core) as thread:
        yield Ahead(make, thread)


def _take_one_core() -> None:
    torch.get_num_threads()  # what a thread asks for first is what others have set last
    torch.set_num_threads(1)
