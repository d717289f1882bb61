"""The runs of a suite, side by side: each worker takes one run at a time."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from statistics import median

import torch

from protofission.core.errors import InputError, require
from protofission.data.datasets import Data
from protofission.data.readers.image_cache import processors
from protofission.data.store.reader import Store
from protofission.data.store.stored_views import StoredViews
from protofission.experiments.suite import Run
from protofission.system.distributed import launched
from protofission.system.whole_files import locked
from protofission.system.worker_processes import begin_worker, pool_of, starting_processes
from protofission.training.experiment import Experiment
from protofission.training.loop import train
from protofission.training.run import perform
from protofission.training.schedules import number_of_steps, steps_per_epoch
from protofission.training.state import start
from protofission.training.trunk_cache import load_data

OFTEN = 0.5
"""Seconds from one word of a run to the next."""
PROBED = 6
"""Steps whose time is taken."""


@dataclass(frozen=True)
class News:
    """What a worker says of a run."""

    place: int
    """Of the run, among those that were given."""
    done: int
    """Steps, while it is under way."""
    steps: int
    """Of the whole run."""
    ended: bool = False
    failure: str = ""
    """Why the run cannot be finished."""


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


def threads_of(number: int) -> int:
    """The threads of each of so many workers."""
    return max(1, processors() // number)


def work(runs: Sequence[Run], number: int) -> Generator[News, None, None]:
    """Carry out the runs that are not finished, by so many processes; yields what they tell.

    Closed before its end, it ends the processes.

    A run that was interrupted goes on where it was. One that fails is told of, and others go on.
    """
    places = [place for place, run in enumerate(runs) if not run.folder.finished]
    if not places:
        return
    number = min(number, len(places))
    again = "and give the same command again"
    with starting_processes(again):
        told: Queue[News] = get_context("spawn").Queue()
    with pool_of(number, _begin, (told, threads_of(number)), again) as submit:
        waiting = {submit(_carry_out, place, runs[place]) for place in places}
        while waiting:
            ended, waiting = wait(waiting, OFTEN, FIRST_COMPLETED)
            yield from _heard(told)
            for future in ended:
                yield _ending(future)


def _heard(told: Queue[News]) -> Iterator[News]:
    while True:
        try:
            yield told.get_nowait()
        except Empty:
            return


def _ending(future: Future[News]) -> News:
    try:
        return future.result()
    except BrokenProcessPool:
        raise InputError(
            "A process of the suite was killed or ran out of memory: give the same command again, "
            "with fewer --workers if memory is short. What is finished is kept."
        ) from None


_told: Queue[News] | None = None
_views: dict[Path, StoredViews] = {}
"""Of each store that this process has opened, so that it is verified once."""


def _begin(told: Queue[News], threads: int) -> None:
    global _told
    begin_worker(threads)
    _told = told


def _carry_out(place: int, run: Run) -> News:
    """One run, in a worker."""
    assert _told is not None
    try:
        with locked(run.folder.path, wait=True):  # until another suite has done with it
            finished = run.folder.finished
        if not finished:
            for news in _performed(place, run):
                _told.put(news)
    except (InputError, OSError, RuntimeError, MemoryError) as error:
        return News(place, 0, 0, ended=True, failure=" ".join(str(error).split()) or repr(error))
    return News(place, 0, 0, ended=True)


def _performed(place: int, run: Run) -> Iterator[News]:
    experiment = run.case.experiment(run.seed)
    experiment.check()
    data = _loaded(experiment)
    processes = launched(precision=experiment.recipe.precision)
    steps, clock = number_of_steps(experiment.recipe, data.training), 0.0
    for moment in perform(experiment, data, run.folder, resume=True, processes=processes):
        if time.monotonic() - clock > OFTEN:
            clock = time.monotonic()
            yield News(place, moment.report.step + 1, steps)


def _loaded(experiment: Experiment) -> Data:
    data = load_data(experiment)
    views = data.augmentations
    if isinstance(views, StoredViews):
        views = _views.setdefault(views.store.folder, views)
    return replace(data, augmentations=views)


@dataclass(frozen=True)
class Pace:
    """About how long the parts of a run take on one thread, in seconds."""

    step: float
    look: float
    """At the whole pool or the test set."""

    def seconds(self, run: Run) -> float:
        """For a run like the one that was timed: it may have more steps."""
        experiment = run.case.experiment(run.seed)
        data, recipe = _loaded(experiment).training, experiment.recipe
        total = number_of_steps(recipe, data)
        epochs = total / steps_per_epoch(recipe, data)
        return total * self.step + (epochs + epochs / experiment.judging.every) * self.look


def pace_of(run: Run) -> Pace:
    """A few steps of a run, timed; nothing is written."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        experiment = run.case.experiment(run.seed)
        data = _loaded(experiment)
        state = start(experiment, data.training, data.augmentations)
        clocks = [time.perf_counter()]
        for report in train(state, experiment, data.training, data.augmentations):
            clocks.append(time.perf_counter())
            if report.step == PROBED:
                break
    finally:
        torch.set_num_threads(threads)
    first, *others = (after - before for before, after in pairwise(clocks))
    step = median(others) if others else first
    return Pace(step, max(first - step, 0.0))


def check_workers(number: int) -> None:
    """Refuse a number of workers that makes no sense."""
    require(1 <= number <= 1024, f"workers = {number} must be at least 1, at most 1024.")
