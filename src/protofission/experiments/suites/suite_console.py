"""Show a suite in a terminal: plan and time, progress bars, results and failures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from rich.console import Console
from rich.progress import Progress, TaskID

from protofission.core.errors import InputError
from protofission.data.store.manifest import read_store_manifest
from protofission.data.store.shards import SHARDS
from protofission.experiments.report.quantities import QUANTITIES
from protofission.experiments.report.suite_report import write_report
from protofission.experiments.suite import Run
from protofission.experiments.suites.plan import SuitePlan
from protofission.experiments.suites.prototype_sheets import prototype_sheets
from protofission.experiments.suites.setting import Setting
from protofission.experiments.suites.time_estimate import Pace, measure_pace
from protofission.experiments.suites.workers import News, check_stores, perform_runs, threads_of
from protofission.models.encoders import DEFAULT, find_encoder
from protofission.system.console import print_line, progress_bars
from protofission.system.launch.launcher import Launcher
from protofission.training.run_console import show_embedding


def show_suite(
    plan: SuitePlan,
    rows: Sequence[str],
    workers: int,
    command: str,
    console: Console,
    launcher: Launcher | None = None,
) -> None:
    """Make the stores that are missing, run what is not finished, and write the report.

    Args:
        rows: the rows to run, or none for all; the report shows all of them.
        workers: how many runs are carried out side by side.
        command: the command that the report names.
        launcher: carries the runs out elsewhere.

    Raises:
        InputError: a run failed; the others are finished, and the report is written.
    """
    runs = plan.runs_of(rows)
    show_stores(plan.setting, console)
    check_stores(plan.runs)
    failures = show_runs(runs, workers, console, launcher)
    written = write_report(
        plan.report,
        plan.suite,
        plan.runs,
        command,
        plan.setting.marks(plan.suite),
        prototype_sheets(plan.suite, plan.runs),
    )
    print_line(
        console, f"Written: {written[-1]}, and {len(written) - 1} tables and figures beside it."
    )
    if failures:
        raise InputError(f"{len(failures)} of {len(runs)} runs failed. The first: {failures[0]}")


def show_plan(runs: Sequence[Run], number: int, console: Console) -> None:
    """Print what would run, and about how long, by the time of a few steps of each method."""
    left = [run for run in runs if not run.folder.finished]
    for run in runs:
        state = "finished" if run.folder.finished else "to run"
        print_line(console, f"{state:8}  {_title(run)}  {run.folder.path.name}")
    print_line(console, f"{len(runs)} runs, {len(runs) - len(left)} of them finished.")
    if not left:
        return
    paces: dict[tuple[str, str, str], Pace] = {}
    total = 0.0
    try:
        for run in left:
            kind = (run.case.method, run.case.preset, run.case.panel)
            if kind not in paces:
                paces[kind] = measure_pace(run)
            total += paces[kind].seconds(run)
    except InputError as refusal:
        print_line(console, f"How long cannot be said yet: {refusal}")
        return
    number = min(number, len(left))
    threads = threads_of(number)
    print_line(
        console,
        f"About {total / number / 60:.0f} min with {number} worker{'s' * (number > 1)} of "
        f"{threads} thread{'s' * (threads > 1)} each, by the pace of one thread just now.",
    )


def show_runs(
    runs: Sequence[Run], number: int, console: Console, launcher: Launcher | None = None
) -> list[str]:
    """Carry out runs under bars, with a line for each that ends; a sentence for each failure."""
    failures = []
    with progress_bars(console) as progress:
        board = _Board(progress, runs)
        try:
            with closing(perform_runs(runs, number, launcher)) as told:
                for news in told:
                    board.update(news)
                    if not news.ended:
                        continue
                    run = runs[news.place]
                    if news.failure:
                        failures.append(f"{_title(run)}: {news.failure}")
                    print_line(console, f"{_title(run)}: {news.failure or _outcome(run)}")
        except InputError as refusal:  # nobody is left to work; the report shows what there is
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

    def update(self, news: News) -> None:
        """Move the bars; news of runs that have ended are ignored."""
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
        summary = run.folder.metrics()
    except InputError as refusal:
        return str(refusal)
    shown = ("seen", "novel_strict", "all_strict", "auc")
    return "  ".join(
        f"{key.removesuffix('_strict')} {QUANTITIES[key].text(QUANTITIES[key].value(summary))}"
        for key in shown
    )


def show_stores(setting: Setting, console: Console) -> None:
    """Make the stores that the tier wants and that are not there, or not finished."""
    if setting.tier != "features":
        return
    for dataset in setting.datasets:
        if (setting.store(dataset) / SHARDS).exists():
            continue
        manifest = read_store_manifest(setting.store(dataset))
        if manifest is not None and manifest[1] is not None:
            continue
        show_embedding(dataset, find_encoder(DEFAULT), setting.store(dataset), console)
