"""Open and read plain files only, and no more bytes than are asked for.

A pipe or a socket would be waited for, a device may never end: all are refused as an OSError whose
`strerror` names the kind, as for a file that cannot be opened.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path
from typing import overload

from protofission.system.posix import NO_LINK, NO_WAIT

APPENDED = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK
"""Flags to open a lock, or a file to append to: never through a link."""
FILE_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}


@overload
def open_plain(path: Path | str) -> BufferedReader: ...
@overload
def open_plain(path: Path | str, flags: int) -> FileIO: ...
def open_plain(path: Path | str, flags: int = os.O_RDONLY) -> BufferedReader | FileIO:
    """Open a plain file, unbuffered where it is written to.

    Args:
        flags: of `os.open`, such as O_RDWR | O_CREAT; links are followed.

    Raises:
        OSError: it cannot be opened, or is a pipe, a socket, a device or a folder.
    """
    # A pipe that nobody writes to is opened at once, and only then looked at: nothing can be put
    # in the file's place in between.
    try:
        handle = os.open(path, flags | NO_WAIT, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and os.path.islink(path):
            raise _not_plain(path, os.lstat(path).st_mode) from None
        if error.errno in (errno.ENXIO, errno.EISDIR):  # a pipe, a socket; a folder, to write to
            raise _not_plain(path, os.stat(path).st_mode) from None
        raise
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise _not_plain(path, mode)
    if flags & (os.O_WRONLY | os.O_RDWR):
        kind = "r+" if flags & os.O_RDWR else "w"
        return FileIO(handle, "a" if flags & os.O_APPEND else kind)
    return os.fdopen(handle, "rb")


def read_plain(path: Path | str, most: int | None = None) -> bytes:
    """Read a plain file.

    Args:
        most: bytes that it may have.

    Raises:
        OSError: as `open_plain`, or it is larger.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if most is not None and size > most else file.read()
    if most is not None and max(size, len(content)) > most:
        reason = f"it has {max(size, len(content)):,} bytes, and {most:,} are the most"
        raise OSError(errno.EFBIG, reason, str(path))
    return content


def write_all(file: FileIO, content: bytes) -> None:
    """Write to an unbuffered file, down to the disk."""
    left = memoryview(content)
    while left:  # a write may be cut short
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def _not_plain(path: Path | str, mode: int) -> OSError:
    what = FILE_KINDS.get(stat.S_IFMT(mode), "something else")
    return OSError(errno.EINVAL, f"it is {what}, not a plain file", str(path))
