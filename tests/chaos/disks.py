"""Small disks in a mount namespace of our own, where privileges allow it; nobody else sees them."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NEW_NAMESPACE = 0x00020000
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE, _DETACH = 1, 32, 4096, 1 << 14, 1 << 18, 2
_LIVING = ("/proc", "/sys", "/dev")
"""Of the kernel; what is mounted there stays as it is."""
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def apart(*writable: Path) -> bool:
    """Go into a mount namespace of our own, where all else is read-only; whether it was allowed."""
    try:
        _call("unshare", _NEW_NAMESPACE)
        _call("mount", b"none", b"/", None, _PRIVATE | _RECURSIVE, None)
        own = [os.fsencode(path.resolve()) for path in writable]
        for path in own:
            _call("mount", path, path, None, _BIND, None)
        for line in Path("/proc/self/mounts").read_bytes().splitlines():
            place = line.split()[1].decode("unicode_escape").encode("latin-1")
            if place not in own and not place.startswith(tuple(map(str.encode, _LIVING))):
                _call("mount", b"none", place, None, _REMOUNT | _BIND | _READ_ONLY, None)
    except OSError:
        return False
    return True


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[None]:
    """A disk of so many bytes at a place; what is in it goes with it."""
    place.mkdir(parents=True, exist_ok=True)
    _call("mount", b"chaos", os.fsencode(place), b"tmpfs", 0, f"size={size}".encode())
    try:
        yield
    finally:
        _call("umount2", os.fsencode(place), _DETACH)


def enlarge(place: Path, size: int) -> None:
    """Make room on such a disk."""
    data = f"size={size}".encode()
    _call("mount", b"chaos", os.fsencode(place), b"tmpfs", _REMOUNT, data)
