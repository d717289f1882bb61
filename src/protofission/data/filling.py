"""Filling a store, block by block: a killed process loses the blocks it was at, and no others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from protofission.data.images import Labels
from protofission.data.mapped import release
from protofission.data.store import (
    FEATURE_BYTES,
    Block,
    Features,
    Part,
    Plan,
    Store,
    as_manifest,
    digest,
    file_of,
    fingerprint,
    finished_blocks,
    label_file,
    mapped_features,
    read_manifest,
)
from protofission.errors import InputError, printable, require
from protofission.records import ViewName
from protofission.whole import is_partial, locked, write_whole

BlockFeatures = dict[ViewName, Features]
"""(images, versions, ...) of each view of a block."""
Compute = Callable[[Sequence[Block]], Iterator[tuple[Block, BlockFeatures]]]
"""The features of blocks, in any order."""
Paths = Mapping[str, Sequence[str]]
"""Of the images of each part."""
Progress = Callable[[int, int], None]
"""Called with the images that are done, and all."""

_EXPONENT = np.uint16(0x7C00)
_MAGNITUDE = np.uint16(0x7FFF)


def fill(
    folder: Path,
    plan: Plan,
    labels: Mapping[str, Labels],
    compute: Compute,
    progress: Progress | None = None,
    *,
    paths: Paths | None = None,
    wait: bool = False,
) -> Store:
    """The store of a plan: what is missing of it is computed, what is there and sound is kept.

    Args:
        labels: by the name of their part, with "-coarse" for coarse ones.
        paths: where the images of a part came from, if they were files.
        wait: for another process that is filling the same folder.

    Raises:
        InputError: the folder holds something else, features are of no use, or the disk is full.
    """
    check_destination(folder, plan)
    blocks = list(plan.blocks())
    total = sum(part.rows for part in plan.parts.values())
    try:
        with locked(folder, wait=wait):
            done = _sound(folder, plan)
            if len(done) == len(blocks) and _is_finished(folder):
                return Store.open(folder)
            _write_journal(folder, done)  # before the manifest that says it is unfinished
            _lay_out(folder, plan, labels, paths or {})
            with ExitStack() as opened:
                journal = opened.enter_context((folder / "blocks.jsonl").open("ab"))
                files = {
                    (part, view): opened.enter_context(_opened(folder / file_of(part, view)))
                    for part, about in plan.parts.items()
                    for view in about.views
                }
                rows = sum(block.stop - block.start for block in done)
                if progress:
                    progress(rows, total)
                for block, features in compute([b for b in blocks if b not in done]):
                    _check(features, block, plan, paths or {})
                    done[block] = _write(block, features, plan, files)
                    journal.write(_entry(block, done[block]))
                    journal.flush()
                    os.fsync(journal.fileno())
                    rows += block.stop - block.start
                    if progress:
                        progress(rows, total)
            digests = {
                file_of(part, view): [done[b][view] for b in blocks if b.part == part]
                for part, about in plan.parts.items()
                for view in about.views
            }
            for name, values in labels.items():
                digests[label_file(name)] = [digest(values.tobytes())]
            write_whole(folder / "manifest.json", as_manifest(plan, digests).encode())
            (folder / "blocks.jsonl").unlink()
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written ({error.strerror or error}): make room and give the same "
            "command again, it goes on where it was."
        ) from None
    return Store.open(folder)


def check_destination(folder: Path, plan: Plan | None = None) -> None:
    """Refuse a folder that holds anything but a store, or a store of another plan."""
    require(
        folder.is_dir() or not folder.exists(), f"{folder} is a file: name a folder for the store."
    )
    found = read_manifest(folder)
    if found is None:
        here = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        ours = (".lock", "blocks.jsonl", "labels")
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


def _is_finished(folder: Path) -> bool:
    """Whether the store is complete, with labels that are its own."""
    try:
        Store.open(folder).labeling()
    except InputError:
        return False
    return True


def _sound(folder: Path, plan: Plan) -> dict[Block, dict[ViewName, str]]:
    """The finished blocks whose bytes are still those that were written."""
    found = read_manifest(folder)
    if found is None:
        return {}
    digests = found[1]
    claimed = finished_blocks(folder, plan)
    if digests is not None:
        claimed = {
            block: {
                view: digests[file_of(block.part, view)][block.start // plan.block]
                for view in plan.parts[block.part].views
            }
            for block in plan.blocks()
        }
    arrays: dict[tuple[str, ViewName], Features] = {}
    for part, about in plan.parts.items():
        for view in about.views:
            try:
                arrays[part, view] = mapped_features(
                    folder / file_of(part, view), plan.shape(part, view)
                )
            except InputError:  # cut short or gone: made anew
                claimed = {block: known for block, known in claimed.items() if block.part != part}
    sound = {}
    for block, known in claimed.items():
        views = {view: arrays[block.part, view] for view in plan.parts[block.part].views}
        if all(
            digest(array[block.start : block.stop].tobytes()) == known[view]
            for view, array in views.items()
        ):
            sound[block] = known
        for array in views.values():
            release(array)
    return sound


def _lay_out(folder: Path, plan: Plan, labels: Mapping[str, Labels], paths: Paths) -> None:
    """The manifest, labels and paths, and a file of full size for each view."""
    write_whole(folder / "manifest.json", as_manifest(plan, None).encode())
    for name, values in labels.items():
        header = npy_header(values.dtype.str, values.shape)
        write_whole(folder / label_file(name), header + values.tobytes())
    if paths:
        write_whole(folder / "paths.json", json.dumps(paths).encode("ascii"))
    for part, about in plan.parts.items():
        for view in about.views:
            shape = plan.shape(part, view)
            header = npy_header("<f2", shape)
            size = len(header) + FEATURE_BYTES * int(np.prod(shape, dtype=np.int64))
            with (folder / file_of(part, view)).open("ab") as file:
                file.truncate(size)
            with _opened(folder / file_of(part, view)) as file:
                file.write(header)


def _opened(path: Path) -> BinaryIO:
    return path.open("r+b", buffering=0)


def npy_header(kind: str, shape: tuple[int, ...]) -> bytes:
    """The beginning of an .npy file, of the same length for any number of rows."""
    from io import BytesIO

    content = BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(content, header)
    return content.getvalue()


def _write_journal(folder: Path, done: Mapping[Block, dict[ViewName, str]]) -> None:
    lines = b"".join(_entry(block, digests) for block, digests in done.items())
    write_whole(folder / "blocks.jsonl", lines)


def _entry(block: Block, digests: Mapping[ViewName, str]) -> bytes:
    return json.dumps({**block._asdict(), "digests": dict(digests)}).encode() + b"\n"


def _check(features: BlockFeatures, block: Block, plan: Plan, paths: Paths) -> None:
    """Refuse features that are not numbers, and vectors of zeros: they have no direction."""
    for view, values in features.items():
        bits = np.ascontiguousarray(values).view(np.uint16).reshape(*values.shape[:2], -1)
        endless = ((bits & _EXPONENT) == _EXPONENT).any((1, 2))
        zero = ((bits & _MAGNITUDE) == 0).all(2).any(1) & (len(plan.item) == 1)
        for what, bad in (("NaN, infinity or more than 65504", endless), ("nothing but 0", zero)):
            if bad.any():
                row = block.start + int(bad.argmax())
                named = f" ({printable(paths[block.part][row])})" if block.part in paths else ""
                raise InputError(
                    f"The {view} features of {block.part} image {row}{named} hold {what}: leave "
                    "the image out, or choose another encoder."
                )


def _write(
    block: Block,
    features: BlockFeatures,
    plan: Plan,
    files: Mapping[tuple[str, ViewName], BinaryIO],
) -> dict[ViewName, str]:
    """Write a block's features to their places, down to the disk; their digests."""
    digests = {}
    for view in plan.parts[block.part].views:
        shape = plan.shape(block.part, view)
        content = np.ascontiguousarray(features[view], "<f2").tobytes()
        row = FEATURE_BYTES * int(np.prod(shape[1:], dtype=np.int64))
        file = files[block.part, view]
        place = len(npy_header("<f2", shape)) + block.start * row
        left = memoryview(content)
        while left:  # a write may be cut short
            written = os.pwrite(file.fileno(), left, place)
            left, place = left[written:], place + written
        os.fsync(file.fileno())
        digests[view] = digest(content)
    return digests


def store_features(
    folder: Path,
    views: Mapping[ViewName, NDArray[Any]],
    labels: Labels,
    class_names: Sequence[str],
    *,
    test: NDArray[Any] | None = None,
    test_labels: Labels | None = None,
    name: str = "features",
) -> Store:
    """Features that were computed elsewhere as a store.

    Args:
        views: (images, D), or (images, versions, D), by view; a plain one is among them.
        labels: (images,), places in `class_names`, or -1.
        test: (images, D), plain features that judge, if there are any, with their labels.
    """
    require("plain" in views, "Features want a plain view, by which a model is judged: add it.")
    parts: dict[str, dict[ViewName, NDArray[Any]]] = {"train": dict(views)}
    if test is not None:
        parts["test"] = {"plain": test}
    arrays = {
        (part, view): array if array.ndim == 3 else array[:, None]
        for part, own in parts.items()
        for view, array in own.items()
    }
    truth = {"train": labels, **({} if test_labels is None else {"test": test_labels})}
    wide = arrays["train", "plain"].shape[2:]
    for (part, view), array in arrays.items():
        require(
            array.ndim == 3
            and array.shape[2:] == wide
            and part in truth
            and len(array) == len(truth[part]) > 0,
            f"The {view} features of {part} have the shape {array.shape}: (images, D) or (images, "
            f"versions, D) is wanted, with D = {wide[0] if wide else 0} and a label for each.",
        )
    content = {f"{part}-{view}": digest(a.tobytes()) for (part, view), a in arrays.items()}
    content |= {part: digest(values.tobytes()) for part, values in truth.items()}
    given = {"kind": "given", "fingerprint": fingerprint(content)}
    plan = Plan(
        data={**given, "name": name, "shape": list(wide)},
        encoder=given,
        augmentation=given,
        item=tuple(wide),
        parts={
            part: Part(len(truth[part]), {view: arrays[part, view].shape[1] for view in own})
            for part, own in parts.items()
        },
        block=8192,
        class_names=tuple(class_names),
    )

    def compute(blocks: Sequence[Block]) -> Iterator[tuple[Block, BlockFeatures]]:
        for block in blocks:
            rows = slice(block.start, block.stop)
            views = plan.parts[block.part].views
            yield block, {v: arrays[block.part, v][rows].astype(np.float16) for v in views}

    return fill(folder, plan, truth, compute)
