"""Runs of a method over seeds as one row: the same rows in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from protofission.experiments.report.results import Result, by_method
from protofission.experiments.report.statistics import Sample
from protofission.training.evaluate import Summary

NOTHING = "–"  # noqa: RUF001 - the dash of a table, not a minus
APART = 2.0
"""Points by which the two protocols of a run may differ without a word."""


@dataclass(frozen=True)
class Column:
    """One quantity of a run, and how it is written."""

    title: str
    protocol: str
    """The protocol that it depends on, or nothing."""
    value: Callable[[Summary], float]
    digits: int
    scale: float = 1.0

    def written(self, value: float) -> str:
        """A value as text."""
        return rounded(self.scale * value, self.digits)

    def shown(self, summary: Summary) -> float:
        """The quantity of a run, in the unit in which it is written."""
        return self.scale * self.value(summary)


COLUMNS: dict[str, Column] = {
    "seen": Column("seen", "", lambda s: s.strict.seen, 1, 100),
    "novel_orca": Column("novel", "orca", lambda s: s.orca.novel, 1, 100),
    "novel_strict": Column("novel", "strict", lambda s: s.strict.novel, 1, 100),
    "all_orca": Column("all", "orca", lambda s: s.orca.all, 1, 100),
    "all_strict": Column("all", "strict", lambda s: s.strict.all, 1, 100),
    "auc": Column("AUC", "", lambda s: s.auc, 3),
    "effective": Column("effective V", "", lambda s: s.prototypes.effective, 2),
}

QUANTITIES: dict[str, Column] = COLUMNS | {
    "aupr": Column("AUPR", "", lambda s: s.aupr, 3),
    "fpr95": Column("FPR95", "", lambda s: s.fpr95, 3),
    "nmi": Column("NMI", "", lambda s: s.nmi, 3),
    "dead": Column("dead slots", "", lambda s: s.prototypes.dead, 1),
    "slot_cosine": Column("cosine of slots", "", lambda s: s.prototypes.slot_cosine, 2),
    "sub_nmi": Column("sub-class NMI", "", lambda s: s.subclasses.nmi, 3),
    "nmi_gain": Column("NMI beyond k-means", "", lambda s: s.subclasses.nmi - s.subclusters.nmi, 3),
    "sub_accuracy": Column("sub-class accuracy", "", lambda s: s.subclasses.accuracy, 1, 100),
    "cluster_nmi": Column("k-means NMI", "", lambda s: s.subclusters.nmi, 3),
    "cluster_accuracy": Column("k-means accuracy", "", lambda s: s.subclusters.accuracy, 1, 100),
}
"""COLUMNS, and what some suites show beside or in the place of them."""

GLOSSARY: dict[str, str] = {
    "seen": "The share of known-class images that get their class, in percent.",
    "novel": "The share of stranger images whose cluster is the one matched with their class, "
    "in percent.",
    "all": "The same over all images, known and strangers, in percent.",
    "orca": "Protocol of ORCA's code: classes and heads are matched freely, so strangers may "
    "count as right on the head of a known class.",
    "strict": "Protocol of the paper's words: the head of a known class stands for that class "
    "alone, so a stranger on it is an error, as is a known image in a novel cluster.",
    "AUC": "The chance that a stranger looks more foreign than a known image: 0.5 is a guess, "
    "1 is perfect.",
    "effective V": "How many prototypes of a class are in real use, on average: from 1 (one does "
    "all the work) to V, the number it has.",
}


@dataclass(frozen=True)
class Row:
    """The numbers of one method."""

    name: str
    n: int
    """Seeds."""
    cells: dict[str, Sample]
    """By the keys of COLUMNS."""

    def texts(self, spread: str = " ± ") -> list[str]:
        """The cells as text, with their spread if there is more than one seed."""
        return [written(column, self.cells[key], spread) for key, column in COLUMNS.items()]


def rows(results: Sequence[Result]) -> list[Row]:
    """One row for each method, in the order in which the methods come."""
    table = []
    for method, group in by_method(results).items():
        cells = {
            key: Sample(tuple(column.value(result.summary) for result in group))
            for key, column in COLUMNS.items()
        }
        table.append(Row(method, len(group), cells))
    return table


def written(column: Column, sample: Sample, spread: str = " ± ") -> str:
    """A cell as text: 83.7, or 83.7 ± 2.1 over seeds."""
    return with_spread(sample.scaled(column.scale), column.digits, spread)


def with_spread(sample: Sample, digits: int, spread: str = " ± ") -> str:
    """A sample as text, in its own unit."""
    mean = rounded(sample.mean, digits)
    return mean if isnan(sample.sd) else mean + spread + rounded(sample.sd, digits)


def rounded(value: float, digits: int, sign: str = "") -> str:
    """A number as text, or a dash where there is none; the sign "+" writes that of all numbers."""
    return NOTHING if isnan(value) else f"{value:{sign}z.{digits}f}"


def spread_note(table: Sequence[Row]) -> str:
    """What the numbers are over, in words."""
    sizes = {row.n for row in table}
    if sizes == {1}:
        return "One seed: no spread to show."
    over = f"{sizes.pop()} seeds" if len(sizes) == 1 else "n seeds"
    return f"Mean ± sample standard deviation over {over}."


def terminal_table(table: Sequence[Row]) -> Table:
    """The rows for a terminal of 80 columns; a spread stands under its mean."""
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
    for column in COLUMNS.values():
        heading = [column.title.replace("effective ", "eff.\n"), column.protocol]
        shown.add_column("\n".join(filter(None, heading)), justify="right", no_wrap=True)
    for row in table:
        shown.add_row(Text(row.name), str(row.n), *row.texts("\n± "), end_section=several)
    return shown


def disagreements(table: Sequence[Row]) -> list[str]:
    """A sentence for each method with a run whose two protocols differ by over two points."""
    return [sentence for row in table if (sentence := _disagreement(row))]


def _disagreement(row: Row) -> str:
    gaps = {kind: _gaps(row, kind) for kind in ("novel", "all")}
    parts = [f"{max(gap):.1f} points in `{kind}`" for kind, gap in gaps.items() if _apart(gap)]
    if not parts:
        return ""
    seeds = sum(_apart(pair) for pair in zip(*gaps.values(), strict=True))
    where = f"in {seeds} of {row.n} seeds, by up to" if row.n > 1 else "by"
    cause = (
        "a novel class sits on a seen head"
        if _apart(gaps["novel"])
        else "a class sits on another's head"
    )
    return f"{row.name}: the two protocols differ {where} {' and '.join(parts)}: {cause}."


def _gaps(row: Row, kind: str) -> list[float]:
    """Points between the protocols, for each seed; none where there is nothing to judge."""
    pairs = zip(row.cells[f"{kind}_orca"].values, row.cells[f"{kind}_strict"].values, strict=True)
    gaps = [round(100 * abs(orca - strict), 9) for orca, strict in pairs]
    return [0.0 if isnan(gap) else gap for gap in gaps]


def _apart(gaps: Sequence[float]) -> bool:
    return any(gap > APART for gap in gaps)
