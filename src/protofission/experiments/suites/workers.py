"""The runs of a suite by worker processes, side by side: each takes one run at a time."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty

from protofission.core.errors import InputError, require
from protofission.data.datasets import Data
from protofission.data.store.reader import Store
from protofission.data.store.stored_views import StoredViews
from protofission.experiments.suite import Run
from protofission.system.distributed import launch_processes
from protofission.system.locks import folder_lock
from protofission.system.processors import processors
from protofission.system.worker_processes import (
    initialize_worker,
    process_start_errors,
    worker_pool,
)
from protofission.training.experiment import Experiment
from protofission.training.run import perform
from protofission.training.schedules import number_of_steps
from protofission.training.trunk_cache import load_data

REPORT_EVERY = 0.5
"""Seconds from one report of a run to the next."""
MOST_WORKERS = 1024


@dataclass(frozen=True)
class News:
    """A worker's report on a run."""

    place: int
    """Index of the run, among those that were given."""
    done: int
    """Steps that are done, while it is under way."""
    steps: int
    """Steps of the whole run."""
    ended: bool = False
    failure: str = ""
    """Reason why the run cannot be finished."""


def check_stores(runs: Sequence[Run]) -> None:
    """Refuse finished runs that were made on other features than those of their store."""
    known: dict[str, dict[str, str]] = {}
    for run in runs:
        store = run.case.experiment(run.seed).data.store
        if store is None or not run.folder.finished or not run.folder.has("store.json"):
            continue
        if store not in known:
            known[store] = Store.open(store).plan.fingerprints
        require(
            run.folder.plain("store") == known[store],
            f"{run.folder.path} is a finished run on other features than {store} holds: name "
            "another --out, or delete it.",
        )


def worker_count(workers: int | None) -> int:
    """The number of workers: as given, else one per processor."""
    number = processors() if workers is None else workers
    require(
        1 <= number <= MOST_WORKERS,
        f"workers = {number} must be at least 1, at most {MOST_WORKERS}.",
    )
    return number


def threads_of(number: int) -> int:
    """The threads of each of so many workers."""
    return max(1, processors() // number)


def perform_runs(runs: Sequence[Run], number: int) -> Generator[News, None, None]:
    """Carry out the runs that are not finished, by so many processes; yields their news.

    A run that was interrupted goes on where it was. The failure of one is news, and the others go
    on. Closing the generator ends the processes.
    """
    places = [place for place, run in enumerate(runs) if not run.folder.finished]
    if not places:
        return
    number = min(number, len(places))
    again = "and give the same command again"
    with process_start_errors(again):
        told: Queue[News] = get_context("spawn").Queue()
    with worker_pool(number, _begin, (told, threads_of(number)), again) as submit:
        waiting = {submit(_carry_out, place, runs[place]) for place in places}
        while waiting:
            ended, waiting = wait(waiting, REPORT_EVERY, FIRST_COMPLETED)
            yield from _waiting_news(told)
            for future in ended:
                yield _last_news(future)


def _waiting_news(told: Queue[News]) -> Iterator[News]:
    """The news that are in the queue now."""
    while True:
        try:
            yield told.get_nowait()
        except Empty:
            return


def _last_news(future: Future[News]) -> News:
    try:
        return future.result()
    except BrokenProcessPool:
        raise InputError(
            "A process of the suite was killed or ran out of memory: give the same command again, "
            "with fewer --workers if memory is short. What is finished is kept."
        ) from None


_told: Queue[News] | None = None
_views: dict[Path, StoredViews] = {}
"""Views of the stores that this process has opened, by folder: each is verified once."""


def _begin(told: Queue[News], threads: int) -> None:
    global _told
    initialize_worker(threads)
    _told = told


def _carry_out(place: int, run: Run) -> News:
    """Carry out one run in a worker, and return its last news."""
    assert _told is not None
    try:
        with folder_lock(run.folder.path, wait=True):  # until another suite has done with it
            finished = run.folder.finished
        if not finished:
            for news in _news_of(place, run):
                _told.put(news)
    except (InputError, OSError, RuntimeError, MemoryError) as error:
        return News(place, 0, 0, ended=True, failure=" ".join(str(error).split()) or repr(error))
    return News(place, 0, 0, ended=True)


def _news_of(place: int, run: Run) -> Iterator[News]:
    """Perform a run; yields its news now and then."""
    experiment = run.case.experiment(run.seed)
    experiment.check()
    data = load_run_data(experiment)
    processes = launch_processes(precision=experiment.recipe.precision)
    steps, clock = number_of_steps(experiment.recipe, data.training), 0.0
    command = run.case.command(run.seed)
    for moment in perform(
        experiment, data, run.folder, resume=True, processes=processes, command=command
    ):
        if time.monotonic() - clock > REPORT_EVERY:
            clock = time.monotonic()
            yield News(place, moment.report.step + 1, steps)


def load_run_data(experiment: Experiment) -> Data:
    """The data of a run; a store that this process has opened is not verified again."""
    data = load_data(experiment)
    views = data.augmentations
    if isinstance(views, StoredViews):
        views = _views.setdefault(views.store.folder, views)
    return replace(data, augmentations=views)
