"""Files that are there whole or not at all, and folders that one process at a time works in."""

from __future__ import annotations

import fcntl
import glob
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from protofission.core.errors import InputError
from protofission.system.plain_files import APPENDED, open_plain


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A place to write a file; it takes the name `path` when the block ends without an error.

    What killed processes left of the same file is cleared away: one that lives has a lock on it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in filter(is_partial, path.parent.glob(f".{glob.escape(path.name)}.*")):
        _clear_unlocked(left)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open_plain(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield partial
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _clear_unlocked(partial: Path) -> None:
    """Delete a file that was being written, unless a process is at it."""
    with suppress(OSError), open_plain(partial, os.O_RDWR) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), os.stat(partial)):
            partial.unlink()


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


def write_text(path: Path, text: str) -> None:
    """Write a text at once as UTF-8; bytes of file names that are none are written as escapes."""
    write_whole(path, text.encode(errors="backslashreplace"))


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes out of a folder, and clear away what a killed one was writing.

    Args:
        wait: until a process that is at work there has ended; else it is refused.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open_plain(folder / ".lock", APPENDED)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written: {error.filename}: {error.strerror}."
        ) from None
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(
                f"Another process is at work in {folder}: wait for it, or name another folder."
            ) from None
        clear_partial(folder)
        yield
