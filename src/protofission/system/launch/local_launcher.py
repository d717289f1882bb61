"""Pieces of work by processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.queues import Queue
from queue import Empty
from typing import Any

from protofission.system.launch.launcher import (
    LOOK_AGAIN,
    MOST_TRIES,
    PieceNews,
    PieceOutcome,
    Work,
    Worker,
    run_pieces,
)
from protofission.system.worker_processes import (
    initialize_worker,
    process_start_errors,
    worker_context,
    worker_pool,
)

KILLED = (
    "A process was killed or ran out of memory: give the same command again, with fewer "
    "--processes or --workers if memory is short."
)


@dataclass(frozen=True)
class LocalLauncher:
    """Carries out pieces by so many processes, which end with this one."""

    processes: int
    ahead: int = 1
    """Pieces that wait beside those under way, so that no process waits for its next one."""

    def run(
        self, work: Work, pieces: Iterable[Any], *, together: bool = False
    ) -> Generator[PieceNews, None, None]:
        """As `Launcher.run`."""
        with ExitStack() as opened:
            pool = _Pool(self.processes, self.ahead, work, opened)
            yield from run_pieces(pool, pieces, 1 if together else MOST_TRIES)


class _Pool:
    """A pool of processes; where one of them is killed, a new pool takes its place."""

    def __init__(self, processes: int, ahead: int, work: Work, opened: ExitStack) -> None:
        self._processes, self._ahead, self._work, self._opened = processes, ahead, work, opened
        self._submit: Callable[..., Future[PieceOutcome]] | None = None
        self._told: Queue[tuple[int, Any]] | None = None
        """A new one with each pool: a process that is killed may leave it locked."""
        self._places: dict[Future[PieceOutcome], int] = {}

    def room(self) -> int:
        """One for each process, and some that wait."""
        return self._processes + self._ahead

    def submit(self, place: int, piece: Any) -> None:
        """Begin a try of a piece, with a pool that is started for the first."""
        if self._submit is None:
            with process_start_errors(_REMEDY):
                self._told = worker_context().Queue()
            arguments = (self._told, self._work)
            self._submit = self._opened.enter_context(
                worker_pool(self._processes, _begin, arguments, _REMEDY)
            )
        try:
            self._places[self._submit(_carry_out, place, piece)] = place
        except BrokenProcessPool as error:
            lost: Future[PieceOutcome] = Future()
            lost.set_exception(error)
            self._places[lost] = place

    def wait(self) -> Iterator[tuple[int, Any]]:
        """Yield what pieces tell, and their outcomes."""
        ended, _ = wait(self._places, LOOK_AGAIN, FIRST_COMPLETED)
        yield from self._tellings()
        for future in ended:
            place = self._places.pop(future)
            try:
                outcome = future.result()
            except BrokenProcessPool:
                outcome = PieceOutcome(failure=KILLED)
                self._opened.close()
                self._submit = None
            yield place, outcome

    def _tellings(self) -> Iterator[tuple[int, Any]]:
        assert self._told is not None
        with suppress(Empty):
            while True:
                yield self._told.get_nowait()


_REMEDY = "and give the same command again"
_worker: Worker | None = None
_queue: Queue[tuple[int, Any]] | None = None


def _begin(told: Queue[tuple[int, Any]], work: Work) -> None:
    global _worker, _queue
    initialize_worker(threads=1)
    _worker, _queue = Worker(work), told


def _carry_out(place: int, piece: Any) -> PieceOutcome:
    worker, queue = _worker, _queue
    assert worker is not None
    assert queue is not None
    return worker.carry_out(piece, lambda told: queue.put((place, told)))
