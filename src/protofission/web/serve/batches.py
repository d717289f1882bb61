"""Encode images together that come together.

Some threads each take what waits, up to a batch and to their share of it, and compute on one core.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from protofission.core.threads import take_one_core

Item = TypeVar("Item")
Result = TypeVar("Result")


class BatchQueue(Generic[Item, Result]):
    """Items that wait for threads, which work on several at once.

    A place is reserved before an item is ready, so that the queue is bounded, and threads know
    whether to wait for more.

    Args:
        work: the results of some items, in their order.
        most: items of a batch.
        places: items that may wait.
        wait: most seconds that a batch waits for items that have a place and are not ready, or are
            likely to come.
        observe: called with the size of each batch.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result]],
        *,
        most: int,
        places: int,
        wait: float,
        threads: int,
        observe: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._work, self._most, self._places, self._wait = work, most, places, wait
        self._observe = observe
        self._changed = threading.Condition()
        self._ready: deque[tuple[Item, Future[Result]]] = deque()
        self._coming, self._idle, self._stopped = 0, 0, False
        self._threads = [
            threading.Thread(target=self._run, name=f"encode-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """The number of places that are taken."""
        return self._coming + len(self._ready)

    @property
    def alive(self) -> bool:
        """Whether all threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def reserve(self, number: int) -> bool:
        """Take some places, all or none; each is then filled or given back."""
        with self._changed:
            if self.waiting + number > self._places:
                return False
            self._coming += number
            return True

    def give_back(self) -> None:
        """Give a place back."""
        with self._changed:
            self._coming -= 1
            self._changed.notify_all()

    def fill(self, item: Item, result: Future[Result]) -> None:
        """Fill a place."""
        with self._changed:
            self._coming -= 1
            self._ready.append((item, result))
            self._changed.notify_all()

    def stop(self) -> None:
        """Finish what is ready, and end the threads."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        take_one_core()
        size = 0
        while batch := self._take(size):
            size = len(batch)
            begun = [(i, result) for i, result in batch if result.set_running_or_notify_cancel()]
            if not begun:
                continue
            self._observe(len(begun))
            try:
                found = self._work([item for item, _ in begun])
            except Exception as error:  # the next batch may do better
                for _, result in begun:
                    result.set_exception(error)
            else:
                for (_, result), value in zip(begun, found, strict=True):
                    result.set_result(value)
            del batch, begun  # else they are held while this thread waits

    def _take(self, recent: int) -> list[tuple[Item, Future[Result]]]:
        """Wait for some items; none if the queue is stopped and empty.

        Args:
            recent: size of the batch before; as many are likely to come again, from clients that
                have just been answered.
        """
        with self._changed:
            self._idle += 1
            try:
                while True:
                    while not self._ready:
                        if self._stopped:
                            return []
                        self._changed.wait()
                    end = time.monotonic() + self._wait
                    while 0 < len(self._ready) < max(self._share(), recent):
                        if not (self._coming or recent > 1) or self._stopped:
                            break
                        if not self._changed.wait(end - time.monotonic()):
                            break
                    if self._ready:
                        number = min(len(self._ready), self._share())
                        return [self._ready.popleft() for _ in range(number)]
            finally:
                self._idle -= 1

    def _share(self) -> int:
        """The size of a batch that leaves as much for the other threads that have no work."""
        return min(self._most, math.ceil(self.waiting / self._idle))
