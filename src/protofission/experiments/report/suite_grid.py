"""The grid of a suite: a sample for each row, panel and x, differences, summaries of curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from protofission.core.array_types import Floats
from protofission.core.errors import InputError
from protofission.experiments.report.quantities import QUANTITIES, Column
from protofission.experiments.report.statistics import Sample, paired_differences
from protofission.experiments.suite import Case, Run, Suite

Place = tuple[str, str, float | None]
"""Row, panel and x."""


def area(x: Floats, heights: Floats) -> Floats:
    """(S,): the mean height of each curve over x, by the trapezoid rule."""
    if len(x) < 2:
        return np.full(len(heights), np.nan)
    return np.asarray(np.trapezoid(heights, x, axis=1) / (x[-1] - x[0]))


def worst(x: Floats, heights: Floats) -> Floats:
    """(S,): the lowest height of each curve."""
    return np.asarray(heights.min(axis=1))


def slope(x: Floats, heights: Floats) -> Floats:
    """(S,): what each curve gains with a unit of x, by least squares."""
    if len(x) < 2:
        return np.full(len(heights), np.nan)
    offsets = x - x.mean()
    return np.asarray(heights @ offsets / (offsets @ offsets))


SUMMARIES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "area": area,
    "worst": worst,
    "slope": slope,
}
"""Functions of rising x (X,) and curves (S, X): one number per curve."""


@dataclass(frozen=True)
class GridEntry:
    """A place of the grid: its runs, and the numbers of the finished ones."""

    runs: tuple[Run, ...] = ()
    finished: tuple[Run, ...] = ()
    numbers: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Numbers by quantity and seed, in the unit that is shown."""

    def by_seed(self, quantity: str) -> Mapping[int, float]:
        """A quantity, for each seed that is finished."""
        return self.numbers.get(quantity, {})

    def sample(self, quantity: str) -> Sample:
        """A quantity over the seeds that are finished."""
        return Sample(tuple(self.by_seed(quantity).values()))

    @property
    def state(self) -> str:
        """finished, not run, or how many seeds are finished."""
        if not self.finished:
            return "not run"
        if len(self.finished) < len(self.runs):
            return f"{len(self.finished)} of {len(self.runs)} seeds"
        return "finished"


@dataclass(frozen=True)
class Grid:
    """The entries of a suite by row, panel and x."""

    suite: Suite
    entries: Mapping[Place, GridEntry]

    @cached_property
    def rows(self) -> list[str]:
        """The rows, in the order of the cases; then those of the paper that were not run."""
        return self._all(0, [case.row for case in self.suite.cases])

    @cached_property
    def panels(self) -> list[str]:
        """The panels, in the order of the cases; then those of the paper that were not run."""
        return self._all(1, [case.panel for case in self.suite.cases])

    def _all(self, part: int, own: list[str]) -> list[str]:
        published = [] if self.suite.axis else [place[part] for place in self.suite.published]
        return list(dict.fromkeys(own + published))

    def rows_on(self, *panels: str) -> list[str]:
        """The rows that have a case on one of these panels, or a number of the paper."""
        there = {case.row for case in self.suite.cases if case.panel in panels}
        there |= {row for row, panel in self.suite.published if panel in panels}
        return [row for row in self.rows if row in there]

    @property
    def run_panels(self) -> list[str]:
        """The panels that have cases."""
        return list(dict.fromkeys(case.panel for case in self.suite.cases))

    @property
    def comparisons(self) -> list[tuple[str, str, str]]:
        """(row, row it is compared with, panel), where the suite has cases of both."""
        there = {(case.row, case.panel) for case in self.suite.cases}
        return [
            (row, base, panel)
            for row, base in self.suite.pairs
            for panel in self.run_panels
            if (row, panel) in there and (base, panel) in there
        ]

    @property
    def columns(self) -> dict[str, Column]:
        """The quantities that the suite shows."""
        return {key: QUANTITIES[key] for key in self.suite.quantities}

    def along(self, panel: str, row: str | None = None) -> list[float | None]:
        """The x of a panel, or of one of its rows, ascending; None if there is no axis."""
        found = {c.x for c in self.suite.cases if c.panel == panel and row in (None, c.row)}
        return sorted(found, key=lambda x: -np.inf if x is None else x)

    def entry(self, row: str, panel: str, x: float | None = None) -> GridEntry:
        """The entry of a place; one without runs if the suite has no such case."""
        return self.entries.get((row, panel, x), GridEntry())

    def paper(self, row: str, panel: str, quantity: str) -> float:
        """The paper's number in the unit that is shown, or NaN; a point of a curve has none."""
        numbers = {} if self.suite.axis else self.suite.published.get((row, panel), {})
        # Rounded, for 100 times 0.58 is not quite the 58 that the paper prints.
        return round(self.columns[quantity].scale * numbers.get(quantity, np.nan), 9)

    def difference(self, row: str, base: str, panel: str, x: float | None, quantity: str) -> Sample:
        """A quantity of a row minus that of its base, seed by seed."""
        first, second = (self.entry(name, panel, x).by_seed(quantity) for name in (row, base))
        return paired_differences(first, second)

    def curve(self, row: str, panel: str) -> dict[str, Sample]:
        """SUMMARIES of the first quantity's curve, over the seeds that have all of it."""
        return {
            name: Sample(tuple(by_seed.values()))
            for name, by_seed in self._curve(row, panel).items()
        }

    def curve_difference(self, row: str, base: str, panel: str) -> dict[str, Sample]:
        """SUMMARIES of a row's curve minus those of its base, seed by seed."""
        first, second = self._curve(row, panel), self._curve(base, panel)
        return {name: paired_differences(first[name], second[name]) for name in SUMMARIES}

    def _curve(self, row: str, panel: str) -> dict[str, dict[int, float]]:
        """SUMMARIES by seed."""
        x = [place for place in self.along(panel, row) if place is not None]
        points = [self.entry(row, panel, place).by_seed(self.suite.quantities[0]) for place in x]
        whole = [seed for seed in points[0] if all(seed in p for p in points)] if points else []
        heights = np.array([[point[seed] for point in points] for seed in whole])
        heights = heights.reshape(len(whole), len(x))
        return {
            name: dict(zip(whole, summary(np.array(x), heights).tolist(), strict=True))
            if whole
            else {}
            for name, summary in SUMMARIES.items()
        }


def place_of(case: Case) -> Place:
    """Row, panel and x of a case."""
    return case.row, case.panel, case.x


def grid_of(suite: Suite, runs: Sequence[Run]) -> Grid:
    """The grid of a suite with the numbers of its finished runs; each folder is read once."""
    found: dict[Place, list[Run]] = {place_of(case): [] for case in suite.cases}
    for run in runs:
        found[place_of(run.case)].append(run)
    return Grid(suite, {place: _entry(suite, some) for place, some in found.items()})


def _entry(suite: Suite, runs: Sequence[Run]) -> GridEntry:
    summaries = {}
    for run in runs:
        with suppress(InputError):  # a damaged one counts as not finished, and is listed as damaged
            if run.folder.finished:
                summaries[run.seed] = run.folder.metrics()
    finished = tuple(run for run in runs if run.seed in summaries)
    numbers = {
        key: {seed: QUANTITIES[key].scaled_value(summary) for seed, summary in summaries.items()}
        for key in suite.quantities
    }
    return GridEntry(tuple(runs), finished, numbers)
