"""A store: features of several views of every image, computed once and memory-mapped.

manifest.json      its contents, their fingerprints, and the digest of every block
train-weak.npy     float16, (images, versions of the view, ...); one for each view of each part
labels/train.npy   apart from the features: only splits and evaluation open them
blocks.jsonl       the journal of finished blocks; it replaces a lost manifest

A store in shards has shards.json instead, and such a store in each of its shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, printable, require
from protofission.core.records import ViewName, Views
from protofission.data.image_sets import NO_LABEL, Labels
from protofission.data.splits.labeling import Labeling
from protofission.data.store.journal import finished_blocks
from protofission.data.store.manifest import (
    PATHS,
    REPAIR,
    Features,
    StorePlan,
    feature_bytes,
    label_file,
    npy_header,
    read_store_manifest,
    view_file,
)
from protofission.data.store.mapped_arrays import MappedRows, release
from protofission.system.digests import digest
from protofission.system.json_files import as_type, parse_json
from protofission.system.plain_files import open_plain, read_plain

MOST_VERIFIED_BYTES = 2**30
"""The size limit of a store's file of labels or of paths."""


class RowReader(Protocol):
    """Reads rows of a view by their numbers."""

    def __getitem__(self, places: NDArray[np.int64], /) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Store:
    """A finished store; the sizes of its files are checked when it is opened, digests when read."""

    folder: Path
    plan: StorePlan
    digests: dict[str, list[str]]
    """The digest of each block of each file; the files of labels and paths are one block."""

    @staticmethod
    def open(folder: Path | str) -> Store:
        """Open the store in a folder.

        Raises:
            InputError: there is none, or it is unfinished, cut short or damaged.
        """
        from protofission.data.store.shards import ShardedStore

        where = Path(folder).expanduser()
        if (sharded := ShardedStore.open_shards(where)) is not None:
            return sharded
        manifest = read_store_manifest(where)
        if manifest is None:
            raise InputError(f"{printable(str(where))} is not a store: {_MAKE}.")
        plan, digests = manifest
        if digests is None:
            done, total = len(finished_blocks(where, plan)), plan.number_of_blocks()
            raise InputError(
                f"{printable(str(where))} is an unfinished store, with {done} of {total} blocks: "
                "give the command that began it again, and it goes on."
            )
        store = Store(where, plan, digests)
        for part, about in plan.parts.items():
            for view in about.views:
                store.map_view(part, view)
        return store

    def map_view(self, part: str, view: ViewName) -> Features:
        """Memory-map the features of a view, (images, versions, ...); digests are not checked."""
        path, shape = self.folder / view_file(part, view), self.plan.shape(part, view)
        return map_features(path, shape)

    def map_verified_view(self, part: str, view: ViewName) -> Features:
        """Memory-map the features of a view after comparing each block with its digest."""
        name, step = view_file(part, view), self.plan.block
        array, known = self.map_view(part, view), self.digests[name]
        starts = range(0, len(array), step)
        for place, start in enumerate(starts):
            sound = digest(array[start : start + step].tobytes()) == known[place]
            release(array)
            require(
                sound,
                f"{self.folder / name} was edited or damaged at image {start}: {REPAIR}.",
            )
        return array

    def view_rows(self, part: str, view: ViewName, bound: int) -> RowReader:
        """A reader of rows of a view, image by image and version by version, after a check.

        Args:
            bound: bytes that are held in memory at a time.
        """
        array = self.map_verified_view(part, view)
        return MappedRows(array.reshape(-1, *array.shape[2:]), bound)

    def labeling(self) -> Labeling:
        """The labels of all images, to make a split of."""
        train, coarse = self._labels("train")
        test, coarse_test = self._labels("test") if "test" in self.plan.parts else (None, None)
        names = self.plan.class_names
        return Labeling(train, len(names), test, names, coarse, coarse_test, self.plan.coarse_names)

    def _labels(self, part: str) -> tuple[Labels, Labels | None]:
        coarse, plan = label_file(f"{part}-coarse"), self.plan
        return (
            self._label_file(label_file(part), part, len(plan.class_names)),
            self._label_file(coarse, part, len(plan.coarse_names))
            if coarse in self.digests
            else None,
        )

    def _label_file(self, name: str, part: str, classes: int) -> Labels:
        """Read a file of labels, and check that each is a class or NO_LABEL."""
        rows = self.plan.parts[part].rows
        header, content = npy_header("<i8", (rows,)), self._read_verified(name)
        if not content.startswith(header) or len(content) != len(header) + 8 * rows:
            _refuse_damaged(self.folder / name)
        labels = np.frombuffer(content, np.int64, offset=len(header))
        if rows and not NO_LABEL <= labels.min() <= labels.max() < classes:
            _refuse_damaged(self.folder / name)
        return labels

    def paths(self) -> dict[str, list[str]]:
        """The files of the images, by part; empty if the images were not files."""
        if PATHS not in self.digests:
            return {}
        try:
            found = as_type(
                parse_json(self._read_verified(PATHS)), dict[str, tuple[str, ...]], PATHS
            )
        except InputError:
            _refuse_damaged(self.folder / PATHS)
        rows = {part: about.rows for part, about in self.plan.parts.items()}
        if any(rows.get(part) != len(own) for part, own in found.items()):
            _refuse_damaged(self.folder / PATHS)
        return {part: list(own) for part, own in found.items()}

    def _read_verified(self, name: str) -> bytes:
        """Read a small file, and compare it with its digest."""
        path = self.folder / name
        try:
            content = read_plain(path, MOST_VERIFIED_BYTES)
        except FileNotFoundError:
            raise InputError(f"{path} is missing: {REPAIR}.") from None
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}): {REPAIR}.") from None
        if [digest(content)] != self.digests[name]:
            _refuse_damaged(path)
        return content

    def check(self, wanted: Views) -> None:
        """Refuse a method that wants more views of an image than the store has."""
        have = self.plan.parts["train"].views
        parts = (wanted.labeled, wanted.unlabeled)
        needs = {name: max(names.count(name) for names in parts) for name in chain(*parts)}
        lacks = {name: needed for name, needed in needs.items() if have.get(name, 0) < needed}
        told = ", ".join(f"{have.get(name, 0)} {name} views of an image" for name in lacks)
        more = ", ".join(f"{needed} {name}" for name, needed in lacks.items())
        options = " ".join(f"--{name} {needed}" for name, needed in lacks.items())
        require(
            not lacks,
            f"{printable(str(self.folder))} has {told}, and the method wants {more}: make a store "
            f"with {options}.",
        )


def map_features(path: Path, shape: tuple[int, ...]) -> Features:
    """Memory-map a file of features of a shape.

    Raises:
        InputError: it is missing, cut short, or of another shape.
    """
    if not shape[0]:
        return np.empty(shape, np.float16)
    header = npy_header("<f2", shape)
    try:
        with open_plain(path) as file:
            found = file.read(len(header))
            size = file.seek(0, 2)
            if size < len(header) + feature_bytes(shape):
                raise InputError(f"{path} is cut short: {REPAIR}.")
            if found != header or size > len(header) + feature_bytes(shape):
                _refuse_damaged(path)
            return np.memmap(file, np.float16, "r", len(header), shape)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {REPAIR}.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {REPAIR}.") from None


def _refuse_damaged(path: Path) -> NoReturn:
    raise InputError(f"{path} was edited or damaged: {REPAIR}.")


_MAKE = "make one with `protofission embed DATA --out STORE`"
