"""The queue of batches: bounded, shared by its threads, and nothing in it is lost."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from protofission.web.serve.batches import BatchQueue


class Work:
    """Doubles numbers; holds its batches until it is let go."""

    def __init__(self, held: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        if not held:
            self.go.set()

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.begun.release()
        assert self.go.wait(20)
        if 13 in items:
            raise ZeroDivisionError
        return [2 * item for item in items]


def queue_of(
    work: Work, most: int = 4, places: int = 10, wait: float = 0.0, threads: int = 1
) -> BatchQueue[int, int]:
    return BatchQueue(work, most=most, places=places, wait=wait, threads=threads)


def put(queue: BatchQueue[int, int], *items: int) -> list[Future[int]]:
    assert queue.reserve(len(items))
    found = [Future[int]() for _ in items]
    for item, result in zip(items, found, strict=True):
        queue.fill(item, result)
    return found


def test_items_that_wait_are_taken_together_in_their_order() -> None:
    work = Work(held=True)
    queue = queue_of(work)
    first = put(queue, 1)
    assert work.begun.acquire(timeout=20)  # the thread is busy with it
    rest = put(queue, 2, 3, 4, 5, 6)
    work.go.set()
    assert [f.result(20) for f in (*first, *rest)] == [2, 4, 6, 8, 10, 12]
    assert work.batches == [[1], [2, 3, 4, 5], [6]]
    queue.stop()


def test_idle_threads_share_what_waits() -> None:
    work = Work(held=True)
    queue = queue_of(work, most=8, wait=5.0, threads=2)
    results = put(queue, *range(8))
    assert all(work.begun.acquire(timeout=20) for _ in range(2))
    work.go.set()
    assert [result.result(20) for result in results] == list(range(0, 16, 2))
    assert sorted(map(len, work.batches)) == [4, 4]
    queue.stop()


def test_a_batch_waits_for_items_that_have_a_place_and_no_longer_than_told() -> None:
    work = Work()
    queue = queue_of(work, wait=30.0)
    begun = time.monotonic()
    assert put(queue, 1)[0].result(20) == 2  # nothing is coming: no wait
    assert queue.reserve(2)
    one, two = Future[int](), Future[int]()
    queue.fill(5, one)
    time.sleep(0.1)
    assert not one.done()
    queue.fill(6, two)
    assert (one.result(20), two.result(20)) == (10, 12)
    assert time.monotonic() - begun < 20
    assert work.batches == [[1], [5, 6]]
    queue.stop()
    patient = queue_of(work, wait=30.0)
    assert patient.reserve(2)
    three = Future[int]()
    patient.fill(7, three)
    patient.give_back()  # the other could not be decoded
    assert three.result(20) == 14
    patient.stop()
    impatient = queue_of(work, wait=0.05)
    assert impatient.reserve(2)
    four = Future[int]()
    impatient.fill(8, four)
    assert four.result(20) == 16  # the other never comes
    impatient.stop()


def test_after_a_batch_of_several_as_many_are_waited_for() -> None:
    work = Work()
    queue = queue_of(work, wait=1.0)
    assert queue.reserve(2)
    results = [Future[int]() for _ in range(5)]
    for number in (0, 1):
        queue.fill(number, results[number])
    assert results[1].result(20) == 2
    put_again = threading.Timer(0.2, lambda: queue.reserve(1) and queue.fill(3, results[3]))
    put_again.start()
    assert queue.reserve(1)
    queue.fill(2, results[2])
    assert (results[2].result(20), results[3].result(20)) == (4, 6)
    assert queue.reserve(1)
    queue.fill(4, results[4])
    assert results[4].result(20) == 8  # nobody else came within a second
    assert work.batches == [[0, 1], [2, 3], [4]]
    queue.stop()


def test_places_are_bounded_and_come_back() -> None:
    work = Work(held=True)
    queue = queue_of(work, places=3)
    put(queue, 1)
    assert work.begun.acquire(timeout=20)
    held = put(queue, 2, 3)
    assert queue.waiting == 2
    assert not queue.reserve(2)  # all or none
    assert queue.reserve(1)
    assert not queue.reserve(1)
    queue.give_back()
    work.go.set()
    assert held[1].result(20) == 6
    assert queue.waiting == 0
    queue.stop()


def test_an_item_that_nobody_waits_for_is_not_worked_on() -> None:
    work = Work(held=True)
    queue = queue_of(work)
    put(queue, 1)
    assert work.begun.acquire(timeout=20)
    gone, wanted = put(queue, 2, 3)
    assert gone.cancel()
    work.go.set()
    assert wanted.result(20) == 6
    assert work.batches == [[1], [3]]
    queue.stop()


def test_a_failure_is_of_its_batch_alone() -> None:
    queue = queue_of(Work())
    with pytest.raises(ZeroDivisionError):
        put(queue, 13)[0].result(20)
    assert queue.alive
    assert put(queue, 1)[0].result(20) == 2
    queue.stop()
    assert not queue.alive


def test_a_stop_finishes_what_is_ready() -> None:
    work = Work()
    queue = queue_of(work, most=1, places=100)
    results = put(queue, *range(50, 100))
    queue.stop()
    assert [result.result(0) for result in results] == list(range(100, 200, 2))
