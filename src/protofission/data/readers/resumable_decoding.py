"""Decode many image files into one array on disk, block by block, and resume after a kill.

The array grows in PIXEL_FILE. A line of BLOCK_JOURNAL follows each block that is on disk, with the
digests of its images; whoever resumes keeps the blocks whose pixels still have these digests.
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from io import BufferedRandom, RawIOBase
from pathlib import Path
from typing import Any, TypeVar, cast

from protofission.core.errors import InputError
from protofission.core.progress import Progress
from protofission.data.readers.decode import Decoding, decode, quiet_pillow
from protofission.data.readers.image_formats import RefusedError
from protofission.data.store.manifest import npy_header
from protofission.system.digests import digest
from protofission.system.json_files import as_type, parse_json
from protofission.system.plain_files import open_plain

Item = TypeVar("Item")

PIXEL_FILE, BLOCK_JOURNAL = "pixels.npy", "blocks.jsonl"
BLOCK = 64
"""Images of a block, the most that a killed process loses."""


@dataclass(frozen=True)
class Outcome:
    """The result of reading one file."""

    reason: str | None
    """Reason why it was left out; None if it was read."""
    file_digest: str = ""
    pixel_digest: str = ""


_Outcomes = tuple[tuple[str | None, str, str], ...]


def outcomes_from_json(value: Any) -> list[Outcome]:
    """Read outcomes from JSON, as `outcomes_to_json` writes them.

    Raises:
        InputError: they are something else.
    """
    return [Outcome(*fields) for fields in as_type(value, _Outcomes, "outcomes")]


def outcomes_to_json(outcomes: list[Outcome]) -> list[list[Any]]:
    """Outcomes as plain JSON values."""
    return [list(astuple(outcome)) for outcome in outcomes]


def decode_files(
    folder: Path,
    total: int,
    read: Callable[[int], bytes],
    decoding: Decoding,
    workers: int,
    progress: Progress | None,
) -> list[Outcome]:
    """Decode files 0 ... total - 1 into the folder's PIXEL_FILE, in order; memory stays flat.

    Blocks that an earlier call left are kept where they are sound. The caller deletes BLOCK_JOURNAL
    once it has written down the outcomes.

    Args:
        read: the content of a file by its number, or RefusedError; called from several threads.
        workers: threads that decode.
    """

    def decode_one(number: int) -> tuple[Outcome, bytes]:
        content = b""
        try:
            content = read(number)
            pixels = decode(content, decoding)
        except RefusedError as refusal:
            return Outcome(str(refusal), digest(content)), b""
        return Outcome(None, digest(content), digest(pixels)), pixels.tobytes()

    with ExitStack() as opened:
        pixels = opened.enter_context(_open_writable(folder / PIXEL_FILE))
        journal = opened.enter_context(_open_writable(folder / BLOCK_JOURNAL))
        opened.enter_context(quiet_pillow())
        outcomes = _keep_sound_blocks(pixels, journal, decoding)
        if progress and outcomes:
            progress(len(outcomes), total)
        block: list[Outcome] = []
        for outcome, content in _map_in_order(decode_one, range(len(outcomes), total), workers):
            pixels.write(content)
            block.append(outcome)
            outcomes.append(outcome)
            if len(block) == BLOCK:
                pixels.flush()  # before the line that speaks of it
                journal.write(json.dumps(outcomes_to_json(block)).encode() + b"\n")
                journal.flush()
                block = []
            if progress:
                progress(len(outcomes), total)
        pixels.seek(0)
        kept = sum(outcome.reason is None for outcome in outcomes)
        pixels.write(npy_header("|u1", (kept, *decoding.shape)))
        pixels.flush()
        os.fsync(pixels.fileno())
    return outcomes


def _open_writable(path: Path) -> BufferedRandom:
    """Open a file to go on with, or a new one."""
    return BufferedRandom(cast(RawIOBase, open_plain(path, os.O_RDWR | os.O_CREAT)))


def _keep_sound_blocks(
    pixels: BufferedRandom, journal: BufferedRandom, decoding: Decoding
) -> list[Outcome]:
    """Return the outcomes of the blocks that are sound, and cut both files after them."""
    found: list[Outcome] = []
    ends = pixels.seek(len(npy_header("|u1", (0, *decoding.shape)))), 0
    size = math.prod(decoding.shape)
    for line in journal:
        try:  # the last line may be cut short
            block = outcomes_from_json(parse_json(line))
        except InputError:
            break
        digests = [outcome.pixel_digest for outcome in block if outcome.reason is None]
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


def _map_in_order(function: Callable[[int], Item], numbers: range, workers: int) -> Iterator[Item]:
    """Yield a function of each number by several threads, with few results waiting at any time."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Item]] = deque()
        try:
            for number in numbers:
                waiting.append(pool.submit(function, number))
                if len(waiting) > 4 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
