"""Suites whose runs are written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from protofission.core.metrics import Accuracy, PrototypeHealth
from protofission.experiments.suite import Case, Run, Suite
from protofission.system.json_files import to_json
from protofission.training.run_folder import RunFolder
from protofission.training.run_metrics import RunMetrics

HOSTILE = '<b>|=1+1&"x"_%'
ROWS = ("orca", "orca+pf", "fixmatch", HOSTILE)


def run_metrics(seen: float, novel: float, every: float, auc: float = 0.9) -> RunMetrics:
    """Metrics with given accuracies, the same in both protocols."""
    accuracy = Accuracy(seen, novel, every)
    health = PrototypeHealth(0.1, 2.25, 0, 0.3, 0.5)
    return RunMetrics(accuracy, accuracy, auc, 0.9, 0.1, 0.5, 0.5, health)


def finish(run: Run, numbers: RunMetrics) -> None:
    """Write the folder of a finished run."""
    run.folder.write("metrics.json", to_json(asdict(numbers)))
    run.folder.write("finished", "")


def case(row: str, panel: str = "digits", x: float | None = None) -> Case:
    return Case(row, panel, "orca", "digits", ("optimizer.lr=0.1",), x)


def runs_of(
    parent: Path,
    suite: Suite,
    seeds: Iterable[int],
    numbers: Callable[[Case, int], RunMetrics | None],
) -> list[Run]:
    """The runs of a suite; those without numbers are not run."""
    runs = []
    for seed in seeds:
        for place, one in enumerate(suite.cases):
            run = Run(one, seed, RunFolder(parent / f"case {place}%-seed{seed}"))
            made = numbers(one, seed)
            if made is not None:
                finish(run, made)
            runs.append(run)
    return runs


def table_suite(panels: tuple[str, ...] = ("CIFAR-10", "CIFAR-100")) -> Suite:
    """Four rows by two panels."""
    return Suite(
        "table1",
        "Seen, novel and all <classes>",
        tuple(case(row, panel) for panel in panels for row in ROWS),
        ("seen", "novel_strict", "all_strict", "auc"),
        pairs=(("orca+pf", "orca"), (HOSTILE, "fixmatch")),
        published={
            ("orca", "CIFAR-10"): {"seen": 0.882, "novel_strict": 0.904, "all_strict": 0.897},
            ("orca+pf", "CIFAR-10"): {"seen": 0.911, "novel_strict": 0.930, "all_strict": 0.924},
            ("orca", "CIFAR-100"): {"all_strict": 0.481},
            ("fixmatch", "CIFAR-100"): {"all_strict": 0.203},
        },
        note="Half of the classes are known; half of their images are labeled.",
    )


def curve_suite() -> Suite:
    """Three rows along an axis, on two panels."""
    cases = [
        case(row, panel, x)
        for panel in ("CIFAR-10", "digits & <letters>")
        for x in (0.0, 0.2, 0.4, 0.6, 0.8)
        for row in ("orca", "orca+pf", HOSTILE)
    ]
    return Suite(
        "mismatch",
        "Accuracy under mismatch",
        tuple(cases),
        ("seen", "auc"),
        pairs=(("orca+pf", "orca"),),
        axis="share of strangers",
    )


def table_runs(parent: Path, suite: Suite, seeds: int = 5) -> list[Run]:
    """One row of a panel without runs, another with three seeds of five."""

    def numbers(one: Case, seed: int) -> RunMetrics | None:
        if (one.row, one.panel) == ("fixmatch", "CIFAR-100"):
            return None
        if (one.row, one.panel) == ("orca+pf", "CIFAR-100") and seed > 2:
            return None
        noise = np.random.default_rng([ROWS.index(one.row), seed, len(one.panel)])
        base = (0.9 if one.panel == "CIFAR-10" else 0.5) + 0.02 * ROWS.index(one.row)
        seen, novel, every, auc = base + 0.008 * noise.standard_normal(4)
        return run_metrics(min(seen, 1), min(novel, 1), min(every, 1), min(auc, 1))

    return runs_of(parent, suite, range(seeds), numbers)


def curve_runs(parent: Path, suite: Suite, seeds: int = 5) -> list[Run]:
    """Curves that fall; one point of the hostile row is not run."""

    def numbers(one: Case, seed: int) -> RunMetrics | None:
        assert one.x is not None
        if one.row == HOSTILE and one.x == 0.6:
            return None
        steep = {"orca": 0.3, "orca+pf": 0.1}.get(one.row, 0.5)
        noise = np.random.default_rng([seed, round(10 * one.x), len(one.row)])
        return run_metrics(0.95 - steep * one.x + 0.01 * noise.standard_normal(), 0.5, 0.5)

    return runs_of(parent, suite, range(seeds), numbers)
