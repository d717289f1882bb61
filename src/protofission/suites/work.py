"""The runs of a suite, side by side: each worker takes one run at a time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from statistics import median

import torch

from protofission.data.cache import processors
from protofission.data.datasets import Data
from protofission.data.store import StoredViews
from protofission.errors import InputError, require
from protofission.experiment import Experiment
from protofission.run import perform
from protofission.suite import Run
from protofission.train import number_of_steps, start, steps_per_epoch, train
from protofission.trunks import load_data
from protofission.workers import begin_worker

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
    """Steps."""
    steps: int
    """Of the whole run; 0 while that is not known."""
    ended: bool = False
    failure: str = ""
    """Why the run cannot be finished."""


def work(runs: Sequence[Run], number: int) -> Iterator[News]:
    """Carry out the runs that are not finished, by so many processes; yields what they tell.

    A run that was interrupted goes on where it was. One that fails is told of, and others go on.
    """
    places = [place for place, run in enumerate(runs) if not run.folder.finished]
    if not places:
        return
    number = min(number, len(places))
    told: Queue[News] = get_context("spawn").Queue()
    threads = max(1, processors() // number)
    pool = ProcessPoolExecutor(number, get_context("spawn"), _begin, (told, threads))
    try:
        waiting = {pool.submit(_carry_out, place, runs[place]) for place in places}
        while waiting:
            ended, waiting = wait(waiting, OFTEN, FIRST_COMPLETED)
            yield from _heard(told)
            for future in ended:
                yield _ending(future)
    finally:
        for worker in list((pool._processes or {}).values()):  # nobody waits for what is under way
            worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


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
    done = steps = 0
    try:
        experiment = run.case.experiment(run.seed)
        experiment.check()
        data = _loaded(experiment)
        steps, clock = number_of_steps(experiment.recipe, data.training), 0.0
        for moment in perform(experiment, data, run.folder, resume=True):
            done = moment.report.step + 1
            if time.monotonic() - clock > OFTEN:
                clock = time.monotonic()
                _told.put(News(place, done, steps))
    except InputError as refusal:
        return News(place, done, steps, ended=True, failure=str(refusal))
    return News(place, done, steps, ended=True)


def _loaded(experiment: Experiment) -> Data:
    data = load_data(experiment)
    views = data.augmentations
    if isinstance(views, StoredViews):
        views = _views.setdefault(views.store.folder, views)
    return replace(data, augmentations=views)


def seconds_of(run: Run) -> float:
    """About how long a run takes on one thread: a few of its steps, and a look at the pool."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        experiment = run.case.experiment(run.seed)
        experiment.check()
        data = _loaded(experiment)
        state = start(experiment, data.training, data.augmentations)
        clocks = [time.perf_counter()]
        for report in train(state, experiment, data.training, data.augmentations):
            clocks.append(time.perf_counter())
            if report.step == PROBED:
                break
    finally:
        torch.set_num_threads(threads)
    first, *others = (after - before for before, after in itertools.pairwise(clocks))
    step = median(others) if others else first
    recipe, total = experiment.recipe, number_of_steps(experiment.recipe, data.training)
    epochs = total / steps_per_epoch(recipe, data.training)
    looks = epochs + epochs / experiment.judging.every  # surveys, and the test set
    return total * step + looks * max(first - step, 0.0)


def check_workers(number: int) -> None:
    """Refuse a number of workers that makes no sense."""
    require(1 <= number <= 1024, f"workers = {number} must be at least 1, at most 1024.")
