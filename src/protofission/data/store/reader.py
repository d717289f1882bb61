"""A store: features of several views of every image, computed once and memory-mapped.

    manifest.json      what is in it, its fingerprints, and the digest of every block
    train-weak.npy     float16, (images, versions of the view, ...); so for each view of each part
    labels/train.npy   apart from the features: only a split and a judge open them
    blocks.jsonl       the journal: the blocks that are finished; it stands in for a lost manifest

Methods ask for views by name, as they do of images; a store gives one of the versions it has.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from protofission.core.errors import InputError, printable, require
from protofission.core.records import WHOLE, Share, ViewName, Views
from protofission.core.rng import step_rng
from protofission.data.augment.views import Augmentations, ViewRequest
from protofission.data.image_sets import NO_LABEL, Labels, TestData, TrainingData, pool_indices
from protofission.data.readers.image_cache import digest
from protofission.data.splits import Labeling, Split
from protofission.data.store.manifest import (
    MEND,
    PATHS,
    Features,
    Plan,
    file_of,
    finished_blocks,
    label_file,
    npy_header,
    read_manifest,
    size_of,
)
from protofission.data.store.mapped_arrays import Rows, release
from protofission.system.json_files import parsed_json, typed
from protofission.system.plain_files import open_plain, read_plain

MAPPED = 2**29
"""Bytes of one view that are held in memory at a time."""
MOST_BYTES = 2**30
"""Of the file of labels, or of paths, of a store."""


@dataclass(frozen=True)
class Store:
    """A finished store, its files of the right size; what is read of it is verified first."""

    folder: Path
    plan: Plan
    digests: dict[str, list[str]]
    """Of each file, block by block; label files are one block."""

    @staticmethod
    def open(folder: Path | str) -> Store:
        """The store in a folder.

        Raises:
            InputError: there is none, it is unfinished, cut short or damaged.
        """
        where = Path(folder).expanduser()
        manifest = read_manifest(where)
        if manifest is None:
            raise InputError(f"{printable(str(where))} is no store: {_MAKE}.")
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
                store.mapped(part, view)
        return store

    def mapped(self, part: str, view: ViewName) -> Features:
        """The features of a view, (images, versions, ...), memory-mapped and not yet verified."""
        path, shape = self.folder / file_of(part, view), self.plan.shape(part, view)
        return mapped_features(path, shape)

    def verified(self, part: str, view: ViewName) -> Features:
        """The features of a view, each block compared with its digest."""
        name, step = file_of(part, view), self.plan.block
        array, known = self.mapped(part, view), self.digests[name]
        starts = range(0, len(array), step)
        for place, start in enumerate(starts):
            sound = digest(array[start : start + step].tobytes()) == known[place]
            release(array)
            require(
                sound,
                f"{self.folder / name} was edited or damaged at image {start}: {MEND}.",
            )
        return array

    def labeling(self) -> Labeling:
        """The labels of all images, for a split."""
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
        """The labels of a part, each of them a class or NO_LABEL."""
        rows = self.plan.parts[part].rows
        header, content = npy_header("<i8", (rows,)), self._sound_file(name)
        if not content.startswith(header) or len(content) != len(header) + 8 * rows:
            _damaged(self.folder / name)
        labels = np.frombuffer(content, np.int64, offset=len(header))
        if rows and not NO_LABEL <= labels.min() <= labels.max() < classes:
            _damaged(self.folder / name)
        return labels

    def paths(self) -> dict[str, list[str]]:
        """Where the images of each part came from, if they were files."""
        if PATHS not in self.digests:
            return {}
        try:
            found = typed(parsed_json(self._sound_file(PATHS)), dict[str, tuple[str, ...]], PATHS)
        except InputError:
            _damaged(self.folder / PATHS)
        rows = {part: about.rows for part, about in self.plan.parts.items()}
        if any(rows.get(part) != len(own) for part, own in found.items()):
            _damaged(self.folder / PATHS)
        return {part: list(own) for part, own in found.items()}

    def _sound_file(self, name: str) -> bytes:
        """The content of a small file, compared with its digest."""
        path = self.folder / name
        try:
            content = read_plain(path, MOST_BYTES)
        except FileNotFoundError:
            raise InputError(f"{path} is missing: {MEND}.") from None
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}): {MEND}.") from None
        if [digest(content)] != self.digests[name]:
            _damaged(path)
        return content

    def check(self, wanted: Views) -> None:
        """Refuse a method that wants views of an image which the store does not have."""
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


class StoredViews(Augmentations):
    """The views of a store, float16. Its images are row numbers: those of train, then of test."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.first_test = store.plan.parts["train"].rows
        self._opened: dict[tuple[str, ViewName], Rows] = {}

    def plain(self, images: Tensor) -> Tensor:
        """(n, ...): the features of the images as they are."""
        return self._features("plain", images, torch.zeros(len(images), dtype=torch.long))

    def view(
        self,
        name: ViewName,
        images: Tensor,
        generator: torch.Generator,
        share: Share = WHOLE,
        nth: int = 0,
    ) -> Tensor:
        """One of the stored versions of a view; for each `nth` of a step another one.

        Args:
            images: (n,) row numbers.
            generator: of the step; versions are a function of its seed.
        """
        request = ViewRequest(name, images, nth)
        return self._features(name, images, self._versions(request, generator, share))

    def views(
        self, requests: Sequence[ViewRequest], generator: torch.Generator, share: Share = WHOLE
    ) -> Tensor:
        """All views of a step, as float32; read in one go where they have one name."""
        names = {r.name for r in requests}
        if len(names) > 1:
            return super().views(requests, generator, share)
        rows = torch.cat([r.images for r in requests])
        versions = torch.cat([self._versions(r, generator, share) for r in requests])
        return self._features(names.pop(), rows, versions).float()

    def _versions(self, request: ViewRequest, generator: torch.Generator, share: Share) -> Tensor:
        """(n,): the version of the view that each image gets."""
        if request.name == "plain":
            return torch.zeros(len(request.images), dtype=torch.long)
        batch = share.total(len(request.images))
        versions = self.store.plan.parts["train"].views[request.name]
        order = _order(generator.initial_seed(), request.name, batch, versions)
        return order[share.of(batch), request.nth]

    def _features(self, name: ViewName, rows: Tensor, versions: Tensor) -> Tensor:
        device, rows = rows.device, rows.cpu()
        test = rows >= self.first_test
        if not test.any():
            return self._part("train", name, rows, versions).to(device)
        found = torch.empty(len(rows), *self.store.plan.item, dtype=torch.float16)
        found[~test] = self._part("train", name, rows[~test], versions[~test])
        found[test] = self._part("test", name, rows[test] - self.first_test, versions[test])
        return found.to(device)

    def _part(self, part: str, name: ViewName, rows: Tensor, versions: Tensor) -> Tensor:
        if (part, name) not in self._opened:
            array = self.store.verified(part, name)
            flat = array.reshape(-1, *array.shape[2:])
            self._opened[part, name] = Rows(flat, MAPPED)
        count = self.store.plan.parts[part].views[name]
        places = (rows * count + versions).numpy()
        return torch.from_numpy(self._opened[part, name][places])


@functools.lru_cache(maxsize=4)
def _order(seed: int, name: ViewName, batch: int, versions: int) -> Tensor:
    """(batch, versions): the versions of each image, in the order in which a step takes them."""
    generator = step_rng(seed, 0, f"versions of {name}")
    return torch.rand(batch, versions, generator=generator).argsort(1)


def divide_store(
    store: Store, split: Split, *, pool_has_labeled: bool = False
) -> tuple[TrainingData, TestData]:
    """The rows of a store by a split, classes renumbered so that the seen ones come first."""
    fine = store.labeling()
    labeling = fine.coarse() if split.classes == "coarse" else fine
    labels = split.renumber(labeling.train)
    training = TrainingData(
        labeled=torch.from_numpy(split.labeled),
        labels=torch.from_numpy(labels[split.labeled]),
        unlabeled=torch.from_numpy(pool_indices(split, pool_has_labeled)),
        num_seen=len(split.seen_classes),
        num_classes=len(split.seen_classes) + len(split.novel_classes),
        # maps of a frozen trunk stand for the images that they were made of
        shape=store.plan.item if len(store.plan.item) == 1 else tuple(store.plan.data["shape"]),
    )
    rows, judged, finer = torch.from_numpy(split.test), labels, fine.train
    if split.test_on == "test" and labeling.test is not None and fine.test is not None:
        rows = rows + len(labels)
        judged, finer = split.renumber(labeling.test), fine.test
    own = finer[split.test] if split.classes == "coarse" else None
    return training, TestData(rows, judged[split.test], own)


def mapped_features(path: Path, shape: tuple[int, ...]) -> Features:
    """A file of features, memory-mapped, if it is one of the shape that is wanted."""
    if not shape[0]:
        return np.empty(shape, np.float16)
    header = npy_header("<f2", shape)
    try:
        with open_plain(path) as file:
            found = file.read(len(header))
            size = file.seek(0, 2)
            if size < len(header) + size_of(shape):
                raise InputError(f"{path} is cut short: {MEND}.")
            if found != header or size > len(header) + size_of(shape):
                _damaged(path)
            return np.memmap(file, np.float16, "r", len(header), shape)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {MEND}.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {MEND}.") from None


def _damaged(path: Path) -> NoReturn:
    raise InputError(f"{path} was edited or damaged: {MEND}.")


_MAKE = "make one with `protofission embed DATA --out STORE`"
