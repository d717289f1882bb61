"""Tables of the comparison from its lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t

from practice_parts.baselines import BASELINES
from practice_parts.cells import Floats

Row = dict[str, Any]
Key = tuple[Any, ...]

OURS, OLD = "fit", "older fit"
LEVEL = 0.01
"""Differences up to this, of AUC or of accuracy, are level."""
COLUMNS = {
    "AUC": ("auc", 3),
    "accuracy": ("accuracy", 1),
    "FPR95": ("fpr95", 1),
    "rejected where 95 % are kept": ("rejected95", 1),
    "ECE": ("ece", 3),
    "clusters": ("clusters", 1),
    "strangers named": ("named", 1),
    "seconds": ("seconds", 1),
}
"""Quantities and digits; those with one digit are in percent, but for seconds."""


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    heads: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.heads, ["---"] * len(self.heads), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def plain(self) -> dict[str, Any]:
        return {"heads": self.heads, "rows": self.rows}


def shown(rows: Iterable[Row], quantity: str, digits: int) -> str:
    """The mean of a quantity over rows that have it."""
    values = [row[quantity] for row in rows if row.get(quantity) is not None]
    if not values:
        return ""
    factor = 100 if digits == 1 and quantity != "seconds" else 1
    return f"{factor * np.mean(values):.{digits}f}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


class Results:
    """Lines of cells in which all methods were done."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.failed = [row for row in rows if "error" in row]
        found: dict[Key, dict[str, Row]] = defaultdict(dict)
        for row in rows:
            if "error" not in row:
                found[cell_of(row)][row["method"]] = row
        names = {name for cell in found.values() for name in cell}
        self.methods = [name for name in (OURS, OLD, *BASELINES) if name in names]
        self.cells = {key: cell for key, cell in sorted(found.items()) if len(cell) == len(names)}
        self.left_out = len(found) - len(self.cells)
        self.baselines = [name for name in self.methods if name not in (OURS, OLD)]

    def rows(self, method: str, **wanted: Any) -> list[Row]:
        """The lines of a method, in cells with these values."""
        return [
            cell[method]
            for cell in self.cells.values()
            if method in cell and all(cell[method][name] == v for name, v in wanted.items())
        ]

    def values(self, name: str) -> list[Any]:
        """The values of a field, such as share, in order."""
        return sorted({row[name] for cell in self.cells.values() for row in cell.values()})


def cell_of(row: Row) -> Key:
    return row["set"], row["labels"], row["share"], row["draw"]


def by_method(results: Results) -> Table:
    """A row for each method: means over all cells."""
    lines = [
        [
            method,
            *(
                shown(results.rows(method), quantity, digits)
                for quantity, digits in COLUMNS.values()
            ),
        ]
        for method in results.methods
    ]
    return Table([f"{len(results.cells)} cells", *COLUMNS], lines)


def by_field(results: Results, quantity: str, digits: int, field: str) -> Table:
    """Means of a quantity: a row for each method, a column for each value of a field."""
    values = results.values(field)
    heads = [percent(v) if field == "share" else str(v) for v in values]
    lines = [
        [m, *(shown(results.rows(m, **{field: v}), quantity, digits) for v in values)]
        for m in results.methods
    ]
    return Table(["", *heads], lines)


def by_set_and_share(results: Results, quantity: str, digits: int) -> Table:
    """Means over draws and labels: a row for each set and share, a column for each method."""
    lines = [
        [
            name,
            percent(share),
            *(
                shown(results.rows(m, set=name, share=share), quantity, digits)
                for m in results.methods
            ),
        ]
        for name in results.values("set")
        for share in results.values("share")
        if results.rows(OURS, set=name, share=share)
    ]
    return Table(["set", "strangers", *results.methods], lines)


@dataclass(frozen=True)
class Match:
    """Ours and the best baseline of a cell, for one quantity."""

    cell: Key
    ours: float
    best: float
    by: str

    @property
    def outcome(self) -> int:
        """1 better, 0 level, -1 worse."""
        gap = self.ours - self.best
        return 0 if abs(gap) <= LEVEL + 1e-9 else int(np.sign(gap))


def matches(results: Results, quantity: str, *, single: bool) -> list[Match]:
    """Every cell against the best of all baselines there: single draws, or their means."""
    groups: dict[Key, list[Key]] = defaultdict(list)
    for key in results.cells:
        groups[key if single else key[:3]].append(key)
    found = []
    for group, keys in groups.items():
        means = {
            m: float(np.mean([results.cells[key][m][quantity] for key in keys]))
            for m in (OURS, *results.baselines)
        }
        best = max(results.baselines, key=means.__getitem__)
        found.append(Match(group, means[OURS], means[best], best))
    return found


def against_best(results: Results) -> Table:
    """Cells in which ours is better than, level with or worse than the best baseline."""
    heads = ["", "cells"]
    for name in ("AUC", "accuracy"):
        heads += [f"{name}: better", "level", "worse", "best or level"]
    lines: list[list[str]] = []

    def add(title: str, single: bool, keep: Callable[[Key], bool]) -> None:
        line = [title]
        for quantity in ("auc", "accuracy"):
            mine = [m.outcome for m in matches(results, quantity, single=single) if keep(m.cell)]
            if not mine:
                return
            counts = [mine.count(outcome) for outcome in (1, 0, -1)]
            line += [] if len(line) > 1 else [str(len(mine))]
            line += [*map(str, counts), percent(1 - counts[2] / len(mine))]
        lines.append(line)

    add("all, means over draws", False, lambda cell: True)
    add("all, single draws", True, lambda cell: True)
    for name in results.values("set"):
        add(f"{name}, means over draws", False, lambda cell, name=name: cell[0] == name)
    for share in results.values("share"):
        add(f"{percent(share)} strangers", False, lambda cell, share=share: cell[2] == share)
    for number in results.values("labels"):
        add(f"{number} labels", False, lambda cell, number=number: cell[1] == number)
    return Table(heads, lines)


def against_each(results: Results) -> Table:
    """Mean difference from each baseline over all cells, with a 95 % interval over sets."""
    lines = []
    for name in results.baselines:
        line = [name]
        for quantity, digits in (("auc", 3), ("accuracy", 1)):
            factor = 100 if digits == 1 else 1
            by_set: dict[str, list[float]] = defaultdict(list)
            for key, cell in results.cells.items():
                by_set[key[0]].append(factor * (cell[OURS][quantity] - cell[name][quantity]))
            means = np.array([np.mean(gaps) for gaps in by_set.values()])
            line.append(f"{means.mean():+.{digits}f}{_interval(means, digits)}")
        lines.append(line)
    return Table([f"{len(results.values('set'))} sets", "AUC", "accuracy"], lines)


def _interval(means: Floats, digits: int) -> str:
    """The 95 % interval of the mean of means, as a text; empty for a single one."""
    if len(means) < 2:
        return ""
    half = t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / len(means) ** 0.5
    return f" [{means.mean() - half:+.{digits}f}, {means.mean() + half:+.{digits}f}]"


def losses(results: Results) -> Table:
    """Cells, means over draws, in which a baseline is better by more than LEVEL."""
    lines = []
    for title, quantity, digits in (("AUC", "auc", 3), ("accuracy", "accuracy", 1)):
        factor = 100 if digits == 1 else 1
        worse = [m for m in matches(results, quantity, single=False) if m.outcome < 0]
        for m in sorted(worse, key=lambda m: m.ours - m.best):
            numbers = [f"{factor * value:.{digits}f}" for value in (m.ours, m.best)]
            lines.append([title, m.cell[0], str(m.cell[1]), percent(m.cell[2]), *numbers, m.by])
    return Table(["", "set", "labels", "strangers", OURS, "best baseline", "which"], lines)


def kept(results: Results) -> Table:
    """Known images kept against promised, and strangers rejected, at the method's threshold."""
    lines = []
    for method in (m for m in (OURS, OLD) if m in results.methods):
        for labels in results.values("labels"):
            rows = results.rows(method, labels=labels)
            if not rows:
                continue
            shares = [row["kept"] for row in rows]
            lines.append(
                [
                    method,
                    str(labels),
                    str(len(rows)),
                    shown(rows, "expected", 1),
                    f"{100 * np.mean(shares):.1f}",
                    f"{100 * min(shares):.1f} to {100 * max(shares):.1f}",
                    percent(float(np.mean([row["in_range"] for row in rows]))),
                    percent(float(np.mean([in_range_of_test(row) for row in rows]))),
                    shown(rows, "rejected", 1),
                ]
            )
    heads = ["", "labels of a class", "fits", "promised", "kept", "least to most"]
    inside = ["within the stated range", "or off by the test's chance"]
    return Table([*heads, *inside, "strangers rejected"], lines)


def in_range_of_test(row: Row) -> bool:
    """Whether the share kept of the known test images lies in the range that these would have.

    The stated range is for the share of all known images. That of m images varies more: an end that
    is d from the expected share p moves to sqrt(d^2 + z^2 p (1 - p) / m), z = 1.96.
    """
    expected, kept, (low, high) = row["expected"], row["kept"], row["range"]
    chance = 1.96**2 * expected * (1 - expected) / row["known_test"]
    end = low if kept < expected else high
    return bool((kept - expected) ** 2 <= (end - expected) ** 2 + chance)


def shares(results: Results) -> Table:
    """The estimated share of strangers, the guard and the number of clusters, by true share."""
    lines = []
    for method in (m for m in (OURS, OLD) if m in results.methods):
        for share in results.values("share"):
            rows = results.rows(method, share=share)
            inside = [row["share_in_interval"] for row in rows if "share_in_interval" in row]
            ratios = [row["counted"] / row["strange_classes"] for row in rows if row.get("counted")]
            lines.append(
                [
                    method,
                    percent(share),
                    shown(rows, "estimated_share", 1),
                    percent(float(np.mean(inside))) if inside else "",
                    f"{sum(row['control'] for row in rows)} of {len(rows)}",
                    f"{np.median(ratios):.2f}" if ratios else "",
                ]
            )
    heads = ["", "strangers", "estimate", "truth in the interval", "control kept"]
    return Table([*heads, "clusters counted / classes, median"], lines)


def against_older(results: Results, others: Sequence[Row] | None) -> Table:
    """Ours against the older fit in the same cells, on the same features or on others."""
    older = {cell_of(row): row for row in others or () if row["method"] == OLD and "auc" in row}
    if others is None:
        older = {cell_of(row): row for row in results.rows(OLD)}
    pairs = [(row, older[cell_of(row)]) for row in results.rows(OURS) if cell_of(row) in older]
    lines = []
    for name in [*results.values("set"), None]:
        some = [pair for pair in pairs if name is None or pair[0]["set"] == name]
        if not some:
            continue
        line = [name or "all", str(len(some))]
        for quantity, digits in (("auc", 3), ("accuracy", 1), ("rejected95", 1)):
            values = np.array([[new[quantity], old[quantity]] for new, old in some])
            new, old = (100 if digits == 1 else 1) * values.mean(0)
            line += [f"{old:.{digits}f}", f"{new:.{digits}f}", f"{new - old:+.{digits}f}"]
        lines.append(line)
    heads = ["set", "cells"]
    for name in ("AUC", "accuracy", "rejected where 95 % are kept"):
        heads += [f"{name}: {OLD}", OURS, "difference"]
    return Table(heads, lines)


def failures(results: Results) -> Table:
    """Lines with errors, and the number of cells that are left out for it."""
    lines = [
        [*(str(value) for value in cell_of(row)), row["method"], row["error"].replace("|", "/")]
        for row in results.failed
    ]
    return Table(["set", "labels", "strangers", "draw", "method", "error"], lines)


def against_baselines(results: Results) -> dict[str, Table]:
    """The tables that hold `fit` against baselines."""
    return {
        "best baseline": against_best(results),
        "each baseline": against_each(results),
        "losses": losses(results),
    }


def report(rows: Sequence[Row], others: Sequence[Row] | None = None) -> dict[str, Table]:
    """All tables by their titles, those without rows left out.

    Args:
        others: lines of other features of the same sets, with fits of an older version.
    """
    results = Results(rows)
    found = {
        "methods": by_method(results),
        "AUC by set": by_field(results, "auc", 3, "set"),
        "accuracy by set": by_field(results, "accuracy", 1, "set"),
        "AUC by share": by_field(results, "auc", 3, "share"),
        "accuracy by share": by_field(results, "accuracy", 1, "share"),
        "AUC by labels": by_field(results, "auc", 3, "labels"),
        "accuracy by labels": by_field(results, "accuracy", 1, "labels"),
        "AUC by set and share": by_set_and_share(results, "auc", 3),
        "accuracy by set and share": by_set_and_share(results, "accuracy", 1),
        **(against_baselines(results) if results.baselines else {}),
        "kept": kept(results),
        "shares": shares(results),
        "older fit": against_older(results, None),
        "older fit, other features": against_older(results, others or []),
        "failures": failures(results),
    }
    return {title: table for title, table in found.items() if table.rows}
