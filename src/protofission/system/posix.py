"""Parts of the operating system that files and locks of ours need, and that only POSIX has.

Linux and macOS have them. Elsewhere, whatever reads or writes files is refused in a sentence when
it is imported; the head, the losses and the methods need no files and work.
"""

from __future__ import annotations

import os
import sys
from io import FileIO

from protofission.core.errors import InputError

try:
    import fcntl

    NO_LINK = os.O_NOFOLLOW
    NO_WAIT = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
except (ImportError, AttributeError):
    raise InputError(
        f"protofission reads and writes files by locks that {sys.platform} does not have: run it "
        "on Linux or macOS, on Windows in WSL."
    ) from None


def lock_file(file: FileIO, *, wait: bool) -> None:
    """Lock an open file until it is closed.

    Raises:
        BlockingIOError: another process holds the lock, and `wait` is not set.
    """
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
