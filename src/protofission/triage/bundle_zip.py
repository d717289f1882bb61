"""A bundle as one .zip file: the same bytes wherever it is written, read as an untrusted file.

The reader takes nothing to the disk. It refuses names that are not those of a bundle's files,
links, encrypted entries, and files that grow too much when they are unpacked.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from protofission.core.errors import InputError, printable, quoted, require
from protofission.system.plain_files import open_plain
from protofission.system.whole_files import whole_file
from protofission.triage.bundle_files import MANIFEST, ReadFile
from protofission.triage.bundle_manifest import BUNDLE_PARTS

ZIPPED = (MANIFEST, *BUNDLE_PARTS)
"""The entries of the file, in their order."""
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of every entry: the earliest that the format knows."""
END = struct.Struct("<4s4H2LH")
"""The record at the end of a .zip file, which counts its entries."""
MOST_ENTRIES = 16
MOST_DIRECTORY_BYTES = 2**14
GROWTH, ROOM = 20, 2**20
"""Unpacked, the files have at most GROWTH times the bytes of the .zip, and ROOM more."""


def is_zip(path: Path) -> bool:
    """Whether a path names a .zip file; a folder may have such a name too."""
    return path.suffix.lower() == ".zip" and not path.is_dir()


def write_zip(path: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a bundle as a .zip, whole or not at all.

    Args:
        path: a new file, or that of another bundle, which is replaced.

    Raises:
        InputError: something else is there, or it cannot be written.
    """
    if os.path.lexists(path):
        try:
            with zip_reader(path):
                pass
        except InputError:
            raise InputError(
                f"{printable(str(path))} holds something else than a model: name a new file."
            ) from None
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name in ZIPPED:
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, files[name])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            partial.write_bytes(content.getbuffer())
    except OSError as error:
        raise InputError(
            f"{printable(str(path))} cannot be written ({error.strerror or error}): make room, or "
            "name another file."
        ) from None


@contextmanager
def zip_reader(path: Path) -> Iterator[ReadFile]:
    """Give the reader of a bundle's .zip file, while it is open.

    Raises:
        InputError: it does not exist, or is not the .zip of a bundle.
    """
    shown = printable(str(path))
    if not os.path.lexists(path):
        raise InputError(f"{shown} does not exist: give a model, as protofission pack wrote it.")
    with ExitStack() as opened:
        try:
            file = opened.enter_context(open_plain(path))
            size = os.fstat(file.fileno()).st_size
            _check_end(file, size)
            archive = opened.enter_context(zipfile.ZipFile(file))
            entries = _check_entries(archive, GROWTH * size + ROOM)
        except OSError as error:
            raise InputError(f"{shown} cannot be read: {error.strerror or error}.") from None
        except UNREADABLE as error:
            why = printable(str(error)).rstrip(".")
            raise InputError(
                f"{shown} is not the .zip of a model ({why}): write one by protofission pack."
            ) from None
        yield lambda name, most: _read_entry(archive, entries, name, most)


class _NoBundleError(Exception):
    """A .zip file that is not that of a bundle."""


UNREADABLE = (
    *(_NoBundleError, zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, NotImplementedError, ValueError),
)
"""Errors for files that are no .zip, or one of a rare kind."""


def _check_end(file: BinaryIO, size: int) -> None:
    """Look at the record at the end, before the directory of entries is read into memory."""
    file.seek(max(0, size - END.size))
    end = file.read(END.size)
    if len(end) < END.size or not end.startswith(b"PK\x05\x06"):
        raise _NoBundleError("its end is not that of a .zip")
    _, _, _, _, entries, directory, _, _ = END.unpack(end)
    if entries > MOST_ENTRIES or directory > MOST_DIRECTORY_BYTES:
        raise _NoBundleError(f"it has {entries} entries, and a model has {len(ZIPPED)}")
    file.seek(0)


def _check_entries(archive: zipfile.ZipFile, most: int) -> dict[str, zipfile.ZipInfo]:
    """The entries by name, if they are those of a bundle and not too large together."""
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        shown, mode = quoted(entry.filename), entry.external_attr >> 16
        if stat.S_ISLNK(mode):
            raise _NoBundleError(f"its entry {shown} is a link")
        if ".." in entry.filename.split("/") or entry.filename.startswith("/"):
            raise _NoBundleError(f"its entry {shown} leads out of it")
        if entry.filename not in ZIPPED:
            raise _NoBundleError(f"its entry {shown} is no file of a model")
        if entry.filename in found:
            raise _NoBundleError(f"its entry {shown} stands twice")
        if entry.flag_bits & 1:
            raise _NoBundleError(f"its entry {shown} is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _NoBundleError(f"its entry {shown} is compressed in a rare way")
        found[entry.filename] = entry
    total = sum(entry.file_size for entry in found.values())
    if total > most:
        raise _NoBundleError(f"unpacked it has {total:,} bytes, and {most:,} are the most")
    return found


def _read_entry(
    archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], name: str, most: int
) -> bytes:
    require(name in entries, f"{name} is missing.")
    size = entries[name].file_size
    require(size <= most, f"{name} has {size:,} bytes, and {most:,} are the most.")
    try:
        with archive.open(entries[name]) as file:
            content = file.read(size + 1)
    except (*UNREADABLE, OSError) as error:
        raise InputError(f"{name} cannot be unpacked: {printable(str(error))}.") from None
    require(len(content) == size, f"{name} is cut short.")
    return content
