"""The files below a folder, in an order that does not depend on the file system."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from protofission.core.errors import require
from protofission.data.readers.image_cache import Entry
from protofission.data.readers.image_formats import RefusedError
from protofission.data.readers.remote_files import read_remote, remote_url
from protofission.system.plain_files import open_plain


@dataclass
class Listing:
    """The files and subfolders below a folder."""

    files: list[Entry] = field(default_factory=list)
    """Regular files at any depth, sorted by the bytes of their paths."""
    folders: list[str] = field(default_factory=list)
    """The names of the folders directly below it."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Reasons by path: what is no file, and folders that cannot be opened or are linked twice."""
    hidden: int = 0
    """The number of files and folders whose names begin with a dot, which are skipped."""


def list_files(folder: Path) -> Listing:
    """List a folder and its subfolders; links are followed, and each folder is read once."""
    require(folder.is_dir(), f"{folder} is not a folder: name one that holds images.")
    listing = Listing()
    above = {_identity(parent) for parent in folder.resolve().parents}
    visited: set[tuple[int, int]] = set()
    folders, links = (
        [""],
        list[str](),
    )  # links come last: of two ways to a folder, the link is skipped
    while folders or links:
        inside = folders.pop() if folders else links.pop(0)
        try:
            identity = _identity(folder / inside)
            if identity in visited | above:
                listing.left_out[inside] = "a link to a folder that is read already or holds this"
                continue
            visited.add(identity)
            if inside and "/" not in inside:
                listing.folders.append(inside)
            names = os.listdir(folder / inside)
        except OSError as error:
            listing.left_out[inside] = f"a folder that cannot be opened ({error.strerror})"
            continue
        listing.hidden += sum(name.startswith(".") for name in names)
        for name in sorted(names, key=os.fsencode):
            path = f"{inside}/{name}" if inside else name
            if name.startswith("."):
                continue
            if (folder / path).is_dir():
                (links if (folder / path).is_symlink() else folders).append(path)
                continue
            try:
                listing.files.append(entry_of(folder, path))
            except RefusedError as refusal:
                listing.left_out[path] = str(refusal)
        links.sort(key=os.fsencode)
    listing.files.sort(key=lambda entry: os.fsencode(entry.path))
    return listing


def entry_of(folder: Path, path: str) -> Entry:
    """The path, size and time of a regular file.

    Of a file in an object store only the path: asking for each takes as long as reading it.

    Raises:
        RefusedError: it is a broken link, or a device or pipe, which may never end.
    """
    if remote_url(path) is not None:
        return Entry(path, 0, 0)
    try:
        status = os.stat(folder / path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RefusedError(f"a file that cannot be opened ({reason})") from None
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError("not a file")
    return Entry(path, status.st_size, status.st_mtime_ns)


def content_of(path: Path, byte_limit: int) -> bytes:
    """Read a file, at most one byte beyond the limit.

    Raises:
        RefusedError: it cannot be opened.
    """
    url = remote_url(path)
    if url is not None:
        return read_remote(url, byte_limit)
    try:
        with open_plain(path) as file:
            # Python allocates what is asked for, so no more is asked for than there is.
            return file.read(min(os.fstat(file.fileno()).st_size, byte_limit) + 1)
    except OSError as error:
        raise RefusedError(f"a file that cannot be opened ({error.strerror})") from None


def _identity(folder: Path) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino
