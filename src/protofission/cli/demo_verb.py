"""The verb demo."""

from __future__ import annotations

from pathlib import Path

from protofission.cli.arguments import Names, Out, Set, Whole, command_line


def demo(
    *,
    out: Out = Path("demo"),
    seeds: Whole = 1,
    first_seed: Whole = 0,
    methods: Names = (),
    preset: str = "digits",
    set_: Set = (),
) -> None:
    """Train on scikit-learn's digits, 0-4 known and 5-9 strangers, and show what comes out.

    Pretrains a small backbone, trains ORCA and FixMatch-Sigmoid, each without and with prototype
    fission, prints one table and writes one page. A minute or two on two cores; finished runs
    are kept, so that an interrupted demo goes on where it was.

    For example:

        protofission demo
        protofission demo --seeds 5 --out five-seeds
        protofission demo --methods orca orca+pf --set head.prototypes=3
        protofission demo --preset digits/literal --set method.entropy_weight=2

    Parameters
    ----------
    out
        The folder for the page and the runs.
    seeds
        How many seeds; with more than one, the table shows mean and spread.
    first_seed
        The first of them.

    Methods:
        Which methods, by name; `protofission methods` lists them.
    preset
        The named experiment to start from: digits, or digits/literal for the paper's words.
    set_
        key=value changes an option of all methods that have it, METHOD:key=value of one.
    """
    from rich.console import Console

    from protofission.experiments.demo import USUAL, plan, run_demo

    jobs = plan(out / "runs", methods or USUAL, preset, set_, seeds, first_seed)
    command = command_line()
    run_demo(jobs, out / "report.html", command, Console())
