"""The queue of three stages: bounded, shared by its threads, and nothing in it is lost."""

import random
import threading
import time
from collections.abc import Callable, Sequence

from protofission.web.serve.batches import BatchQueue

PATIENCE = 20.0


class Stages:
    """Notes what is done in each stage; each beginning is held until it is let go."""

    def __init__(self, held: bool = False) -> None:
        self.prepared: list[list[int]] = []
        self.begun: list[list[int]] = []
        self.finished: list[list[int]] = []
        self.held, self._go, self._came = held, threading.Semaphore(0), threading.Semaphore(0)

    def prepare(self, items: Sequence[int]) -> list[float]:
        self.prepared.append(list(items))
        return [item + 0.5 for item in items]

    def begin(self, prepared: Sequence[float]) -> list[str]:
        items = [int(item - 0.5) for item in prepared]
        self.begun.append(items)
        self._came.release()
        assert not self.held or self._go.acquire(timeout=PATIENCE)
        return [f"<{item}>" for item in items]

    def finish(self, begun: Sequence[str]) -> None:
        self.finished.append([int(item[1:-1]) for item in begun])

    def wait_for_beginnings(self, number: int = 1) -> None:
        """Wait until so many more were begun."""
        for _ in range(number):
            assert self._came.acquire(timeout=PATIENCE)

    def let_go(self, number: int) -> None:
        """Let so many beginnings end, one after the other."""
        self._go.release(number)


def queue_of(
    stages: Stages, most: int = 4, places: int = 10, threads: int = 1
) -> BatchQueue[int, float, str]:
    three = stages.prepare, stages.begin, stages.finish
    return BatchQueue(*three, most=most, places=places, threads=threads)


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_what_waits_is_begun_by_shares_of_which_one_is_left() -> None:
    stages = Stages(held=True)
    queue = queue_of(stages, threads=2, most=8, places=20)
    assert queue.put([0])
    stages.wait_for_beginnings()  # one thread is busy
    assert queue.put(range(1, 10))
    stages.wait_for_beginnings()
    assert stages.prepared == [[0], [1, 2, 3, 4, 5], [6, 7], [8]]  # then the most are prepared
    assert stages.begun == [[0], [1, 2, 3]]
    stages.let_go(20)
    queue.stop()
    assert [item for some in stages.begun for item in some] == list(range(10))


def test_an_item_that_comes_alone_is_finished_alone() -> None:
    stages = Stages()
    queue = queue_of(stages)
    for number, item in enumerate((1, 2), 1):
        assert queue.put([item])
        wait_until(lambda number=number: len(stages.finished) == number)  # type: ignore[misc]
    queue.stop()
    assert stages.finished == [[1], [2]]


def test_two_thirds_of_what_is_under_way_are_finished_together() -> None:
    stages = Stages(held=True)
    queue = queue_of(stages, most=1000, places=1000)
    assert queue.put([0])
    stages.wait_for_beginnings()
    assert queue.put(range(1, 9))  # 9 are under way
    stages.let_go(100)
    queue.stop()
    # Begun: 0; half of 8, half of 4, half of 2, the last. After the second, 5 of 9 are ready; after
    # the third, 7 of 9; then 1 of 2 with one that waits.
    assert stages.begun == [[0], [1, 2, 3, 4], [5, 6], [7], [8]]
    assert stages.finished == [[0, 1, 2, 3, 4, 5, 6], [7, 8]]


def test_no_stage_gets_more_than_the_most() -> None:
    stages = Stages(held=True)
    queue = queue_of(stages, most=3, places=100)
    assert queue.put([0])
    stages.wait_for_beginnings()
    assert queue.put(range(1, 50))
    stages.let_go(100)
    queue.stop()
    assert max(map(len, stages.prepared)) == 3
    assert max(map(len, stages.begun)) == 3
    assert max(map(len, stages.finished)) == 3
    assert [item for some in stages.finished for item in some] == list(range(50))


def test_what_is_begun_waits_for_no_other_thread_if_nothing_waits() -> None:
    stages = Stages(held=True)
    queue = queue_of(stages, threads=2)
    assert queue.put([0])
    assert queue.put([1])
    stages.wait_for_beginnings(2)
    stages.let_go(1)
    wait_until(lambda: len(stages.finished) == 1)
    assert len(stages.finished[0]) == 1
    stages.let_go(1)
    queue.stop()
    assert sorted(stages.finished) == [[0], [1]]


def test_many_threads_and_callers_lose_nothing_and_repeat_nothing() -> None:
    finished: list[int] = []
    done = threading.Semaphore(0)

    def prepare(items: Sequence[int]) -> list[int]:
        time.sleep(random.random() / 4000)
        return [-item for item in items]

    def begin(prepared: Sequence[int]) -> list[int]:
        time.sleep(random.random() / 2000)
        return list(prepared)

    def finish(begun: Sequence[int]) -> None:
        finished.extend(-item for item in begun)
        done.release(len(begun))

    queue = BatchQueue(prepare, begin, finish, most=5, places=1000, threads=3)

    def ask(first: int) -> None:
        for number in range(100):
            assert queue.put([first + number])
            assert done.acquire(timeout=PATIENCE)  # any answer lets the next one ask

    callers = [threading.Thread(target=ask, args=(1000 * caller,)) for caller in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE)
        assert not caller.is_alive()
    queue.stop()
    assert sorted(finished) == [1000 * caller + n for caller in range(8) for n in range(100)]


def test_what_takes_long_to_prepare_is_shared_by_the_threads() -> None:
    met = threading.Barrier(2, timeout=PATIENCE)
    finished: list[int] = []

    def prepare(items: Sequence[int]) -> Sequence[int]:
        if met.n_waiting or len(finished) == 0:
            met.wait()  # ends only if two threads prepare at a time
        return items

    queue = BatchQueue(prepare, lambda items: items, finished.extend, most=8, places=9, threads=2)
    assert queue.put([1, 2])
    queue.stop()
    assert sorted(finished) == [1, 2]


def test_a_stage_may_leave_some_out() -> None:
    stages = Stages()
    prepare: Callable[[Sequence[int]], list[float]] = lambda items: [  # noqa: E731
        item + 0.5 for item in items if item % 3
    ]
    begin: Callable[[Sequence[float]], list[str]] = lambda prepared: stages.begin(  # noqa: E731
        [item for item in prepared if item % 2 != 0.5]
    )
    queue = BatchQueue(prepare, begin, stages.finish, most=4, places=20, threads=2)
    assert queue.put(range(20))
    wait_until(lambda: sum(map(len, stages.finished)) == 7)
    assert queue.put([25])  # what was left out is no more under way
    wait_until(lambda: sum(map(len, stages.finished)) == 8)
    queue.stop()
    assert sorted(item for some in stages.finished for item in some) == [
        1,
        5,
        7,
        11,
        13,
        17,
        19,
        25,
    ]


def test_places_are_bounded_and_come_back() -> None:
    stages = Stages(held=True)
    queue = queue_of(stages, places=3)
    assert queue.put([1])
    stages.wait_for_beginnings()
    assert queue.put([2, 3])
    assert queue.waiting == 2
    assert not queue.put([4, 5])  # all or none
    assert queue.put([4])
    assert not queue.put([5])
    stages.let_go(10)
    wait_until(lambda: queue.waiting == 0)
    assert queue.put([5, 6, 7])
    queue.stop()
    assert not queue.alive
    assert sorted(item for some in stages.finished for item in some) == list(range(1, 8))


def test_a_stop_finishes_what_waits() -> None:
    stages = Stages()
    queue = queue_of(stages, most=1, places=100)
    assert queue.put(range(50))
    queue.stop()
    assert stages.finished == [[item] for item in range(50)]
