"""Write files so that they are there whole or not at all, whenever the process is killed."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from protofission.core.errors import InputError
from protofission.system.locks import open_locked
from protofission.system.partial_files import is_partial, partial_path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a hidden file to write; it takes the name `path` if the block ends without an error.

    What killed processes left of the same file is deleted; a live one has a lock on its own.
    """
    for left in filter(is_partial, path.parent.glob(f".{glob.escape(path.name)}.*")):
        with suppress(OSError), open_locked(left, os.O_RDWR):
            left.unlink()
    partial = partial_path(path)
    try:
        with open_locked(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL):
            yield partial
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file at once.

    Raises:
        InputError: it cannot be written.
    """
    try:
        with whole_file(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None


def write_text(path: Path, text: str) -> None:
    """Write a text at once as UTF-8, with escapes for bytes of file names that are no UTF-8."""
    write_whole(path, text.encode(errors="backslashreplace"))
