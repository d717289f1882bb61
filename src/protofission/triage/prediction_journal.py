"""Journal of a prediction: the rows of finished blocks, in a file beside the output.

    .NAME.rows     a line with the fingerprint of the job, then a line for each block, in order

A process that is killed leaves whole lines and at most one torn line, which is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from protofission.core.errors import InputError, printable
from protofission.system.json_files import parse_json
from protofission.system.locks import open_locked
from protofission.system.partial_files import is_partial
from protofission.system.plain_files import open_plain, write_all
from protofission.triage.prediction_table import Row, row_of

JOURNAL_VERSION = 1


class Journal:
    """The finished rows of an output file; one process at a time holds it."""

    def __init__(self, out: Path, path: Path, file: FileIO) -> None:
        self.out, self.path, self._file = out, path, file
        self.blocks = 0
        """Number of finished blocks."""
        self.rows = 0
        """Number of rows in them."""

    def take_up(self, fingerprint: str, sizes: Sequence[int]) -> bool:
        """Keep the finished blocks of the same job, and drop those of another.

        Args:
            sizes: the number of rows of each block.

        Returns:
            Whether blocks of another job were dropped.
        """
        head = json.dumps({"version": JOURNAL_VERSION, "fingerprint": fingerprint}).encode() + b"\n"
        with _write_errors(self.out):
            with open_plain(self.path) as file:
                first, end = file.readline(), len(head)
                others = first != head and bool(file.readline())
                for size, line in zip(sizes, file, strict=False):
                    if first != head or len(_rows(line)) != size:
                        break
                    self.blocks, self.rows, end = self.blocks + 1, self.rows + size, end + len(line)
            self._file.truncate(end if first == head else 0)
            if first != head:
                self._write(head)
        return others

    def add(self, rows: Sequence[Row]) -> None:
        """Write the rows of the next block, down to the disk."""
        with _write_errors(self.out):
            self._write(json.dumps(rows, allow_nan=False).encode() + b"\n")
        self.blocks, self.rows = self.blocks + 1, self.rows + len(rows)

    def all_rows(self) -> Iterator[Row]:
        """Yield the rows of all blocks; those of one are in memory at a time."""
        with open_plain(self.path) as file:
            file.readline()
            for line in file:
                yield from _rows(line)

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)

    def _write(self, content: bytes) -> None:
        write_all(self._file, content)


@contextmanager
def journal_of(out: Path) -> Iterator[Journal]:
    """Open the journal of an output file; other processes are refused meanwhile."""
    path = out.with_name(f".{out.name}.rows")
    with _write_errors(out):
        try:
            file = open_locked(path)
        except BlockingIOError:
            raise InputError(
                f"Another process is writing {printable(str(out))}: wait for it, or name another "
                "file."
            ) from None
    with file:
        for found in path.parent.iterdir():
            if is_partial(found) and found.name.startswith(f".{out.name}."):
                found.unlink(missing_ok=True)
        yield Journal(out, path, file)


@contextmanager
def _write_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{printable(str(out))} cannot be written ({error.strerror or error}): make room, or "
            "name another file; given again, the same command goes on where it was."
        ) from None


def _rows(line: bytes) -> list[Row]:
    """Parse the rows of a line; a torn line has none."""
    try:
        return [row_of(values) for values in parse_json(line)] if line.endswith(b"\n") else []
    except (InputError, TypeError):
        return []
