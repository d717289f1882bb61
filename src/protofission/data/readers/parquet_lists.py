"""Lists of images in Parquet, read by row groups: memory does not grow with the list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from protofission.core.errors import InputError, printable, require
from protofission.data.readers.image_lists import list_errors, texts_of
from protofission.data.readers.remote_files import open_remote, remote_url
from protofission.system.optional_libraries import import_optional
from protofission.system.plain_files import open_plain


def is_parquet(path: Path) -> bool:
    """Whether a path is a Parquet list, by its suffix."""
    return path.suffix.lower() == ".parquet"


def count_rows(path: Path) -> int:
    """The number of rows of a list, from its footer."""
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def read_list_rows(path: Path, start: int, stop: int, column: str) -> list[str | None]:
    """Read the texts of a column of some rows; only their row groups are read."""
    with _opened(path) as file:
        names = file.schema_arrow.names
        require(
            names.count(column) == 1,
            f"{printable(str(path))} has {names.count(column)} columns {column!r}, but "
            f"{', '.join(map(repr, names))}: name the column of paths so, once.",
        )
        sizes = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
        ends = np.cumsum(sizes)
        begins = ends - sizes
        groups = np.flatnonzero((begins < stop) & (ends > start)).tolist()
        if not groups:
            return []
        first = int(begins[groups[0]])
        table = file.read_row_groups(groups, [column], use_threads=False)
        return texts_of(path, table.slice(start - first, stop - start), column)


def has_column(path: Path, column: str) -> bool:
    """Whether a list has a column."""
    with _opened(path) as file:
        return column in file.schema_arrow.names


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    parquet = import_optional("pyarrow.parquet", "parquet", printable(str(path)))
    with list_errors(path):
        content: BinaryIO
        with _content(path) as content, parquet.ParquetFile(content) as file:
            yield file


@contextmanager
def _content(path: Path) -> Iterator[Any]:
    url = remote_url(path)
    try:
        opened = open_plain(path) if url is None else open_remote(url)
    except OSError as error:
        raise InputError(
            f"{printable(str(path))} cannot be read ({error.strerror or error}): name a .csv or "
            ".parquet file."
        ) from None
    with opened as file:
        yield file
