"""Lists of image files with their labels, as CSV or Parquet."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

from protofission.core.errors import InputError, require
from protofission.system.optional_libraries import import_optional
from protofission.system.plain_files import open_plain

SUFFIXES = (".csv", ".parquet")
NO_LABELS = ("", "-1")
"""Values that stand for no label."""


def is_list(path: Path) -> bool:
    """Whether a path is a list of images, by its suffix."""
    return path.suffix.lower() in SUFFIXES


def read_list(
    path: Path, path_column: str = "path", label_column: str = "label"
) -> tuple[list[str], list[str | None]]:
    """Read the paths and labels of a list, in order; an empty label, or -1, becomes None.

    Without a column of labels, all labels are None.
    """
    require(path.exists(), f"{path} is not there: name a .csv or .parquet file.")
    read = _parquet if path.suffix.lower() == ".parquet" else _csv
    try:
        paths, labels = read(path, path_column, label_column)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror or error}): name a .csv or .parquet file."
        ) from None
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
        # Names that are not UTF-8 are read as the file system gives them.
        with (
            open_plain(path) as content,
            TextIOWrapper(content, "utf-8-sig", "surrogateescape", newline="") as file,
        ):
            rows = csv.DictReader(file, strict=True)
            _check_columns(path, rows.fieldnames or (), path_column, label_column)
            for row in rows:
                paths.append(row[path_column] or "")
                labels.append(row.get(label_column))
                require(
                    None not in row,
                    f"Line {rows.line_num} of {path} has more fields than the header: "
                    "put quotes around values with a comma.",
                )
    except csv.Error as error:
        raise InputError(
            f"{path} is not a CSV file ({error}): correct line {rows.line_num}."
        ) from None
    return paths, labels


def _parquet(path: Path, path_column: str, label_column: str) -> tuple[list[str], list[str | None]]:
    parquet = import_optional("pyarrow.parquet", "parquet", str(path))
    with list_errors(path), open_plain(path) as content, parquet.ParquetFile(content) as file:
        names = file.schema_arrow.names
        _check_columns(path, names, path_column, label_column)
        table = file.read([n for n in (path_column, label_column) if n in names])
    paths = [text or "" for text in texts_of(path, table, path_column)]
    if label_column not in table.column_names:
        return paths, [None] * len(paths)
    return paths, texts_of(path, table, label_column)


@contextmanager
def list_errors(path: Path) -> Iterator[None]:
    """Turn the errors of a Parquet file that is none into an InputError."""
    arrow = import_optional("pyarrow", "parquet", str(path))
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # from the system, not from the library
            raise
        _no_parquet(path, error)
    except arrow.ArrowException as error:
        _no_parquet(path, error)


def texts_of(path: Path, table: Any, column: str) -> list[str | None]:
    """The values of a column as texts."""
    try:
        values = table[column].to_pylist()
    except ValueError:  # nanoseconds, for which Python has no type
        kind = table.schema.field(column).type
        raise InputError(
            f"{path} has values of the type {kind} in the column {column!r}: give text or whole "
            "numbers."
        ) from None
    return [_text(path, column, value) for value in values]


def _no_parquet(path: Path, error: Exception) -> NoReturn:
    reason = str(error).splitlines()[0]
    raise InputError(f"{path} is not a Parquet file ({reason}): save it again.") from None


def _text(path: Path, column: str, value: object) -> str | None:
    """A value as text; whole floats count as whole numbers, since pandas writes these so."""
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


def _check_columns(path: Path, names: Sequence[str], path_column: str, label_column: str) -> None:
    require(len(names) > 0, f"{path} is empty: give a header, and a row for each image.")
    require(
        path_column in names,
        f"{path} has no column {path_column!r} in its header, but {', '.join(map(repr, names))}: "
        "name the column of paths.",
    )
    for name in (path_column, label_column):
        require(
            names.count(name) <= 1,
            f"{path} has {names.count(name)} columns {name!r}: keep one of them.",
        )
