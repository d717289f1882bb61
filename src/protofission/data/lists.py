"""Lists of image files with their labels, as CSV or Parquet."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from protofission.errors import InputError, require
from protofission.extras import needed

SUFFIXES = (".csv", ".parquet")
NO_LABELS = ("", "-1")
"""What stands for an image without a label."""


def is_list(path: Path) -> bool:
    """Whether a path is a list of images, by its name."""
    return path.suffix.lower() in SUFFIXES


def read_list(
    path: Path, path_column: str = "path", label_column: str = "label"
) -> tuple[list[str], list[str | None]]:
    """The paths and labels of a list in its order; an empty label, or -1, is none.

    Without a column of labels, no image has one.
    """
    require(path.is_file(), f"{path} is not there: name a .csv or .parquet file.")
    read = _parquet if path.suffix.lower() == ".parquet" else _csv
    paths, labels = read(path, path_column, label_column)
    require(len(paths) > 0, f"{path} lists no image: add rows with a {path_column}.")
    for row, (file, label) in enumerate(zip(paths, labels, strict=True), 1):
        require(
            file != "", f"Row {row} of {path} has no {path_column}: give one, or remove the row."
        )
        if label in NO_LABELS:
            labels[row - 1] = None
    return paths, labels


def _csv(path: Path, path_column: str, label_column: str) -> tuple[list[str], list[str | None]]:
    paths: list[str] = []
    labels: list[str | None] = []
    try:
        # Names that are no UTF-8 come through as they do from the file system.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            _check_columns(path, rows.fieldnames or (), path_column)
            for row in rows:
                paths.append(row[path_column] or "")
                labels.append(row.get(label_column))
                require(
                    None not in row,
                    f"Line {rows.line_num} of {path} has more fields than the header: "
                    "put quotes around values with a comma.",
                )
    except csv.Error as error:
        raise InputError(f"{path} is no CSV file ({error}): mend line {rows.line_num}.") from None
    return paths, labels


def _parquet(path: Path, path_column: str, label_column: str) -> tuple[list[str], list[str | None]]:
    arrow = needed("pyarrow", "parquet", str(path))
    parquet = needed("pyarrow.parquet", "parquet", str(path))
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            _check_columns(path, names, path_column)
            table = file.read([n for n in (path_column, label_column) if n in names])
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} is no Parquet file ({reason}): save it again.") from None
    paths = [_text(path, path_column, value) or "" for value in table[path_column].to_pylist()]
    if label_column not in table.column_names:
        return paths, [None] * len(paths)
    labels = table[label_column].to_pylist()
    return paths, [_text(path, label_column, value) for value in labels]


def _text(path: Path, column: str, value: object) -> str | None:
    """A value as text; pandas writes whole numbers beside missing ones as floats."""
    match value:
        case None:
            return None
        case float() if math.isnan(value):
            return None
        case bool():
            pass
        case float() if value.is_integer():
            return str(int(value))
        case str() | int():
            return str(value)
    raise InputError(f"{path} has {value!r} in the column {column!r}: give text or whole numbers.")


def _check_columns(path: Path, names: Sequence[str], path_column: str) -> None:
    require(
        path_column in names,
        f"{path} has no column {path_column!r} in its header, but {', '.join(map(repr, names))}: "
        "name the column of paths.",
    )
