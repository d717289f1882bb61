"""A suite by its name or file, with its setting, its runs and the folder of its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from protofission.core.errors import unknown
from protofission.core.rng import seed_range
from protofission.experiments.suite import Run, Suite
from protofission.experiments.suites import find_suite
from protofission.experiments.suites.setting import Setting, Tier
from protofission.experiments.suites.yaml_suite import YamlSuite
from protofission.methods import title_of

DEFAULT_SEEDS = 3


@dataclass(frozen=True)
class SuitePlan:
    """A suite in a setting, and where its runs and its report are or will be."""

    suite: Suite
    setting: Setting
    runs: list[Run]
    report: Path

    def runs_of(self, rows: Sequence[str]) -> list[Run]:
        """The runs of some rows, or all if none is named."""
        known = {case.row for case in self.suite.cases}
        rows = [row if row in known else title_of(row) for row in rows]
        for row in rows:
            if row not in known:
                raise unknown("row", row, known)
        return [run for run in self.runs if not rows or run.case.row in rows]


def plan_suite(
    name: str,
    out: Path,
    *,
    tier: Tier | None = None,
    datasets: tuple[str, ...] = (),
    stores: Path = Setting.stores,
    budget: float = 1.0,
    options: tuple[str, ...] = (),
    seeds: int | None = None,
    first_seed: int = 0,
) -> SuitePlan:
    """Plan a suite of the paper by its name, or one's own by its YAML file.

    What is not given is as the file says; if it does not say, as `Setting` has it, with 3 seeds.

    Args:
        out: the folder of all suites: their runs are in `runs`, each report is in a folder.
        budget: the share of the epochs of the full suite.
        options: `key=value` for all cases that have the key.
        seeds: how many, from `first_seed` on.
    """
    own = YamlSuite.read(Path(name)) if name.endswith((".yaml", ".yml")) else None
    tier = tier or (Setting.tier if own is None else own.tier)
    setting = Setting(tier, datasets or Setting.datasets, stores, budget, options)
    if own is None:
        suite = find_suite(name, setting)
    else:
        setting = own.setting(setting, keep_datasets=bool(datasets))
        suite = own.suite(setting)
        seeds = own.seeds if seeds is None else seeds
    setting.check(suite)
    suite = replace(suite, note=f"{setting.sentence} {suite.note}".strip())
    runs = suite.runs(
        out / "runs", seed_range(DEFAULT_SEEDS if seeds is None else seeds, first_seed)
    )
    report = out / (suite.name if tier == "features" else f"{suite.name}-{tier}")
    return SuitePlan(suite, setting, runs, report)
