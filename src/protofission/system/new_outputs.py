"""Write new files and folders, whole or not at all; what is there is never written over."""

from __future__ import annotations

import errno
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from protofission.core.errors import printable, require
from protofission.system.locks import LOCK_FILE, open_locked
from protofission.system.partial_files import is_partial, partial_path
from protofission.system.posix import NO_LINK
from protofission.system.whole_files import whole_file

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""Errors of file systems that have no hard links."""


def check_new(path: Path) -> None:
    """Refuse a name that is taken, be it by a link that leads nowhere."""
    require(
        not os.path.lexists(path),
        f"{printable(str(path))} is there already: name another one, or move it away.",
    )


def free_path(path: Path) -> Path:
    """The path, or if it is taken the first of NAME-2, NAME-3 and so on that is not."""
    if not os.path.lexists(path):
        return path
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(name for name in names if not os.path.lexists(name))


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a hidden file to write; it takes the name `path` if the block ends without an error.

    Raises:
        InputError: the name is taken, now or when the block ends.
        OSError: it cannot be written.
    """
    check_new(path)
    with whole_file(path) as partial:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        # A second name for the file cannot be given if it is taken, not even in a race; the
        # renaming that follows then finds nothing to do.
        try:
            os.link(partial, path)
        except FileExistsError:
            check_new(path)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            check_new(path)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a hidden folder to fill; it takes the name `path` if the block ends without an error.

    What killed processes left of the same folder is deleted; a live one has a lock in its own.

    Raises:
        InputError: the name is taken, now or when the block ends.
        OSError: it cannot be written.
    """
    check_new(path)
    for left in filter(is_partial, path.parent.glob(f".{glob.escape(path.name)}.*")):
        with suppress(OSError), open_locked(left / LOCK_FILE, os.O_RDWR | NO_LINK):
            shutil.rmtree(left, ignore_errors=True)
    partial = partial_path(path)
    try:
        with open_locked(partial / LOCK_FILE):
            yield partial
            os.sync()  # one call for all files, however many
            check_new(path)
            partial.rename(path)  # onto a folder that holds something it fails
            (path / LOCK_FILE).unlink(missing_ok=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
