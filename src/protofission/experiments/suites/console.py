"""A suite as a person sees it: what will run, how far it is, how long it takes, what failed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from rich.console import Console
from rich.progress import Progress, TaskID

from protofission.core.errors import InputError, require, unknown
from protofission.core.rng import check_seed
from protofission.data.readers.image_cache import processors
from protofission.data.store.manifest import read_store_manifest
from protofission.experiments.report.run_tables import QUANTITIES
from protofission.experiments.suite import Run, Suite
from protofission.experiments.suites.runner import News, Pace, pace_of, threads_of, work
from protofission.experiments.suites.setting import Setting
from protofission.models.encoders import DEFAULT, encoder_named
from protofission.training.console import bars, line, show_embedding
from protofission.training.embed import ViewCounts, images_of


def chosen(suite: Suite, runs: Sequence[Run], only: Sequence[str]) -> list[Run]:
    """The runs of some rows, or all."""
    rows = {case.row for case in suite.cases}
    for row in only:
        if row not in rows:
            raise unknown("row", row, rows)
    return [run for run in runs if not only or run.case.row in only]


def show_plan(runs: Sequence[Run], number: int, console: Console) -> None:
    """What would run, and how long that takes, by the time of a few steps of each method."""
    left = [run for run in runs if not run.folder.finished]
    for run in runs:
        state = "finished" if run.folder.finished else "to run"
        line(console, f"{state:8}  {_title(run)}  {run.folder.path.name}")
    line(console, f"{len(runs)} runs, {len(runs) - len(left)} of them finished.")
    if not left:
        return
    paces: dict[tuple[str, str, str], Pace] = {}
    total = 0.0
    try:
        for run in left:
            kind = (run.case.method, run.case.preset, run.case.panel)
            if kind not in paces:
                paces[kind] = pace_of(run)
            total += paces[kind].seconds(run)
    except InputError as refusal:
        line(console, f"How long cannot be said yet: {refusal}")
        return
    number = min(number, len(left))
    threads = threads_of(number)
    line(
        console,
        f"About {total / number / 60:.0f} min with {number} worker{'s' * (number > 1)} of "
        f"{threads} thread{'s' * (threads > 1)} each, by the pace of one thread just now.",
    )


def show_work(runs: Sequence[Run], number: int, console: Console) -> list[str]:
    """Carry out runs under bars, a line for each that ends; gives a sentence for each failure."""
    failures = []
    with bars(console) as progress:
        board = _Board(progress, runs)
        try:
            with closing(work(runs, number)) as told:
                for news in told:
                    board.hear(news)
                    if not news.ended:
                        continue
                    run = runs[news.place]
                    if news.failure:
                        failures.append(f"{_title(run)}: {news.failure}")
                    line(console, f"{_title(run)}: {news.failure or _outcome(run)}")
        except InputError as refusal:  # a worker is gone; the report shows what there is
            failures.append(str(refusal))
    return failures


class _Board:
    """A bar for the suite, and one for each run that is under way."""

    def __init__(self, progress: Progress, runs: Sequence[Run]) -> None:
        self.progress, self.runs = progress, runs
        self.shares = [float(run.folder.finished) for run in runs]
        self.whole = progress.add_task("all runs", total=len(runs), completed=int(sum(self.shares)))
        self.tasks: dict[int, TaskID] = {}
        self.ended: set[int] = set()

    def hear(self, news: News) -> None:
        """One word more of a run; what comes after its last one is late."""
        if news.place in self.ended:
            return
        if news.ended:
            self.ended.add(news.place)
            self.shares[news.place] = 1.0
            if news.place in self.tasks:
                self.progress.remove_task(self.tasks.pop(news.place))
        else:
            self.shares[news.place] = news.done / max(news.steps, 1)
            if news.place not in self.tasks:
                title = _title(self.runs[news.place])
                self.tasks[news.place] = self.progress.add_task(title, total=news.steps)
            self.progress.update(self.tasks[news.place], completed=news.done)
        self.progress.update(self.whole, completed=round(sum(self.shares), 2))


def _title(run: Run) -> str:
    place = run.case.panel if run.case.x is None else f"{run.case.panel}, {run.case.x:g}"
    return f"{run.case.row}, {place}, seed {run.seed}"


def _outcome(run: Run) -> str:
    try:
        summary = run.folder.summary()
    except InputError as refusal:
        return str(refusal)
    shown = ("seen", "novel_strict", "all_strict", "auc")
    return "  ".join(
        f"{key.removesuffix('_strict')} {QUANTITIES[key].written(QUANTITIES[key].value(summary))}"
        for key in shown
    )


def show_stores(setting: Setting, console: Console) -> None:
    """Make the stores that the tier wants and that are not there, or not finished."""
    if setting.tier != "features":
        return
    for dataset in setting.datasets:
        manifest = read_store_manifest(setting.store(dataset))
        if manifest is not None and manifest[1] is not None:
            continue
        spec = encoder_named(DEFAULT)
        encoder = spec.load()
        show_embedding(
            images_of(dataset, encoder.decode),
            spec,
            setting.store(dataset),
            ViewCounts(),
            console,
            processes=processors(),
            encoder=encoder,
        )


def check_seeds(seeds: int, first: int) -> range:
    """The seeds, if they are some."""
    require(1 <= seeds <= 1000, f"seeds = {seeds} must be at least 1, at most 1000.")
    check_seed(first, "first_seed")
    check_seed(first + seeds - 1, "The last seed")
    return range(first, first + seeds)
