"""Many images, decoded once: a memory-mapped array with a manifest of what it was made of.

An entry of the cache is a folder that is named by its sources and settings, so that another state
of the files is another entry. One process at a time fills it, block by block, and a journal tells
what is there, so that a killed decoding goes on. The manifest comes last: an entry that has one is
whole.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from io import BufferedRandom, RawIOBase
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, printable, require
from protofission.data.readers.decode import Decoding, RefusedError, decode, quiet_pillow
from protofission.data.store.manifest import npy_header
from protofission.data.store.mapped_arrays import release
from protofission.system.json_files import parsed_json, read_json, typed
from protofission.system.plain_files import open_plain
from protofission.system.whole_files import locked, written_whole

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with the number of files or images that are done, and of all."""

VERSION = 1
"""Of the layout of an entry."""
MANIFEST, PIXELS, JOURNAL = "manifest.json", "pixels.npy", "blocks.jsonl"
BLOCK = 64
"""Images of a block, the most that a killed process loses."""
ELSEWHERE = "set XDG_CACHE_HOME to the full path of another folder (in Python, give cache=...)"
CHECKED_BYTES = 2**28
"""An array up to this size is checked in full when it is opened, else at CHECKED_IMAGES places."""
RELEASED = 64
"""Images after which those looked at are let go of."""
CHECKED_IMAGES = 1000
DAY = 86_400.0
MOST_BYTES = 2**30
"""Of a manifest."""
UNUSED_DAYS = 7
"""An entry for another state of the same files goes when it was not opened for so long."""


@dataclass(frozen=True)
class Entry:
    """An image file as it was listed."""

    path: str
    """Relative to what was listed, with slashes; its bytes that are no UTF-8 are surrogates."""
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Outcome:
    """What became of an entry."""

    reason: str | None
    """Why it was left out; none if it was read."""
    file_digest: str = ""
    pixel_digest: str = ""


_Outcomes = tuple[tuple[str | None, str, str], ...]
"""An outcome in JSON."""


@dataclass(frozen=True)
class Decoded:
    """The images of all entries that could be read, in the order of the entries."""

    pixels: NDArray[np.uint8]
    """(read, channels, height, width), memory-mapped."""
    outcomes: tuple[Outcome, ...]
    """One for each entry."""
    from_cache: bool


def digest(content: bytes | NDArray[np.uint8]) -> str:
    """What tells contents apart."""
    if not isinstance(content, bytes):
        content = content.tobytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def decoded(
    source: str,
    entries: Sequence[Entry],
    read: Callable[[int], bytes],
    decoding: Decoding,
    cache: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Decoded:
    """The pixels of all entries: from the cache, or read now and put there.

    Args:
        source: what the entries are of; with the settings it names the entry of the cache.
        read: the content of an entry by its place, or RefusedError; called from several threads.
        workers: threads that decode; the result is the same for any number.
    """
    require(workers is None or workers >= 1, f"workers = {workers}: give 1 or more.")
    about: dict[str, Any] = {
        "version": VERSION,
        "source": source,
        "settings": decoding.settings(),
        "entries": [list(astuple(entry)) for entry in entries],
    }
    stale = hashlib.sha256(json.dumps({**about, "entries": None}).encode()).hexdigest()[:16]
    state = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
    home = cache / f"{stale}-{state}"
    if found := _opened(home, about):
        return found
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _clean(cache, stale, keep=home)
        if not home.is_dir():
            _remove(home)
        home.mkdir(exist_ok=True)
        with locked(home, wait=True):
            if found := _opened(home, about):  # another process made it meanwhile
                return found
            _make(home, about, read, decoding, workers or default_workers(), progress)
            made = _opened(home, about)
        if made is None:
            raise OSError(errno.EIO, "what was written cannot be read back", str(home))
    except OSError as error:
        raise InputError(
            f"Cannot write decoded images to {printable(str(cache))} ({error.strerror or error}): "
            f"free some space and give the same command again, it goes on, or {ELSEWHERE}."
        ) from None
    return Decoded(made.pixels, made.outcomes, from_cache=False)


def processors() -> int:
    """As many as this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def default_workers() -> int:
    """As many threads as this process may use processors, up to 16."""
    return min(16, processors())


def _make(
    home: Path,
    about: dict[str, Any],
    read: Callable[[int], bytes],
    decoding: Decoding,
    workers: int,
    progress: Progress | None,
) -> None:
    """Decode what is missing of an entry, block by block; memory stays flat."""

    def work(place: int) -> tuple[Outcome, bytes]:
        content = b""
        try:
            content = read(place)
            pixels = decode(content, decoding)
        except RefusedError as refusal:
            return Outcome(str(refusal), digest(content)), b""
        return Outcome(None, digest(content), digest(pixels)), pixels.tobytes()

    begun = (home / JOURNAL).is_file() and (home / PIXELS).is_file()
    if not begun or (home / MANIFEST).exists():  # damaged, or not begun
        for name in (JOURNAL, PIXELS, MANIFEST):  # another process may look at the old pixels
            _remove(home / name)
    total = len(about["entries"])
    with ExitStack() as opened:
        pixels = opened.enter_context(_writable(home / PIXELS))
        journal = opened.enter_context(_writable(home / JOURNAL))
        opened.enter_context(quiet_pillow())
        outcomes = _sound(pixels, journal, decoding)
        if progress and outcomes:
            progress(len(outcomes), total)
        block: list[Outcome] = []
        for outcome, content in _in_order(work, range(len(outcomes), total), workers):
            pixels.write(content)
            block.append(outcome)
            outcomes.append(outcome)
            if len(block) == BLOCK:
                pixels.flush()  # before the line that speaks of it
                journal.write(json.dumps([list(astuple(each)) for each in block]).encode() + b"\n")
                journal.flush()
                block = []
            if progress:
                progress(len(outcomes), total)
        pixels.seek(0)
        kept = sum(outcome.reason is None for outcome in outcomes)
        pixels.write(npy_header("|u1", (kept, *decoding.shape)))
        pixels.flush()
        os.fsync(pixels.fileno())
    manifest = {**about, "outcomes": [list(astuple(outcome)) for outcome in outcomes]}
    with written_whole(home / MANIFEST) as partial:
        partial.write_text(json.dumps(manifest), "ascii")  # which keeps names that are no UTF-8
    (home / JOURNAL).unlink()


def _remove(path: Path) -> None:
    """Delete whatever is there, if anything is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _writable(path: Path) -> BufferedRandom:
    """A file to go on with, or a new one."""
    return BufferedRandom(cast(RawIOBase, open_plain(path, os.O_RDWR | os.O_CREAT)))


def _sound(pixels: BufferedRandom, journal: BufferedRandom, decoding: Decoding) -> list[Outcome]:
    """The outcomes of the blocks that are there as they were written; the files end after them."""
    found: list[Outcome] = []
    ends = pixels.seek(len(npy_header("|u1", (0, *decoding.shape)))), 0
    for line in journal:
        try:  # the last line may be cut short
            block = [Outcome(*v) for v in typed(parsed_json(line), _Outcomes, "")]
        except InputError:
            break
        digests = [outcome.pixel_digest for outcome in block if outcome.reason is None]
        size = math.prod(decoding.shape)
        if len(block) != BLOCK or any(digest(pixels.read(size)) != known for known in digests):
            break
        found += block
        ends = pixels.tell(), ends[1] + len(line)
    for file, end in zip((pixels, journal), ends, strict=True):
        file.truncate(end)
        file.seek(end)
    pixels.seek(0)
    pixels.write(npy_header("|u1", (0, *decoding.shape)))
    pixels.seek(ends[0])
    return found


def _in_order(work: Callable[[int], T], places: range, workers: int) -> Iterator[T]:
    """The work at each of the places by several threads, with few results waiting at any time."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for place in places:
                waiting.append(pool.submit(work, place))
                if len(waiting) > 4 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _opened(home: Path, about: dict[str, Any]) -> Decoded | None:
    """An entry of the cache, if it is there and sound."""
    try:
        manifest = read_json(home / MANIFEST, dict[str, Any], most=MOST_BYTES)
        found = typed(manifest.pop("outcomes"), _Outcomes, "outcomes")
        outcomes = tuple(Outcome(*values) for values in found)
        if manifest != about or len(outcomes) != len(about["entries"]):
            return None
        digests = [o.pixel_digest for o in outcomes if o.reason is None]
        pixels = _mapped(home / PIXELS, len(digests), about["settings"])
    except Exception:  # whatever is wrong with it, it is made anew
        return None
    step = 1 if pixels.nbytes <= CHECKED_BYTES else max(1, len(pixels) // CHECKED_IMAGES)
    for place in range(0, len(pixels), step):
        if digest(pixels[place]) != digests[place]:
            return None
        if place % RELEASED == 0:
            release(pixels)
    release(pixels)
    with contextlib.suppress(OSError):  # others may read a cache that they cannot write
        os.utime(home / MANIFEST)
    return Decoded(pixels, outcomes, from_cache=True)


def _mapped(path: Path, count: int, settings: dict[str, Any]) -> NDArray[np.uint8]:
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
