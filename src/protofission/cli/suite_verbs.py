"""The verbs of suites: suite, report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from protofission.cli.arguments import (
    Flag,
    Names,
    On,
    OptionalWhole,
    Out,
    Set,
    Whole,
    command_line,
)
from protofission.cli.json_results import Json, gives_json
from protofission.core.errors import InputError

if TYPE_CHECKING:
    from protofission.experiments.suite import Run


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SuiteOptions:
    """Options of a suite."""

    out: Out = Path("suites")
    """Folder with the runs of all suites in runs/, and a folder for each report."""
    tier: Annotated[Literal["features", "images"] | None, Parameter(show_default=False)] = None
    """Features of a frozen encoder, or images with a pretrained backbone; by default the tier of
    the YAML file, or features."""
    dataset: Names = ()
    """Data sets by name, or folders of stores; by default cifar10 and cifar100."""
    stores: Path = Path("stores")
    """The folder of the stores of the named data sets; missing stores are made."""
    seeds: OptionalWhole = None
    """Number of seeds; 3 by default."""
    first_seed: Whole = 0
    """The first seed; the others follow it."""
    only: Names = ()
    """Rows to run; the report shows finished runs of the others too."""
    workers: OptionalWhole = None
    """Runs at the same time; by default one per processor."""
    on: On = "local"
    """Machines that carry out the runs: local; ray, for a Ray cluster that is started for this
    command; auto or ray://HOST:PORT, for one that runs; slurm or slurm:PARTITION."""
    budget: float = 1.0
    """Share of the epochs of the full suite; below 1, the report says so."""
    dry_run: Flag = False
    """Only list the runs and estimate their time."""
    set_: Set = ()
    """key=value sets an option of all cases that have it."""


DEFAULT_OPTIONS = SuiteOptions()


@gives_json("suite")
def suite(
    name: str, /, *, options: SuiteOptions = DEFAULT_OPTIONS, json: Json = False
) -> dict[str, Any]:
    """Run a grid of experiments side by side, and put its tables and figures on one page.

    table1, ablation, mismatch, subclasses and readings are the paper's tables, its figures and its
    open choices, and merged has classes that are mixed; a YAML file names a suite of your own. What
    is finished is kept, whichever suite ran it; a suite that was stopped or killed goes on with the
    same command.

    For example:

        protofission suite table1 --seeds 5
        protofission suite ablation --dataset cifar10 --budget 0.5
        protofission suite mismatch --dry-run
        protofission suite table1 --seeds 5 --only orca orca+pf
        protofission suite own.yaml --workers 1
        protofission suite table1 --on ray://head:10001

    Parameters
    ----------
    name
        table1, ablation, mismatch, subclasses, readings, merged, or a YAML file.
    """
    from rich.console import Console

    from protofission.experiments.suites.plan import plan_suite
    from protofission.experiments.suites.suite_console import show_plan, show_suite
    from protofission.experiments.suites.workers import worker_count
    from protofission.system.launch.launcher import find_launcher

    workers = worker_count(options.workers)
    plan = plan_suite(
        name,
        options.out,
        tier=options.tier,
        datasets=options.dataset,
        stores=options.stores,
        budget=options.budget,
        options=options.set_,
        seeds=options.seeds,
        first_seed=options.first_seed,
    )
    if options.dry_run:
        show_plan(plan.runs_of(options.only), workers, Console())
    else:
        launcher = None if options.on == "local" else find_launcher(options.on, options.workers)
        show_suite(plan, options.only, workers, command_line(), Console(), launcher)
    report = None if options.dry_run else plan.report
    return {"report": report, "runs": [_run_state(run) for run in plan.runs_of(options.only)]}


def _run_state(run: Run) -> dict[str, Any]:
    finished = run.folder.finished
    return {
        "row": run.case.row,
        "panel": run.case.panel,
        "x": run.case.x,
        "seed": run.seed,
        "run": run.folder.path,
        "finished": finished,
        "metrics": _metrics(run) if finished else None,
    }


def _metrics(run: Run) -> Any:
    """The metrics of a run, or None if they are damaged, which the report says."""
    try:
        return run.folder.plain("metrics")
    except InputError:
        return None


@gives_json("report")
def report(
    *runs: Path,
    out: Out = Path("report"),
    json: Json = False,
) -> dict[str, Any]:
    """Put runs that were made one by one into tables and figures, as a suite does.

    For example:

        protofission report runs/
        protofission report runs/orca-0 runs/orca-1 runs/pf-0 runs/pf-1 --out comparison

    Parameters
    ----------
    runs
        Folders of runs, or folders that hold some.
    out
        The folder of the page, the tables and the figures.
    """
    from protofission.experiments.report.suite_report import write_report
    from protofission.experiments.suites.from_runs import run_folders, suite_of_runs

    suite, found = suite_of_runs(run_folders(runs or (Path("runs"),)))
    written = write_report(out, suite, found, command_line())
    unfinished = sum(not run.folder.finished for run in found)
    if unfinished:
        print(f"{unfinished} of {len(found)} runs are not finished, and so not in the tables.")
    print(f"Written: {written[-1]}, and {len(written) - 1} tables and figures beside it.")
    return {"page": written[-1], "written": written, "runs": [_run_state(run) for run in found]}
