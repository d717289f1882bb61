"""The tables of a triage: of the pool, as CSV and Parquet, and of the labels, as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from protofission.core.records import NO_CLASS
from protofission.system.whole_files import write_text
from protofission.triage.folds import NO_FOLD
from protofission.triage.prediction_table import (
    TRIAGE_COLUMNS,
    Row,
    csv_line,
    shortest_floats,
    write_rows,
)
from protofission.triage.triage_data import TriageData

LABEL_COLUMNS = ("path", "label", "likeliest", "probability", "doubt", "fold", "duplicate_group")
"""Columns of the table of labels: `probability` is that of the label, by a model that did not see
it; `doubt` is how much likelier the likeliest class is, for labels in doubt, else empty."""


def write_triage_tables(
    folder: Path, data: TriageData, rows: Sequence[Row], unreadable: Sequence[Row]
) -> None:
    """Write triage.csv, then triage.parquet.

    Args:
        rows: of the images of the pool, in order.
        unreadable: rows of files that are no images.

    Raises:
        InputError: triage.parquet cannot be written.
    """
    groups = data.duplicate_numbers()[data.num_labeled :].tolist()
    marked = [
        row._replace(duplicate_group=group or None) for row, group in zip(rows, groups, strict=True)
    ]
    for form in ("csv", "parquet"):
        path = folder / f"triage.{form}"
        write_rows(path, [*marked, *unreadable], form, TRIAGE_COLUMNS)


def write_label_table(path: Path, data: TriageData) -> None:
    """Write a row for each labeled image, those in doubt first, the most doubtful at the top."""
    found, names = data.labels, data.class_names
    order = np.argsort(-found.doubts, kind="stable")
    columns = zip(
        order.tolist(),
        found.labels[order].tolist(),
        found.likeliest[order].tolist(),
        shortest_floats(found.probability[order]),
        shortest_floats(found.doubts[order]),
        found.doubtful[order].tolist(),
        found.folds[order].tolist(),
        data.duplicate_numbers()[order].tolist(),
        strict=True,
    )
    lines = [csv_line(LABEL_COLUMNS)]
    for place, label, likeliest, probability, doubt, doubtful, fold, group in columns:
        judged = likeliest != NO_CLASS
        values = (
            data.paths[place],
            names[label],
            names[likeliest] if judged else "",
            probability if judged else None,
            doubt if doubtful else None,
            None if fold == NO_FOLD else fold,
            group or None,
        )
        lines.append(csv_line(values))
    write_text(path, "".join(lines))
