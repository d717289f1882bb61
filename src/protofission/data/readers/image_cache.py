"""The cache of decoded images: memory-mapped arrays, each with a manifest of what it was made of.

An entry of the cache is a folder that is named by its sources and settings, so that another state
of the files is another entry. One process at a time fills it, and goes on where a killed one was.
The manifest comes last: an entry that has one is whole.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, printable, require
from protofission.core.progress import Progress
from protofission.data.readers.decode import Decoding
from protofission.data.readers.resumable_decoding import (
    BLOCK_JOURNAL,
    PIXEL_FILE,
    Outcome,
    decode_files,
    outcomes_from_json,
    outcomes_to_json,
)
from protofission.data.store.manifest import npy_header
from protofission.data.store.mapped_arrays import release
from protofission.system.digests import digest, sha256_hex
from protofission.system.json_files import read_json
from protofission.system.locks import folder_lock
from protofission.system.plain_files import open_plain
from protofission.system.processors import processors
from protofission.system.whole_files import whole_file

CACHE_VERSION = 2
"""Version of the layout of an entry, and of the formats that are read."""
MANIFEST = "manifest.json"
ELSEWHERE = "set XDG_CACHE_HOME to the full path of another folder (in Python, give cache=...)"
CHECKED_BYTES = 2**28
"""An array up to this size is checked in full when it is opened, else at CHECKED_IMAGES places."""
CHECKED_IMAGES = 1000
RELEASED = 64
"""Images after which the pages of those that were checked are released."""
DAY = 86_400.0
MOST_CACHE_MANIFEST_BYTES = 2**30
"""Largest size of a manifest."""
UNUSED_DAYS = 7
"""Days without use after which an entry for an older state of the files is deleted."""


@dataclass(frozen=True)
class Entry:
    """An image file as it was listed."""

    path: str
    """Relative to what was listed, with slashes; its bytes that are no UTF-8 are surrogates."""
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Decoded:
    """The images of all entries that could be read, in the order of the entries."""

    pixels: NDArray[np.uint8]
    """(read, channels, height, width), memory-mapped."""
    outcomes: tuple[Outcome, ...]
    """One for each entry."""
    from_cache: bool


def load_decoded(
    source: str,
    entries: Sequence[Entry],
    read: Callable[[int], bytes],
    decoding: Decoding,
    cache: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Decoded:
    """Load the pixels of all entries from the cache, or decode the files and put them there.

    Pixels are hashed once: when they are decoded, or else when they are opened.

    Args:
        source: what the entries are of; with the settings it names the entry of the cache.
        read: the content of an entry by its place, or RefusedError; called from several threads.
        workers: threads that decode; the result is the same for any number.
    """
    require(workers is None or workers >= 1, f"workers = {workers}: give 1 or more.")
    about: dict[str, Any] = {
        "version": CACHE_VERSION,
        "source": source,
        "settings": decoding.settings(),
        "entries": [list(astuple(entry)) for entry in entries],
    }
    stale = sha256_hex(json.dumps({**about, "entries": None}).encode())[:16]
    state = sha256_hex(json.dumps(about).encode())[:16]
    home = cache / f"{stale}-{state}"
    if found := _open_entry(home, about):
        return found
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _clean(cache, stale, keep=home)
        if not home.is_dir():
            _remove(home)
        home.mkdir(exist_ok=True)
        with folder_lock(home, wait=True):
            if found := _open_entry(home, about):  # another process made it meanwhile
                return found
            _make_entry(home, about, read, decoding, workers or default_workers(), progress)
            made = _open_entry(home, about, check=False)  # each image was hashed just now
        if made is None:
            raise OSError(errno.EIO, "what was written cannot be read back", str(home))
    except OSError as error:
        raise InputError(
            f"Cannot write decoded images to {printable(str(cache))} ({error.strerror or error}): "
            f"free some space and give the same command again, it goes on, or {ELSEWHERE}."
        ) from None
    return replace(made, from_cache=False)


def default_workers() -> int:
    """As many threads as this process may use processors, up to 16."""
    return min(16, processors())


def _make_entry(
    home: Path,
    about: dict[str, Any],
    read: Callable[[int], bytes],
    decoding: Decoding,
    workers: int,
    progress: Progress | None,
) -> None:
    """Decode what is missing of an entry, and write its manifest."""
    resumable = (home / BLOCK_JOURNAL).is_file() and (home / PIXEL_FILE).is_file()
    if not resumable or (home / MANIFEST).exists():  # damaged, or new
        for name in (BLOCK_JOURNAL, PIXEL_FILE, MANIFEST):
            _remove(home / name)  # another process may look at the old pixels
    outcomes = decode_files(home, len(about["entries"]), read, decoding, workers, progress)
    manifest = {**about, "outcomes": outcomes_to_json(outcomes)}
    with whole_file(home / MANIFEST) as partial:
        partial.write_text(json.dumps(manifest), "ascii")  # which keeps names that are no UTF-8
    (home / BLOCK_JOURNAL).unlink()


def _remove(path: Path) -> None:
    """Delete whatever is there, if anything is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _open_entry(home: Path, about: dict[str, Any], *, check: bool = True) -> Decoded | None:
    """Open an entry of the cache; None if it is missing or damaged.

    Args:
        check: compare pixels with their digests.
    """
    try:
        manifest = read_json(home / MANIFEST, dict[str, Any], most=MOST_CACHE_MANIFEST_BYTES)
        outcomes = outcomes_from_json(manifest.pop("outcomes"))
        if manifest != about or len(outcomes) != len(about["entries"]):
            return None
        digests = [o.pixel_digest for o in outcomes if o.reason is None]
        pixels = _map_pixels(home / PIXEL_FILE, len(digests), about["settings"])
    except Exception:  # whatever is wrong with it, it is made anew
        return None
    if check and not _are_sound(pixels, digests):
        return None
    with contextlib.suppress(OSError):  # others may read a cache that they cannot write
        os.utime(home / MANIFEST)
    return Decoded(pixels, tuple(outcomes), from_cache=True)


def _are_sound(pixels: NDArray[np.uint8], digests: Sequence[str]) -> bool:
    """Whether images have their digests: all of them, or some thousand of a large array."""
    step = 1 if pixels.nbytes <= CHECKED_BYTES else max(1, len(pixels) // CHECKED_IMAGES)
    for place in range(0, len(pixels), step):
        if digest(pixels[place]) != digests[place]:
            return False
        if place % RELEASED == 0:
            release(pixels)
    release(pixels)
    return True


def _map_pixels(path: Path, count: int, settings: dict[str, Any]) -> NDArray[np.uint8]:
    """Map (count, channels, height, width) pixels of an .npy file that has just that header."""
    shape = (count, settings["channels"], settings["height"], settings["width"])
    if not count:
        return np.empty(shape, np.uint8)
    with open_plain(path) as file:
        header = npy_header("|u1", shape)
        if file.read(len(header)) != header:
            raise ValueError("another array")
        return np.memmap(file, np.uint8, "r", len(header), shape)


def _clean(cache: Path, stale: str, keep: Path) -> None:
    """Remove what killed processes left, and old states of the same files that nobody opens."""
    for folder in cache.glob("*-*"):
        of_old = folder.name.startswith(".making-")  # of earlier versions
        left = of_old or not (folder / MANIFEST).exists() or folder.name.startswith(f"{stale}-")
        if not left or folder == keep:
            continue
        with contextlib.suppress(OSError):
            ages = [time.time() - path.stat().st_mtime for path in (folder, *folder.iterdir())]
            if min(ages) > UNUSED_DAYS * DAY:
                shutil.rmtree(folder, ignore_errors=True)
