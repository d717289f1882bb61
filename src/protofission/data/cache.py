"""Many images, decoded once: a memory-mapped array with a manifest of what it was made of.

An entry of the cache is a folder that is named by its sources and settings, so that another state
of the files is another entry. It is made aside and renamed: readers find it whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from protofission.data.decode import Decoding, RefusedError, decode, quiet_pillow
from protofission.data.mapped import release
from protofission.errors import InputError, require

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with the number of files or images that are done, and of all."""

VERSION = 1
"""Of the layout of an entry."""
CHECKED_BYTES = 2**28
"""An array up to this size is checked in full when it is opened, else at CHECKED_IMAGES places."""
RELEASED = 64
"""Images after which those looked at are let go of."""
CHECKED_IMAGES = 1000
DAY = 86_400.0
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
        making = cache / f".making-{secrets.token_hex(8)}"
        making.mkdir()
        try:
            _make(making, about, read, decoding, workers or default_workers(), progress)
            made = _settled(making, home, about)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"Cannot write decoded images to {cache} ({error}): "
            "free some space, or name another cache folder."
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
    folder: Path,
    about: dict[str, Any],
    read: Callable[[int], bytes],
    decoding: Decoding,
    workers: int,
    progress: Progress | None,
) -> None:
    """Decode everything into the array and the manifest of an entry; memory stays flat."""

    def work(place: int) -> tuple[Outcome, bytes]:
        content = b""
        try:
            content = read(place)
            pixels = decode(content, decoding)
        except RefusedError as refusal:
            return Outcome(str(refusal), digest(content)), b""
        return Outcome(None, digest(content), digest(pixels)), pixels.tobytes()

    total, outcomes = len(about["entries"]), []
    with (folder / "pixels.npy").open("wb") as file, quiet_pillow():
        _write_header(file, 0, decoding)
        for outcome, pixels in _in_order(work, total, workers):
            outcomes.append(outcome)
            file.write(pixels)
            if progress:
                progress(len(outcomes), total)
        file.seek(0)
        _write_header(file, sum(outcome.reason is None for outcome in outcomes), decoding)
        file.flush()
        os.fsync(file.fileno())
    manifest = {**about, "outcomes": [list(astuple(outcome)) for outcome in outcomes]}
    with (folder / "manifest.json").open("w", encoding="ascii") as text:
        json.dump(manifest, text)  # in ASCII, which keeps names that are no UTF-8
        text.flush()
        os.fsync(text.fileno())


def _write_header(file: Any, count: int, decoding: Decoding) -> None:
    """The header of a .npy file; NumPy leaves room for any count, so that it can be rewritten."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, *decoding.shape)}
    np.lib.format.write_array_header_1_0(file, header)


def _in_order(work: Callable[[int], T], total: int, workers: int) -> Iterator[T]:
    """work(0), work(1), ... by several threads, with few results waiting at any time."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for place in range(total):
                waiting.append(pool.submit(work, place))
                if len(waiting) > 4 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _settled(made: Path, home: Path, about: dict[str, Any]) -> Decoded:
    """Open a new entry and give it its name, unless another process was faster.

    What is opened stays as it is, whatever other processes do with the names.
    """
    found = _opened(made, about)
    if found is None:
        raise OSError(errno.EIO, "what was written cannot be read back", str(made))
    for _ in range(2):
        try:
            made.rename(home)
            break
        except OSError:
            if _opened(home, about):
                break
            aside = home.with_name(f".making-{secrets.token_hex(8)}")
            with contextlib.suppress(OSError):  # a damaged one is in the way
                home.rename(aside)
                shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
    return found


def _opened(home: Path, about: dict[str, Any]) -> Decoded | None:
    """An entry of the cache, if it is there and sound."""
    try:
        manifest = json.loads((home / "manifest.json").read_text(encoding="ascii"))
        outcomes = tuple(Outcome(*values) for values in manifest.pop("outcomes"))
        if manifest != about or len(outcomes) != len(about["entries"]):
            return None
        digests = [o.pixel_digest for o in outcomes if o.reason is None]
        pixels = _mapped(home / "pixels.npy", len(digests), about["settings"])
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
        os.utime(home / "manifest.json")
    return Decoded(pixels, outcomes, from_cache=True)


def _mapped(path: Path, count: int, settings: dict[str, Any]) -> NDArray[np.uint8]:
    shape = (count, settings["channels"], settings["height"], settings["width"])
    if not count:
        return np.empty(shape, np.uint8)
    pixels: NDArray[np.uint8] = np.load(path, mmap_mode="r", allow_pickle=False)
    if pixels.shape != shape or pixels.dtype != np.uint8 or not pixels.flags.c_contiguous:
        raise ValueError("another array")
    return pixels


def _clean(cache: Path, stale: str, keep: Path) -> None:
    """Remove what killed processes left, and old states of the same files that nobody opens."""
    for pattern, days in ((".making-*", 1), (f"{stale}-*", UNUSED_DAYS)):
        for folder in cache.glob(pattern):
            with contextlib.suppress(OSError):
                ages = [time.time() - path.stat().st_mtime for path in (folder, *folder.iterdir())]
                if folder != keep and min(ages) > days * DAY:
                    shutil.rmtree(folder, ignore_errors=True)
