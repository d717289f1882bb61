"""The runs of a suite as pieces of work, side by side: a worker takes one run at a time."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from protofission.core.errors import require
from protofission.data.datasets import Data
from protofission.data.store.reader import Store
from protofission.data.store.stored_views import StoredViews
from protofission.experiments.suite import Run
from protofission.system.distributed import launch_processes
from protofission.system.launch.launcher import Launcher, Tell, Work
from protofission.system.launch.local_launcher import LocalLauncher
from protofission.system.locks import folder_lock
from protofission.system.processors import processors
from protofission.system.worker_processes import set_threads
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


def perform_runs(
    runs: Sequence[Run], number: int, launcher: Launcher | None = None
) -> Generator[News, None, None]:
    """Carry out the runs that are not finished; yields their news.

    A run that was interrupted goes on where it was. The failure of one is news, and the others go
    on. Closing the generator ends the processes.

    Args:
        number: runs at the same time on this machine.
        launcher: carries them out elsewhere, on one thread each.
    """
    places = [place for place, run in enumerate(runs) if not run.folder.finished]
    if not places:
        return
    number = min(number, len(places))
    threads = threads_of(number) if launcher is None else 1
    launcher = launcher or LocalLauncher(number)
    work = Work(set_threads, (threads,), _carry_out)
    with closing(launcher.run(work, [runs[place] for place in places])) as told:
        for news in told:
            done, steps = (0, 0) if news.ended else news.told
            yield News(places[news.place], done, steps, news.ended, news.failure)


_views: dict[Path, StoredViews] = {}
"""Views of the stores that this process has opened, by folder: each is verified once."""


def _carry_out(_: None, run: Run, tell: Tell) -> None:
    """Carry out one run in a worker."""
    with folder_lock(run.folder.path, wait=True):  # until another suite has done with it
        finished = run.folder.finished
    if not finished:
        _perform(run, tell)


def _perform(run: Run, tell: Tell) -> None:
    """Perform a run, and tell now and then how many of its steps are done."""
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
            tell((moment.report.step + 1, steps))


def load_run_data(experiment: Experiment) -> Data:
    """The data of a run; a store that this process has opened is not verified again."""
    data = load_data(experiment)
    views = data.augmentations
    if isinstance(views, StoredViews):
        views = _views.setdefault(views.store.folder, views)
    return replace(data, augmentations=views)
