"""Fill a store, block by block: a killed process loses only the blocks it was working on."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from protofission.core.errors import InputError, printable, require
from protofission.core.progress import Progress
from protofission.core.records import ViewName
from protofission.data.image_sets import Labels
from protofission.data.store.journal import JOURNAL, JournalEntry, finished_blocks, read_journal
from protofission.data.store.manifest import (
    PATHS,
    Block,
    DamagedManifestError,
    Features,
    StoreManifest,
    StorePlan,
    feature_bytes,
    label_file,
    manifest_text,
    npy_header,
    read_store_manifest,
    view_file,
)
from protofission.data.store.reader import Store
from protofission.data.store.unusable_features import UnusableFeatures
from protofission.system.digests import digest
from protofission.system.locks import LOCK_FILE, folder_lock
from protofission.system.partial_files import clear_partial, is_partial
from protofission.system.plain_files import APPENDED, open_plain, write_all
from protofission.system.whole_files import write_whole

BlockFeatures = dict[ViewName, Features]
"""(images, versions, ...) of each view of a block."""
Computed = Generator[tuple[Block, BlockFeatures], None, None]
Compute = Callable[[Sequence[Block]], Computed]
"""Computes the features of blocks, in any order."""
Paths = Mapping[str, Sequence[str]]
"""The files of the images, by part."""


def fill(
    folder: Path,
    plan: StorePlan,
    labels: Mapping[str, Labels],
    compute: Compute,
    progress: Progress | None = None,
    *,
    paths: Paths | None = None,
    wait: bool = False,
) -> Store:
    """Fill the store of a plan: blocks that are there and sound are kept, the others computed.

    Args:
        labels: by part, with "-coarse" after the part's name for coarse ones.
        paths: the files of the images, by part, if they were files.
        wait: wait for another process that is filling the same folder, instead of a refusal.

    Raises:
        InputError: the folder holds something else, features are unusable, or the disk is full.
    """
    check_store_destination(folder, plan)
    blocks = list(plan.blocks())
    total = sum(part.rows for part in plan.parts.values())
    faults = UnusableFeatures(plan, paths or {})
    try:
        with folder_lock(folder, wait=wait):
            clear_partial(folder / "labels")
            done = _sound(folder, plan)
            if len(done) == len(blocks) and _is_finished(folder):
                return Store.open(folder)
            _write_journal(folder, plan, done)  # before the manifest that says it is unfinished
            _lay_out(folder, plan, labels, paths or {})
            with ExitStack() as opened:
                journal = opened.enter_context(open_plain(folder / JOURNAL, APPENDED))
                files = {
                    (part, view): opened.enter_context(
                        open_plain(folder / view_file(part, view), os.O_RDWR)
                    )
                    for part, about in plan.parts.items()
                    for view in about.views
                }
                rows = sum(block.stop - block.start for block in done)
                if progress:
                    progress(rows, total)
                missing = [block for block in blocks if block not in done]
                for block, features in opened.enter_context(closing(compute(missing))):
                    if faults.check_block(block, features):
                        continue  # to find all unusable ones
                    done[block] = _write(block, features, plan, files)
                    write_all(journal, JournalEntry(plan.identity, block, done[block]).line())
                    rows += block.stop - block.start
                    if progress:
                        progress(rows, total)
            faults.refuse()
            digests = {
                view_file(part, view): [done[b][view] for b in blocks if b.part == part]
                for part, about in plan.parts.items()
                for view in about.views
            }
            for name, values in labels.items():
                digests[label_file(name)] = [digest(_label_content(values))]
            if paths:
                digests[PATHS] = [digest(_path_content(paths))]
            _write_journal(folder, plan, {block: done[block] for block in blocks})
            write_whole(folder / "manifest.json", manifest_text(plan, digests).encode())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise InputError(
            f"{folder} cannot be written ({error.strerror or error}): "
            f"{'make room' if full else 'correct that'} and give the same command again, it goes "
            "on where it was."
        ) from None
    return Store.open(folder)


def check_store_destination(folder: Path, plan: StorePlan | None = None) -> None:
    """Refuse a folder that holds anything but a store, or a store of another plan."""
    require(
        folder.is_dir() or not folder.exists(), f"{folder} is a file: name a folder for the store."
    )
    found = _manifest(folder)
    if found is None and (journal := read_journal(folder)):
        require(
            plan is None or {entry.plan for entry in journal} == {plan.identity},
            f"{folder} has lost its manifest, and holds a store of other images, another encoder "
            "or engine, or other views: name another folder, or delete it.",
        )
    elif found is None:
        here = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        ours = (LOCK_FILE, JOURNAL, *(["labels"] if JOURNAL in here else []))
        foreign = [n for n in here if n not in ours and not is_partial(Path(n))]
        require(
            not foreign,
            f"{folder} holds other files, such as {printable(foreign[0]) if foreign else ''}: "
            "name a new folder for the store.",
        )
    elif plan is not None and (differ := plan.differences(found[0])):
        raise InputError(
            f"{folder} holds a store of {' and '.join(differ)}: name another folder, or delete it."
        )


def _manifest(folder: Path) -> StoreManifest | None:
    """Read the manifest; None if there is none, or if it is damaged and the journal is there."""
    try:
        return read_store_manifest(folder)
    except DamagedManifestError:
        if not read_journal(folder):
            raise InputError(
                f"{folder / 'manifest.json'} was edited or damaged, and {JOURNAL} tells nothing "
                "of the blocks: delete the store's folder, and make it again."
            ) from None
        return None


def _is_finished(folder: Path) -> bool:
    """Whether the store is complete, and its labels and paths are sound."""
    try:
        store = Store.open(folder)
        store.labeling()
        store.paths()
    except InputError:
        return False
    return True


def _sound(folder: Path, plan: StorePlan) -> dict[Block, dict[ViewName, str]]:
    """The finished blocks whose bytes still have their digests, with these."""
    found, claimed = _manifest(folder), finished_blocks(folder, plan)
    digests = found and found[1]
    if digests is not None:
        claimed |= {
            block: {
                view: digests[view_file(block.part, view)][block.start // plan.block]
                for view in plan.parts[block.part].views
            }
            for block in plan.blocks()
        }
    sound = {}
    with ExitStack() as opened:
        files: dict[str, BinaryIO] = {}
        for path in folder.glob("*.npy"):
            with suppress(OSError):
                files[path.name] = opened.enter_context(open_plain(path))
        for block, known in claimed.items():
            if all(
                digest(_read(files.get(view_file(block.part, view)), plan, block, view)) == value
                for view, value in known.items()
            ):
                sound[block] = known
    return sound


def _place(plan: StorePlan, block: Block, view: ViewName) -> tuple[int, int]:
    """The offset of a block in the file of a view, and its size, both in bytes."""
    shape = plan.shape(block.part, view)
    row, begin = feature_bytes(shape[1:]), len(npy_header("<f2", shape))
    return begin + block.start * row, (block.stop - block.start) * row


def _read(file: BinaryIO | None, plan: StorePlan, block: Block, view: ViewName) -> bytes:
    """Read a block; fewer bytes if the file is cut short, none if it is missing."""
    if file is None:
        return b""
    place, size = _place(plan, block, view)
    file.seek(place)
    return file.read(size)


def _lay_out(folder: Path, plan: StorePlan, labels: Mapping[str, Labels], paths: Paths) -> None:
    """Write the manifest, labels and paths, and create a file of full size for each view."""
    write_whole(folder / "manifest.json", manifest_text(plan, None).encode())
    for name, values in labels.items():
        write_whole(folder / label_file(name), _label_content(values))
    if paths:
        write_whole(folder / PATHS, _path_content(paths))
    for part, about in plan.parts.items():
        for view in about.views:
            path, shape = folder / view_file(part, view), plan.shape(part, view)
            require(
                not path.is_symlink() and (path.is_file() or not path.exists()),
                f"{path} is not a plain file: delete it, and give the same command again.",
            )
            header = npy_header("<f2", shape)
            with open_plain(path, os.O_RDWR | os.O_CREAT) as file:
                file.truncate(len(header) + feature_bytes(shape))
                file.write(header)


def _label_content(labels: Labels) -> bytes:
    return npy_header("<i8", labels.shape) + labels.astype("<i8").tobytes()


def _path_content(paths: Paths) -> bytes:
    return json.dumps({part: list(own) for part, own in paths.items()}).encode("ascii")


def _write_journal(
    folder: Path, plan: StorePlan, done: Mapping[Block, dict[ViewName, str]]
) -> None:
    lines = (JournalEntry(plan.identity, block, digests).line() for block, digests in done.items())
    write_whole(folder / JOURNAL, b"".join(lines))


def _write(
    block: Block,
    features: BlockFeatures,
    plan: StorePlan,
    files: Mapping[tuple[str, ViewName], BinaryIO],
) -> dict[ViewName, str]:
    """Write a block's features to their places on the disk; return their digests."""
    digests = {}
    for view in plan.parts[block.part].views:
        content = np.ascontiguousarray(features[view], "<f2").tobytes()
        file = files[block.part, view]
        place, _ = _place(plan, block, view)
        left = memoryview(content)
        while left:  # a write may be cut short
            written = os.pwrite(file.fileno(), left, place)
            left, place = left[written:], place + written
        os.fsync(file.fileno())
        digests[view] = digest(content)
    return digests
