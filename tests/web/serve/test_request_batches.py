"""The queue of batches: bounded, shared by its threads, and nothing in it is lost."""

import threading
import time
from collections.abc import Sequence

from protofission.web.serve.batches import BatchQueue

PATIENCE = 20.0


class Work:
    """Notes the batches that it gets; holds them until it is let go."""

    def __init__(self, held: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        if not held:
            self.go.set()

    def __call__(self, items: Sequence[int]) -> None:
        self.batches.append(list(items))
        self.begun.release()
        assert self.go.wait(PATIENCE)

    def wait_for(self, number: int) -> None:
        """Wait until so many batches were begun."""
        for _ in range(number):
            assert self.begun.acquire(timeout=PATIENCE)


def queue_of(
    work: Work, most: int = 4, places: int = 10, wait: float = 0.0, threads: int = 1
) -> BatchQueue[int]:
    return BatchQueue(work, most=most, places=places, wait=wait, threads=threads)


def test_items_that_wait_are_taken_together_in_their_order() -> None:
    work = Work(held=True)
    queue = queue_of(work)
    assert queue.put([1])
    work.wait_for(1)  # the thread is busy with it
    assert queue.put([2, 3])
    assert queue.put([4, 5, 6])
    work.go.set()
    queue.stop()
    assert work.batches == [[1], [2, 3, 4, 5], [6]]


def test_idle_threads_share_what_waits() -> None:
    work = Work(held=True)
    queue = queue_of(work, most=8, threads=2)
    end = time.monotonic() + PATIENCE
    while queue._idle < 2:  # a thread that has not begun yet would get nothing
        assert time.monotonic() < end
        time.sleep(0.001)
    assert queue.put(range(8))
    work.wait_for(2)
    work.go.set()
    queue.stop()
    assert sorted(map(len, work.batches)) == [4, 4]


def test_a_lone_item_waits_for_nothing() -> None:
    work = Work()
    queue = queue_of(work, wait=PATIENCE)
    begun = time.monotonic()
    for item in (1, 2):
        assert queue.put([item])
        work.wait_for(1)
    assert time.monotonic() - begun < PATIENCE / 2
    queue.stop()
    assert work.batches == [[1], [2]]


def test_after_a_batch_of_several_as_many_are_waited_for_and_no_longer_than_told() -> None:
    work = Work()
    queue = queue_of(work, wait=1.0)
    assert queue.put([0, 1])
    work.wait_for(1)
    assert queue.put([2])
    time.sleep(0.2)
    assert queue.put([3])
    work.wait_for(1)
    assert queue.put([4])
    work.wait_for(1)  # nobody else came within a second
    assert work.batches == [[0, 1], [2, 3], [4]]
    queue.stop()


def test_places_are_bounded_and_come_back() -> None:
    work = Work(held=True)
    queue = queue_of(work, places=3)
    assert queue.put([1])
    work.wait_for(1)
    assert queue.put([2, 3])
    assert queue.waiting == 2
    assert not queue.put([4, 5])  # all or none
    assert queue.put([4])
    assert not queue.put([5])
    work.go.set()
    work.wait_for(1)
    assert queue.waiting == 0
    assert queue.put([5, 6, 7])
    queue.stop()
    assert not queue.alive
    assert work.batches == [[1], [2, 3, 4], [5, 6, 7]]


def test_a_stop_finishes_what_waits() -> None:
    work = Work()
    queue = queue_of(work, most=1, places=100, wait=PATIENCE)
    assert queue.put(range(50))
    queue.stop()
    assert work.batches == [[item] for item in range(50)]
