"""The table of methods, a row each over its seeds: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from protofission.experiments.report.quantities import RUN_COLUMNS, cell_text
from protofission.experiments.report.results import Result, by_method
from protofission.experiments.report.statistics import Sample

LARGEST_GAP = 2.0
"""Largest difference of a run's two protocols that needs no note, in points."""


@dataclass(frozen=True)
class MethodRow:
    """The numbers of one method."""

    name: str
    n: int
    """Number of seeds."""
    cells: dict[str, Sample]
    """Cells by the keys of RUN_COLUMNS."""

    def texts(self, spread: str = " ± ") -> list[str]:
        """The cells as text, with their spread if there is more than one seed."""
        return [cell_text(column, self.cells[key], spread) for key, column in RUN_COLUMNS.items()]


def method_rows(results: Sequence[Result]) -> list[MethodRow]:
    """A row for each method, in the order of the results."""
    table = []
    for method, group in by_method(results).items():
        cells = {
            key: Sample(tuple(column.value(result.metrics) for result in group))
            for key, column in RUN_COLUMNS.items()
        }
        table.append(MethodRow(method, len(group), cells))
    return table


def spread_note(table: Sequence[MethodRow]) -> str:
    """The caption of the table: mean and deviation over how many seeds."""
    sizes = {row.n for row in table}
    if sizes == {1}:
        return "One seed: no spread to show."
    over = f"{sizes.pop()} seeds" if len(sizes) == 1 else "n seeds"
    return f"Mean ± sample standard deviation over {over}."


def terminal_table(table: Sequence[MethodRow]) -> Table:
    """The table for a terminal of 80 columns; a spread stands under its mean."""
    several = any(row.n > 1 for row in table)
    shown = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        caption=spread_note(table),
        caption_justify="left",
    )
    shown.add_column("method", overflow="fold")
    shown.add_column("n", justify="right")
    for column in RUN_COLUMNS.values():
        heading = [column.title.replace("effective ", "eff.\n"), column.protocol]
        shown.add_column("\n".join(filter(None, heading)), justify="right", no_wrap=True)
    for row in table:
        shown.add_row(Text(row.name), str(row.n), *row.texts("\n± "), end_section=several)
    return shown


def disagreements(table: Sequence[MethodRow]) -> list[str]:
    """A sentence for each method with a run whose two protocols differ by over two points."""
    return [sentence for row in table if (sentence := _disagreement(row))]


def _disagreement(row: MethodRow) -> str:
    gaps = {kind: _gaps(row, kind) for kind in ("novel", "all")}
    parts = [f"{max(gap):.1f} points in `{kind}`" for kind, gap in gaps.items() if _any_large(gap)]
    if not parts:
        return ""
    seeds = sum(_any_large(pair) for pair in zip(*gaps.values(), strict=True))
    where = f"in {seeds} of {row.n} seeds, by up to" if row.n > 1 else "by"
    cause = (
        "a novel class sits on a seen head"
        if _any_large(gaps["novel"])
        else "a class sits on another's head"
    )
    return f"{row.name}: the two protocols differ {where} {' and '.join(parts)}: {cause}."


def _gaps(row: MethodRow, kind: str) -> list[float]:
    """Points between the protocols, for each seed; none where there is nothing to judge."""
    pairs = zip(row.cells[f"{kind}_orca"].values, row.cells[f"{kind}_strict"].values, strict=True)
    gaps = [round(100 * abs(orca - strict), 9) for orca, strict in pairs]
    return [0.0 if isnan(gap) else gap for gap in gaps]


def _any_large(gaps: Sequence[float]) -> bool:
    return any(gap > LARGEST_GAP for gap in gaps)
