"""Journal of a prediction, and the record that it is finished, in files beside the output.

    .NAME.rows         a line with the fingerprint of the job, then a line for each block, in order
    .NAME.finished     fingerprint, digest of the output and counts, once the output is written

A process that is killed leaves whole lines and at most one torn line, which is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from protofission.core.errors import InputError, printable
from protofission.system.digests import file_digest
from protofission.system.json_files import parse_json, read_json
from protofission.system.locks import open_locked
from protofission.system.partial_files import is_partial
from protofission.system.plain_files import open_plain, write_all
from protofission.system.whole_files import write_whole
from protofission.triage.prediction_table import Row, row_of

JOURNAL_VERSION = 1
MOST_RECORD_BYTES = 2**16
"""Largest size of a record."""


@dataclass(frozen=True)
class FinishedRecord:
    """The record of a finished prediction."""

    fingerprint: str
    """Fingerprint of all that the rows depend on."""
    form: str
    output_digest: str
    """Digest of the output file."""
    rows: int
    errors: int
    decisions: dict[str, int]

    @staticmethod
    def read(out: Path) -> FinishedRecord | None:
        """Read the record of an output file; None if there is none, or the file has changed."""
        try:
            found = read_json(_record_path(out), FinishedRecord, most=MOST_RECORD_BYTES)
            return found if file_digest(out) == found.output_digest else None
        except (InputError, OSError):
            return None

    def write(self, out: Path) -> None:
        """Write the record of an output file."""
        write_whole(_record_path(out), json.dumps(asdict(self)).encode() + b"\n")


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
        head = _head(fingerprint)
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

    def is_of(self, fingerprint: str) -> bool:
        """Whether it was begun for this job."""
        with _write_errors(self.out), open_plain(self.path) as file:
            return file.readline() == _head(fingerprint)

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

    def remove_empty(self) -> None:
        """Delete the file if nothing is in it."""
        if not self.path.stat().st_size:
            self.remove()

    def _write(self, content: bytes) -> None:
        write_all(self._file, content)


@contextmanager
def journal_of(out: Path, *, wait: bool = False) -> Iterator[Journal]:
    """Open the journal of an output file; other processes are refused meanwhile.

    Args:
        wait: for another process that has it open.
    """
    path = out.with_name(f".{out.name}.rows")
    with _write_errors(out):
        try:
            file = open_locked(path, wait=wait)
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


def _record_path(out: Path) -> Path:
    return out.with_name(f".{out.name}.finished")


def _head(fingerprint: str) -> bytes:
    return json.dumps({"version": JOURNAL_VERSION, "fingerprint": fingerprint}).encode() + b"\n"


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
