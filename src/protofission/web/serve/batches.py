"""A queue whose items are worked on by some threads in three stages, several at once in each.

A thread that is free prepares its share of what is new; else it begins its share of what is
prepared; else it finishes what is begun. So none is idle while anything waits, and nothing is
waited for. A thread that has begun its share finishes all that is begun, if it is two thirds of
what is under way: the clients of these then send anew while the last third is begun. Each stage is
faster with several at a time: what it needs has left the processor's cache since it was last done.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar

from protofission.core.threads import take_one_core

ENOUGH = 2 / 3
"""The share of all that is under way that is finished together. With 8 clients of `serve`, 1/2 gave
0.785 of the bare encoder's rate, 2/3 0.799, 3/4 0.802; with 64, 0.854, 0.874 and 0.859 (n = 4)."""

LEAST = 2
"""Items that are begun together, if so many are prepared and another thread is at work: an encoder
reads all of its weights for one image as for two. With 8 clients the rate was 1 to 2 % higher than
with 1 (n = 24)."""

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")
Begun = TypeVar("Begun")
Taken = TypeVar("Taken")


class Stage(Enum):
    """Stages of the work on items."""

    PREPARE, BEGIN, FINISH = range(3)


class BatchQueue(Generic[Item, Prepared, Begun]):
    """Items that wait for threads, which work on several at once.

    A stage is called with some items in their order; it may leave some out, and never raises.

    Args:
        prepare: the first stage.
        begin: the second.
        finish: the third.
        most: items in a call of a stage; of so many that are prepared, no more are.
        places: items that may wait, before the first stage or the second.
    """

    def __init__(
        self,
        prepare: Callable[[Sequence[Item]], Sequence[Prepared]],
        begin: Callable[[Sequence[Prepared]], Sequence[Begun]],
        finish: Callable[[Sequence[Begun]], None],
        *,
        most: int,
        places: int,
        threads: int,
    ) -> None:
        self._prepare, self._begin, self._finish = prepare, begin, finish
        self._most, self._places = most, places
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._prepared: deque[Prepared] = deque()
        self._begun: deque[Begun] = deque()
        self._in_work, self._stopped = 0, False
        self._threads = [
            threading.Thread(target=self._run, name=f"encode-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """The number of items that wait for the first or the second stage."""
        return len(self._items) + len(self._prepared)

    @property
    def alive(self) -> bool:
        """Whether all threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def put(self, items: Sequence[Item]) -> bool:
        """Let some items wait, all or none; False if there are not so many places."""
        with self._changed:
            if self.waiting + len(items) > self._places:
                return False
            self._items.extend(items)
            self._changed.notify(len(items))
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
        stage = Stage.FINISH
        while (work := self._next(stage)) is not None:
            stage, some = work
            if stage is Stage.PREPARE:
                self._put_back(len(some), self._prepare(some), self._prepared)
            elif stage is Stage.BEGIN:
                self._put_back(len(some), self._begin(some), self._begun)
            else:
                self._finish(some)
            del work, some  # else they are held while this thread waits

    def _next(self, last: Stage) -> tuple[Stage, list[Any]] | None:
        """Wait for work, and take some; None if the queue is stopped and nothing is left.

        Args:
            last: the stage that this thread comes from.
        """
        with self._changed:
            while True:
                begun = len(self._begun)
                enough = min((self.waiting + self._in_work + begun) * ENOUGH, self._most)
                if begun and (not self.waiting or (last is Stage.BEGIN and begun >= enough)):
                    some = [self._begun.popleft() for _ in range(min(begun, self._most))]
                    return Stage.FINISH, some
                if self._items and len(self._prepared) < self._most:
                    # Of images that take long, no thread holds what another could prepare.
                    return Stage.PREPARE, self._take(self._items, len(self._threads), 1)
                if self._prepared:
                    # With the threads, one more share waits: a thread that comes next finds it.
                    least = LEAST if self._in_work else 1  # a thread that has nothing takes one
                    return Stage.BEGIN, self._take(self._prepared, len(self._threads) + 1, least)
                if self._stopped:
                    return None
                self._changed.wait()

    def _take(self, waiting: deque[Taken], shares: int, least: int) -> list[Taken]:
        number = min(max(math.ceil(len(waiting) / shares), least), len(waiting), self._most)
        self._in_work += number
        return [waiting.popleft() for _ in range(number)]

    def _put_back(self, taken: int, done: Sequence[Taken], to: deque[Taken]) -> None:
        with self._changed:
            self._in_work -= taken
            to.extend(done)
            self._changed.notify(len(done))
