"""A queue whose items are worked on in batches, by some threads.

Each thread takes what waits, or its share of it, and computes on one core.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from protofission.core.threads import take_one_core

Item = TypeVar("Item")


class BatchQueue(Generic[Item]):
    """Items that wait for threads, which work on several at once.

    Args:
        work: called with some items, in their order; it never raises.
        most: items of a batch.
        places: items that may wait.
        wait: most seconds that a batch waits for items that are likely to come.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], None],
        *,
        most: int,
        places: int,
        wait: float,
        threads: int,
    ) -> None:
        self._work, self._most, self._places, self._wait = work, most, places, wait
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._idle, self._stopped = 0, False
        self._threads = [
            threading.Thread(target=self._run, name=f"encode-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """The number of items that wait."""
        return len(self._items)

    @property
    def alive(self) -> bool:
        """Whether all threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def put(self, items: Sequence[Item]) -> bool:
        """Let some items wait, all or none; False if there are not so many places."""
        with self._changed:
            if len(self._items) + len(items) > self._places:
                return False
            self._items.extend(items)
            self._changed.notify_all()
            return True

    def stop(self) -> None:
        """Finish what waits, and end the threads."""
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
            self._work(batch)
            del batch  # else it is held while this thread waits

    def _take(self, recent: int) -> list[Item]:
        """Wait for some items; none if the queue is stopped and empty.

        Args:
            recent: size of the batch before; as many are likely to come again, from clients that
                have just been answered.
        """
        with self._changed:
            self._idle += 1
            try:
                while True:
                    while not self._items:
                        if self._stopped:
                            return []
                        self._changed.wait()
                    end = time.monotonic() + self._wait
                    while 0 < len(self._items) < recent and not self._stopped:
                        if not self._changed.wait(end - time.monotonic()):
                            break
                    if self._items:
                        number = min(len(self._items), self._share())
                        return [self._items.popleft() for _ in range(number)]
            finally:
                self._idle -= 1

    def _share(self) -> int:
        """The size of a batch that leaves as much for the other threads that have no work."""
        return min(self._most, math.ceil(len(self._items) / self._idle))
