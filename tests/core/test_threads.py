"""Threads: what is put aside comes back, and what is made beforehand is what was asked for."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from protofission.core.threads import all_threads, one_library_thread, one_thread, prefetcher


@pytest.fixture(autouse=True)
def three() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_threads_are_put_aside_taken_back_for_a_while_and_restored() -> None:
    with all_threads():
        assert torch.get_num_threads() == 3  # outside of one_thread, nothing changes
    with one_thread():
        assert torch.get_num_threads() == 1
        with all_threads():
            assert torch.get_num_threads() == 3
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with pytest.raises(ZeroDivisionError), one_thread():
        torch.get_num_threads() / 0
    assert torch.get_num_threads() == 3
    with one_thread(wanted=False):
        assert torch.get_num_threads() == 3


def test_strictly_one_thread_is_one_whatever_asks_for_all() -> None:
    with one_thread(strictly=True):
        assert torch.get_num_threads() == 1
        with all_threads():
            assert torch.get_num_threads() == 1
        with one_thread(), all_threads():
            assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with one_thread():
        with one_thread(strictly=True), all_threads():
            assert torch.get_num_threads() == 1
        with all_threads():  # the outer ones are still to be had
            assert torch.get_num_threads() == 3
    with all_threads():
        assert torch.get_num_threads() == 3


def test_libraries_are_put_on_one_thread_and_taken_off_it() -> None:
    def most() -> int:
        return max(pool["num_threads"] for pool in threadpool_info())

    with threadpool_limits(2):
        assert most() == 2
        with one_library_thread():
            assert most() == 1
        assert most() == 2


def test_threads_are_limited_in_one_module(project: Path) -> None:
    """Beside it, a worker process sets its number once and for all."""
    found = [
        path.name
        for path in (project / "src").rglob("*.py")
        if re.search(r"set_num_threads|threadpool_limits", path.read_text())
    ]
    assert sorted(found) == ["threads.py", "worker_processes.py"]


def test_values_are_made_beforehand_in_a_thread_of_their_own_and_kept_for_their_number() -> None:
    made: list[tuple[int, str, int]] = []

    def square(number: int) -> int:
        made.append((number, threading.current_thread().name, torch.get_num_threads()))
        return number * number

    with prefetcher(square) as upcoming:
        assert upcoming.at(3) == 9
        upcoming.begin(4)
        upcoming.wait()
        assert len(made) == 2
        assert upcoming.at(4) == 16
        upcoming.begin(5)
        assert upcoming.at(7) == 49  # not the one that was begun
        assert upcoming.at(5) == 25
    me = threading.current_thread().name
    assert made[:2] == [(3, me, 3), (4, "prefetch_0", 1)]
    assert set(made[2:]) == {(5, "prefetch_0", 1), (7, me, 3), (5, me, 3)}
    assert torch.get_num_threads() == 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_what_is_made_beforehand_takes_one_core_even_while_all_are_in_use() -> None:
    with (
        prefetcher(lambda number: torch.get_num_threads()) as upcoming,
        one_thread(),
        all_threads(),
    ):
        upcoming.begin(1)
        upcoming.wait()
        assert upcoming.at(1) == 1
        assert torch.get_num_threads() == 3


def test_another_thread_keeps_its_own_number() -> None:
    def work() -> tuple[int, int]:
        torch.set_num_threads(2)
        with all_threads():
            inside = torch.get_num_threads()
        return inside, torch.get_num_threads()

    with one_thread(), ThreadPoolExecutor(1) as other:
        assert other.submit(work).result() == (2, 2)


@pytest.mark.parametrize("alone", [False, True])
def test_without_a_second_core_or_the_wish_all_is_made_when_asked_for(alone: bool) -> None:
    if alone:
        torch.set_num_threads(1)
    made: list[str] = []
    with prefetcher(lambda number: made.append(threading.current_thread().name), alone) as upcoming:
        upcoming.begin(1)
        upcoming.wait()
        assert not made
        upcoming.at(1)
    assert made == [threading.current_thread().name]


def test_what_fails_beforehand_fails_where_it_is_asked_for() -> None:
    def fail(number: int) -> int:
        return number // 0

    with prefetcher(fail) as upcoming:
        upcoming.begin(1)
        upcoming.wait()
        with pytest.raises(ZeroDivisionError):
            upcoming.at(1)
