"""Exclusive locks between processes, by `flock` on an open file; a lock ends with its process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from protofission.core.errors import InputError
from protofission.system.partial_files import clear_partial
from protofission.system.plain_files import APPENDED, open_plain
from protofission.system.posix import lock_file

LOCK_FILE = ".lock"
"""The file of a folder's lock; it stays, empty, when the lock is released."""


def open_locked(path: Path, flags: int = APPENDED, *, wait: bool = False) -> FileIO:
    """Open a plain file and lock it until it is closed.

    A file that its last holder deleted or replaced before the lock was given is opened anew, so
    that the lock is always on the file that has the name. With O_CREAT missing folders are made.

    Args:
        flags: of `os.open`, for writing.
        wait: for a process that holds the lock.

    Raises:
        BlockingIOError: another process holds the lock, and `wait` is not set.
        OSError: as `open_plain`.
    """
    while True:
        if flags & os.O_CREAT:
            path.parent.mkdir(parents=True, exist_ok=True)
        file = open_plain(path, flags)
        try:
            lock_file(file, wait=wait)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except FileNotFoundError:  # deleted meanwhile
            pass
        except BaseException:
            file.close()
            raise
        file.close()


@contextmanager
def folder_lock(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes out of a folder, and delete what killed ones were writing in it.

    Args:
        wait: for a process that is at work there; else it is refused.

    Raises:
        InputError: another process is at work there, or the folder cannot be written.
    """
    try:
        lock = open_locked(folder / LOCK_FILE, wait=wait)
    except BlockingIOError:
        raise InputError(
            f"Another process is at work in {folder}: wait for it, or name another folder."
        ) from None
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written: {error.filename}: {error.strerror}."
        ) from None
    with lock:
        clear_partial(folder)
        yield
