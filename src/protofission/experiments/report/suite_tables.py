"""The tables of a suite, before they become HTML, Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil, isnan, log10

from protofission.experiments.report.quantities import (
    NO_NUMBER,
    Column,
    number_text,
    spread_text,
)
from protofission.experiments.report.statistics import Sample
from protofission.experiments.report.suite_grid import SUMMARIES, Grid

WIDEST = 8
"""Most columns of numbers on a sheet of paper."""
NOT_RUN = "not run"
SPREAD = (
    "Mean ± sample standard deviation over seeds; in brackets, the 95 % interval of the mean "
    "(Student's t)."
)


@dataclass(frozen=True)
class Cell:
    """A number of a table."""

    text: str
    notes: tuple[str, ...] = ()
    """Small lines under it."""
    anchor: str = ""
    """The anchor of the list of its runs; empty if it has none."""


@dataclass(frozen=True)
class Line:
    """A row of a table: labels and numbers."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table, before it takes a format."""

    title: str
    caption: str
    corner: tuple[str, ...]
    """Titles of the columns of labels."""
    groups: tuple[tuple[str, int], ...]
    """Titles over some columns each, and over how many; none if there are no groups."""
    heads: tuple[tuple[str, str], ...]
    """The title of each column, and its protocol."""
    lines: tuple[Line, ...]

    @property
    def shows_groups(self) -> bool:
        """Whether to show the groups: their titles are not all in that of the table."""
        return any(title not in self.title for title, _ in self.groups) or len(self.groups) > 1


def anchors(grid: Grid) -> dict[tuple[str, str, float | None], str]:
    """The anchors of the lists of runs, by place."""
    return {place: f"case-{number}" for number, place in enumerate(grid.entries, 1)}


def x_text(x: float | None) -> str:
    """x as text; empty if there is none."""
    return "" if x is None else f"{x:g}"


def result_tables(grid: Grid) -> list[Table]:
    """Rows by panels and quantities, or, along an axis, rows by x for each panel."""
    if grid.suite.axis:
        return [_along_axis(grid, panel) for panel in grid.panels]
    return [_by_panel(grid, some) for some in _by_width(grid.panels, 1 + len(grid.columns))]


def _by_width(panels: list[str], columns: int) -> list[list[str]]:
    """Panels of so many columns each, in groups that fit a sheet of paper."""
    number = max(1, WIDEST // columns)
    return [panels[start : start + number] for start in range(0, len(panels), number)]


def _by_panel(grid: Grid, panels: list[str]) -> Table:
    columns = grid.columns
    heads = (("n", ""), *((column.title, column.protocol) for column in columns.values()))
    return Table(
        title="Results on " + ", ".join(panels),
        caption=f"{_unit(columns.values())}{SPREAD} n is the number of seeds.",
        corner=("",),
        groups=tuple((panel, len(heads)) for panel in panels),
        heads=heads * len(panels),
        lines=tuple(
            Line((row,), tuple(cell for panel in panels for cell in _panel_cells(grid, row, panel)))
            for row in grid.rows_on(*panels)
        ),
    )


def _panel_cells(grid: Grid, row: str, panel: str) -> Iterator[Cell]:
    """The number of seeds of a row on a panel, then its quantities."""
    entry = grid.entry(row, panel)
    done, asked = len(entry.finished), len(entry.runs)
    anchor = anchors(grid).get((row, panel, None), "")
    yield Cell(str(done), (f"of {asked} seeds",) if done < asked else (), anchor)
    for key, column in grid.columns.items():
        notes = _paper(column, grid.paper(row, panel, key))
        yield _cell(entry.sample(key), column.digits, anchor, notes)


def _along_axis(grid: Grid, panel: str) -> Table:
    key = grid.suite.quantities[0]
    column, places, anchor = grid.columns[key], grid.along(panel), anchors(grid)
    lines = []
    for row in grid.rows_on(panel):
        entries = {x: grid.entry(row, panel, x) for x in places}
        cells = (
            _cell(
                entry.sample(key),
                column.digits,
                anchor.get((row, panel, x), ""),
                (_seeds(len(entry.finished), len(entry.runs)),),
            )
            for x, entry in entries.items()
        )
        lines.append(Line((row,), tuple(cells)))
    return Table(
        title=f"{column.full_title} on {panel}",
        caption=f"{_unit([column])}{SPREAD}",
        corner=("",),
        groups=((grid.suite.axis, len(places)),),
        heads=tuple((x_text(x), "") for x in places),
        lines=tuple(lines),
    )


def difference_table(grid: Grid) -> Table:
    """Pairs of rows by panel; along an axis, of the first quantity at each x."""
    first = grid.suite.quantities[0]
    if grid.suite.axis:
        everywhere = dict.fromkeys(x for panel in grid.panels for x in grid.along(panel))
        places = [(x, first) for x in sorted(everywhere, key=lambda x: x or 0.0)]
        heads = tuple((x_text(x), "") for x, _ in places)
        groups: tuple[tuple[str, int], ...] = ((grid.suite.axis, len(places)),)
        subject = f"Of {grid.columns[first].full_title}: row"
    else:
        places = [(None, key) for key in grid.columns]
        heads = tuple((column.title, column.protocol) for column in grid.columns.values())
        groups, subject = (), "Row"
    lines = [
        Line(
            (row, base, panel),
            tuple(_difference_cell(grid, row, base, panel, x, key) for x, key in places),
        )
        for row, base, panel in grid.comparisons
    ]
    return Table(
        title="Differences",
        caption=f"{subject} minus the row it is compared with, seed by seed: the mean of the "
        "differences; in brackets, its 95 % interval; n pairs of runs with one seed. Above or "
        "below: the interval lies on one side of 0. Not told apart: it holds 0, or one pair "
        "gives none.",
        corner=("", "against", "on"),
        groups=groups,
        heads=heads,
        lines=tuple(lines),
    )


def _difference_cell(
    grid: Grid, row: str, base: str, panel: str, x: float | None, key: str
) -> Cell:
    sample, digits = grid.difference(row, base, panel, x, key), grid.columns[key].digits
    if not sample.n:
        return Cell(NOT_RUN)
    anchor = anchors(grid).get((row, panel, x), "")
    return _difference(sample, digits, anchor)


def _difference(sample: Sample, digits: int, anchor: str) -> Cell:
    if isnan(sample.mean):
        return Cell(NO_NUMBER, (f"n = {sample.n}",), anchor)
    notes = (*_brackets(sample, digits, "+"), sample.against_zero, f"n = {sample.n}")
    return Cell(number_text(sample.mean, digits, "+"), notes, anchor)


def curve_tables(grid: Grid) -> list[Table]:
    """The summaries of each row's curve on each panel."""
    return [_summary_table(grid, some) for some in _by_width(grid.panels, len(SUMMARIES))]


def _summary_table(grid: Grid, panels: list[str]) -> Table:
    column = grid.columns[grid.suite.quantities[0]]
    return Table(
        title="Curves in three numbers on " + ", ".join(panels),
        caption=f"Of {column.full_title} along {grid.suite.axis}, computed for each seed that has "
        "the whole curve. Area: the mean height (trapezoid rule). Worst: the lowest point. Slope: "
        f"the gain with a unit of {grid.suite.axis} (least squares). {SPREAD}",
        corner=("",),
        groups=tuple((panel, len(SUMMARIES)) for panel in panels),
        heads=tuple((name, "") for name in SUMMARIES) * len(panels),
        lines=tuple(
            Line(
                (row if base is None else f"{row} minus {base}",),
                tuple(cell for panel in panels for cell in _curve_cells(grid, row, base, panel)),
            )
            for row, base in (*((row, None) for row in grid.rows), *grid.suite.pairs)
        ),
    )


def _curve_cells(grid: Grid, row: str, base: str | None, panel: str) -> Iterator[Cell]:
    """The summaries of a row's curve, or their differences to those of its base."""
    places = [x for x in grid.along(panel, row) if x is not None]
    anchor = anchors(grid).get((row, panel, places[0]), "") if places else ""
    digits = grid.columns[grid.suite.quantities[0]].digits
    width = max(places) - min(places) if places else 0
    begun = any(grid.entry(row, panel, x).finished for x in places)
    partly = ("not all points",) if begun else ()
    finer = max(0, ceil(log10(width))) if width > 0 else 0
    sums = grid.curve(row, panel) if base is None else grid.curve_difference(row, base, panel)
    for name, sample in sums.items():
        own = digits + finer * (name == "slope")
        if base is not None and sample.n:
            yield _difference(sample, own, anchor)
        else:
            notes = (f"n = {sample.n}",) if sample.n else partly
            yield _cell(sample, own, anchor, notes)


def _cell(sample: Sample, digits: int, anchor: str, notes: tuple[str, ...]) -> Cell:
    if not sample.n:
        return Cell(NOT_RUN, notes, anchor)
    return Cell(spread_text(sample, digits), (*_brackets(sample, digits), *notes), anchor)


def _brackets(sample: Sample, digits: int, sign: str = "") -> tuple[str, ...]:
    """The interval, if there is one."""
    if isnan(sample.interval):
        return ()
    low, high = (number_text(end, digits, sign) for end in sample.ends)
    return (f"[{low}, {high}]",)


def _paper(column: Column, number: float) -> tuple[str, ...]:
    return () if isnan(number) else (f"paper {number_text(number, column.digits)}",)


def _seeds(finished: int, asked: int) -> str:
    """The number of seeds, with that of the runs asked for if some are missing."""
    return f"n = {finished}" if finished == asked else f"{finished} of {asked} seeds"


def _unit(columns: Iterable[Column]) -> str:
    return "Accuracies in percent. " if any(column.scale == 100 for column in columns) else ""
