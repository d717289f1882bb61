"""Files that are there whole or not at all, and folders that one process at a time works in."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from protofission.errors import InputError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A place to write a file; it takes the name `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def is_partial(path: Path) -> bool:
    """Whether a file is one that was being written when its process was killed."""
    return re.fullmatch(r"\..+\.[0-9a-f]{16}", path.name) is not None


def clear_partial(folder: Path) -> None:
    """Delete what a killed process was writing in a folder, if there is such a folder."""
    for path in filter(is_partial, folder.glob(".*")):
        path.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file at once; where that cannot be, the refusal names it."""
    try:
        with written_whole(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes out of a folder, and clear away what a killed one was writing.

    Args:
        wait: until a process that is at work there has ended; else it is refused.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("ab")
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}.") from None
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(
                f"Another process is at work in {folder}: wait for it, or name another folder."
            ) from None
        clear_partial(folder)
        yield
