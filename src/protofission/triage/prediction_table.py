"""The table of predictions: a row for each image, as CSV, JSON Lines or Parquet.

In CSV and Parquet some characters of a text are escaped: a backslash is two; a new line, a carriage
return and a tab are backslash n, r and t; other characters that a terminal obeys are backslash u
and four hex digits; a byte of a file name that is no UTF-8 is backslash x and two. So a row is one
line, and every text comes back from `read_rows` as it was. JSON Lines are ASCII with JSON's own
escapes. Numbers are the shortest that read back to the same float32.

A spreadsheet takes a cell that begins with one of = + - @ for a formula. In CSV a text that begins
so, or with a tab or a line's end, be it after spaces or quotes, has an apostrophe before it, and so
has one that begins with an apostrophe; `read_rows` takes it away.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast, get_args

import numpy as np

from protofission.core.errors import InputError, field_types, printable, require, unknown
from protofission.core.records import NO_CLASS
from protofission.system.json_files import as_type, parse_json
from protofission.system.optional_libraries import import_optional
from protofission.system.plain_files import open_plain
from protofission.system.whole_files import whole_file
from protofission.triage.calibrated_model import DECISIONS, Verdicts

Format = Literal["csv", "jsonl", "parquet"]

PREDICTION_COLUMNS = (
    "path",
    "class",
    "probability",
    "subclass",
    "id_score",
    "decision",
    "cluster",
    "error",
)
TRIAGE_COLUMNS = (*PREDICTION_COLUMNS, "duplicate_group")
GROUP = 65_536
"""Rows that are read or written at once."""


class Row(NamedTuple):
    """The prediction of one image; of one that could not be read, its path and an error.

    A number is the Python float whose text is the shortest of its float32.

    Examples:
        >>> from protofission import Row
        >>> Row("new/0001.png", "cat", 0.98, decision="accept").class_name
        'cat'
    """

    path: str
    class_name: str = ""
    probability: float | None = None
    subclass: str = ""
    id_score: float | None = None
    decision: str = ""
    """One of DECISIONS."""
    cluster: str = ""
    """The cluster of an image that was not accepted, if it is in one."""
    error: str = ""
    duplicate_group: int | None = None
    """In a triage, the number that near-duplicates share."""


_ROW_TYPES = tuple(field_types(Row).values())


def row_of(values: Any) -> Row:
    """Read a row from a JSON list; one of a file without groups of duplicates is shorter.

    Raises:
        InputError: it is no row.
    """
    if isinstance(values, list) and len(values) == len(PREDICTION_COLUMNS):
        values = [*values, None]
    return Row(*as_type(values, tuple[_ROW_TYPES], "a row"))  # type: ignore[valid-type]


class Names(NamedTuple):
    """Names of the classes, of their sub-classes and of the novel clusters."""

    classes: Sequence[str]
    subclasses: Sequence[Sequence[str]]
    """V names for each class."""
    clusters: Sequence[str] = ()


def rows_of(paths: Sequence[str], verdicts: Verdicts, names: Names) -> list[Row]:
    """Make the rows of images from their verdicts; NaN or infinity becomes an error."""
    classes = verdicts.classes.tolist()
    probabilities = verdicts.probs.gather(1, verdicts.classes[:, None])[:, 0]
    rows = [
        Row(
            path,
            names.classes[label],
            probability,
            names.subclasses[label][subclass],
            score,
            DECISIONS[decision],
            "" if cluster == NO_CLASS else names.clusters[cluster],
        )
        for path, label, probability, subclass, score, decision, cluster in zip(
            paths,
            classes,
            shortest_floats(probabilities.cpu().numpy()),
            verdicts.subclasses.tolist(),
            shortest_floats(verdicts.id_scores.cpu().numpy()),
            verdicts.decisions.tolist(),
            verdicts.clusters.tolist(),
            strict=True,
        )
    ]
    return [
        row if _finite(row) else Row(row.path, error="features that are no numbers") for row in rows
    ]


def _finite(row: Row) -> bool:
    return math.isfinite(row.probability or 0.0) and math.isfinite(row.id_score or 0.0)


def shortest_floats(values: Any) -> list[float]:
    """The Python floats with the shortest texts that read back to the same float32."""
    return np.asarray(values, np.float32).astype(str).astype(np.float64).tolist()  # type: ignore[no-any-return]


def format_of(out: Path | None, wanted: str | None) -> Format:
    """The format that is asked for, else that of the file's suffix, else CSV."""
    suffix = "" if out is None else out.suffix.lower().removeprefix(".")
    found = wanted or (suffix if suffix in get_args(Format) else "csv")
    if found not in get_args(Format):
        raise unknown("format", found, get_args(Format))
    require(
        out is not None or found != "parquet",
        "Parquet is no text and wants a file: give --out FILE, or --format csv or jsonl.",
    )
    if found == "parquet":
        import_optional("pyarrow.parquet", "parquet", "A Parquet file")
    return cast(Format, found)


def header_of(form: Format, columns: Sequence[str] = PREDICTION_COLUMNS) -> bytes:
    """The header of a CSV file; JSON Lines have none."""
    return b"%s\n" % ",".join(columns).encode() if form == "csv" else b""


def text_of(
    rows: Iterable[Row], form: Format, columns: Sequence[str] = PREDICTION_COLUMNS
) -> bytes:
    """The lines of rows, in CSV or JSON Lines."""
    cells = (row[: len(columns)] for row in rows)
    if form == "csv":
        return "".join(map(csv_line, cells)).encode()
    return "".join(_json_line(dict(zip(columns, values, strict=True))) for values in cells).encode()


def write_rows(
    path: Path, rows: Iterable[Row], form: Format, columns: Sequence[str] = PREDICTION_COLUMNS
) -> None:
    """Write a file of rows, whole or not at all, with GROUP rows in memory at a time.

    Args:
        columns: PREDICTION_COLUMNS or TRIAGE_COLUMNS.
    """
    try:
        with whole_file(path) as partial, partial.open("wb") as file:
            if form == "parquet":
                _write_parquet(file, rows, columns)
            else:
                file.write(header_of(form, columns))
                for some in _parts(rows):
                    file.write(text_of(some, form, columns))
    except OSError as error:
        raise InputError(
            f"{printable(str(path))} cannot be written: {error.strerror or error}."
        ) from None


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file that `write_rows` wrote; its suffix tells the format."""
    read = {"csv": _read_csv, "jsonl": _read_json, "parquet": _read_parquet}[format_of(path, None)]
    shown = printable(str(path))
    try:
        with open_plain(path) as file:
            yield from read(file)
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, csv.Error):
        raise InputError(
            f"{shown} does not hold the rows of a prediction, or was edited: predict again."
        ) from None


_OBEYED = re.compile(
    r"[\\\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Controls, marks that turn the direction of text, ends of lines, bytes that are no UTF-8, and the
backslash that escapes them."""
_ESCAPE = re.compile(r"\\(\\|n|r|t|x[89a-f][0-9a-f]|u[0-9a-f]{4})")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = {escape[1]: text for text, escape in _ESCAPES.items()}
_FORMULA = re.compile(
    r"'|[\s\"'\u200b\ufeff]*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]"
)
_QUOTED = re.compile(r"[\",;]|^\s|\s$")


def escape_text(text: str) -> str:
    """Escape text: the result is UTF-8, on one line, and safe on any terminal."""
    return _OBEYED.sub(_escape_match, text)


def unescape_text(text: str) -> str:
    """Undo `escape_text`."""
    return _ESCAPE.sub(_unescape_match, text)


def _escape_match(found: re.Match[str]) -> str:
    code = ord(found[0])
    byte = f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"
    return _ESCAPES.get(found[0], byte)


def _unescape_match(found: re.Match[str]) -> str:
    kind, digits = found[1][0], found[1][1:]
    return _ESCAPED[kind] if not digits else chr(int(digits, 16) + (0xDC00 if kind == "x" else 0))


def is_escaped(text: str) -> bool:
    """Whether a cell of CSV does not hold a text as it is."""
    return _escape_cell(text) != text


def _escape_cell(text: str) -> str:
    return escape_text(f"'{text}" if _FORMULA.match(text) else text)


def _cell(text: str) -> str:
    cell = _escape_cell(text)
    return '"{}"'.format(cell.replace('"', '""')) if _QUOTED.search(cell) else cell


def csv_line(values: Iterable[str | float | None]) -> str:
    """A line of CSV: texts are escaped, and None is an empty cell."""
    cells = [_cell(v) if isinstance(v, str) else "" if v is None else repr(v) for v in values]
    return ",".join(cells) + "\n"


def _json_line(values: dict[str, Any]) -> str:
    return json.dumps(values, allow_nan=False) + "\n"


def _read_csv(file: BinaryIO) -> Iterator[Row]:
    lines = csv.reader((line.decode() for line in file), strict=True)
    columns = _known_columns(",".join(next(lines, ())).removeprefix("\ufeff").split(","))
    for cells in lines:
        texts: list[Any] = [unescape_text(cell.removeprefix("'")) for cell in cells]
        if len(texts) > len(columns):
            raise ValueError("cells")
        row = Row(*texts)
        yield row._replace(
            probability=_number(row.probability),
            id_score=_number(row.id_score),
            duplicate_group=int(row.duplicate_group) if row.duplicate_group else None,
        )


def _known_columns(found: Sequence[str]) -> tuple[str, ...]:
    """The columns of a prediction or of a triage."""
    for columns in (TRIAGE_COLUMNS, PREDICTION_COLUMNS):
        if columns == tuple(found):
            return columns
    raise ValueError("header")


def _number(text: Any) -> float | None:
    return float(text) if text else None


def _read_json(file: BinaryIO) -> Iterator[Row]:
    for line in file:
        found = parse_json(line)
        yield row_of([found[c] for c in PREDICTION_COLUMNS] + [found.get("duplicate_group")])


def _read_parquet(file: BinaryIO) -> Iterator[Row]:
    parquet = import_optional("pyarrow.parquet", "parquet", "A Parquet file")
    table = parquet.ParquetFile(file)
    held = [column for column in TRIAGE_COLUMNS if column in table.schema_arrow.names]
    columns = list(_known_columns(held))
    if not table.num_row_groups:  # which pyarrow 18 does not iterate over
        return
    for batch in table.iter_batches(GROUP, columns=columns):
        cells = (batch.column(column).to_pylist() for column in columns)
        for row in map(Row, *cells):
            yield Row(*(_plain(value) for value in row))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return unescape_text(value)
    return shortest_floats([value])[0] if isinstance(value, float) else value


def _write_parquet(file: BinaryIO, rows: Iterable[Row], columns: Sequence[str]) -> None:
    arrow = import_optional("pyarrow", "parquet", "A Parquet file")
    parquet = import_optional("pyarrow.parquet", "parquet", "A Parquet file")
    numbers = {
        "probability": arrow.float32(),
        "id_score": arrow.float32(),
        "duplicate_group": arrow.int64(),
    }
    kinds = [numbers.get(column, arrow.string()) for column in columns]
    schema = arrow.schema(zip(columns, kinds, strict=True))
    with parquet.ParquetWriter(file, schema) as writer:
        for some in _parts(rows):
            cells = zip(*(row[: len(columns)] for row in some), strict=True)
            arrays = [
                arrow.array([escape_text(v) if isinstance(v, str) else v for v in column], kind)
                for column, kind in zip(cells, kinds, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while some := list(islice(left, GROUP)):
        yield some
