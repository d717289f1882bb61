"""A store: features of several views of every image, computed once and memory-mapped.

    manifest.json      what is in it, its fingerprints, and the digest of every block
    train-weak.npy     float16, (images, versions of the view, ...); so for each view of each part
    labels/train.npy   apart from the features: only a split and a judge open them
    blocks.jsonl       while it is being made: the blocks that are finished

Methods ask for views by name, as they do of images; a store gives one of the versions it has.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protofission.data.images import Labels, TestData, TrainingData, pool_of
from protofission.data.mapped import Rows, release
from protofission.data.splits import Labeling, Split
from protofission.errors import InputError, printable, require
from protofission.records import WHOLE, Share, ViewName, Views
from protofission.rng import step_rng

VERSION = 1
FEATURE_BYTES = 2
MAPPED = 2**29
"""Bytes of one view that are held in memory at a time."""

PATHS = "paths.json"

Features = NDArray[np.float16]
Counts = dict[ViewName, int]
"""Versions of each view."""


class Block(NamedTuple):
    """Some consecutive images of a part: what is computed, written and verified at once."""

    part: str
    start: int
    stop: int


@dataclass(frozen=True)
class Part:
    """The images of a data set that are for training, or for judging."""

    rows: int
    views: Counts


@dataclass(frozen=True)
class Plan:
    """What a store holds, and what it was made of."""

    data: dict[str, Any]
    """The name of the data set, the shape of an image, and a fingerprint."""
    encoder: dict[str, Any]
    """As `Encoder.describe` has it."""
    augmentation: dict[str, Any]
    """What made the views, the seed, and a fingerprint."""
    item: tuple[int, ...]
    """The shape of what stands for one view of one image."""
    parts: dict[str, Part]
    """train, and test where there are official test images."""
    block: int
    """Images of a block."""
    class_names: tuple[str, ...]
    coarse_names: tuple[str, ...] = ()

    def blocks(self) -> Iterator[Block]:
        """All of them, in order."""
        for name, part in self.parts.items():
            for start in range(0, part.rows, self.block):
                yield Block(name, start, min(start + self.block, part.rows))

    def number_of_blocks(self) -> int:
        """How many there are."""
        return sum(-(-part.rows // self.block) for part in self.parts.values())

    def has(self, block: Block) -> bool:
        """Whether a block is one of them."""
        rows = self.parts[block.part].rows if block.part in self.parts else 0
        starts = 0 <= block.start < rows and block.start % self.block == 0
        return starts and block.stop == min(block.start + self.block, rows)

    def shape(self, part: str, view: ViewName) -> tuple[int, ...]:
        """Of the array of a view."""
        return (self.parts[part].rows, self.parts[part].views[view], *self.item)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Of the data, the encoder and the augmentation: a run is on one set of them."""
        made_of = {"data": self.data, "encoder": self.encoder, "augmentation": self.augmentation}
        return {name: str(value["fingerprint"]) for name, value in made_of.items()}

    def differences(self, other: Plan) -> list[str]:
        """In what two plans differ, in words; what images and encoder are called is no matter."""
        here, there = self.fingerprints, other.fingerprints
        words = {"data": "other images or labels", "encoder": "another encoder"}
        found = [words.get(name, "other views") for name in here if here[name] != there[name]]
        if not found and (self.item, self.parts, self.block) != (
            other.item,
            other.parts,
            other.block,
        ):
            found.append("other views")
        return found


def file_of(part: str, view: str) -> str:
    """The file of a view."""
    return f"{part}-{view}.npy"


def label_file(name: str) -> str:
    """The file of the labels of a part, or of its coarse ones."""
    return f"labels/{name}.npy"


def digest(content: bytes | memoryview) -> str:
    """What tells contents apart."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def fingerprint(*parts: Any) -> str:
    """One digest of plain values and of digests."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


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
                f"{self.folder / name} was edited or damaged at image {start}: {_AGAIN}.",
            )
        return array

    def labeling(self) -> Labeling:
        """The labels of all images, for a split."""
        train, coarse = self._labels("train")
        test, coarse_test = self._labels("test") if "test" in self.plan.parts else (None, None)
        names = self.plan.class_names
        return Labeling(train, len(names), test, names, coarse, coarse_test, self.plan.coarse_names)

    def _labels(self, part: str) -> tuple[Labels, Labels | None]:
        coarse = label_file(f"{part}-coarse")
        return (
            self._label_file(label_file(part), part),
            self._label_file(coarse, part) if coarse in self.digests else None,
        )

    def _label_file(self, name: str, part: str) -> Labels:
        header = npy_header("<i8", (self.plan.parts[part].rows,))
        content = self._sound_file(name)
        if not content.startswith(header):
            _damaged(self.folder / name)
        return np.frombuffer(content, np.int64, offset=len(header))

    def paths(self) -> dict[str, list[str]]:
        """Where the images of each part came from, if they were files."""
        if PATHS not in self.digests:
            return {}
        return dict(json.loads(self._sound_file(PATHS)))

    def _sound_file(self, name: str) -> bytes:
        """The content of a small file, compared with its digest."""
        try:
            content = (self.folder / name).read_bytes()
        except OSError:
            raise InputError(f"{self.folder / name} is missing: {_AGAIN}.") from None
        if [digest(content)] != self.digests[name]:
            _damaged(self.folder / name)
        return content

    def check(self, wanted: Views) -> None:
        """Refuse a method that wants views of an image which the store does not have."""
        have = self.plan.parts["train"].views
        for names in (wanted.labeled, wanted.unlabeled):
            for name in names:
                needs = names.count(name)
                require(
                    have.get(name, 0) >= needs,
                    f"{printable(str(self.folder))} has {have.get(name, 0)} {name} views of an "
                    f"image, and the method wants {needs}: make a store with --{name} {needs}.",
                )


class StoredViews:
    """The views of a store. Its images are row numbers: those of train first, then test."""

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
        if name == "plain":
            return self.plain(images)
        versions = self.store.plan.parts["train"].views[name]
        batch = share.total(len(images))
        own = step_rng(generator.initial_seed(), 0, f"versions of {name}")
        order = torch.rand(batch, versions, generator=own).argsort(1)
        return self._features(name, images, order[share.of(batch), nth])

    def _features(self, name: ViewName, rows: Tensor, versions: Tensor) -> Tensor:
        device, rows = rows.device, rows.cpu()
        test = rows >= self.first_test
        if not test.any():
            return self._part("train", name, rows, versions).to(device)
        found = torch.empty(len(rows), *self.store.plan.item)
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
        return torch.from_numpy(self._opened[part, name][places]).float()


def divide_store(
    store: Store, split: Split, *, pool_has_labeled: bool = False
) -> tuple[TrainingData, TestData]:
    """The rows of a store by a split, classes renumbered so that the seen ones come first."""
    labeling = store.labeling()
    if split.classes == "coarse":
        labeling = labeling.coarse()
    labels = split.renumbered(labeling.train)
    training = TrainingData(
        labeled=torch.from_numpy(split.labeled),
        labels=torch.from_numpy(labels[split.labeled]),
        unlabeled=torch.from_numpy(pool_of(split, pool_has_labeled)),
        num_seen=len(split.seen_classes),
        num_classes=len(split.seen_classes) + len(split.novel_classes),
        # maps of a frozen trunk stand for the images that they were made of
        shape=store.plan.item if len(store.plan.item) == 1 else tuple(store.plan.data["shape"]),
    )
    if split.test_on == "test" and labeling.test is not None:
        rows = torch.from_numpy(split.test) + len(labeling.train)
        return training, TestData(rows, split.renumbered(labeling.test)[split.test])
    return training, TestData(torch.from_numpy(split.test), labels[split.test])


def npy_header(kind: str, shape: tuple[int, ...]) -> bytes:
    """The beginning of an .npy file."""
    content = BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(content, header)
    return content.getvalue()


def size_of(shape: tuple[int, ...]) -> int:
    """The bytes of an array of features."""
    return FEATURE_BYTES * math.prod(shape)


def mapped_features(path: Path, shape: tuple[int, ...]) -> Features:
    """A file of features, memory-mapped, if it is one of the shape that is wanted."""
    if not shape[0]:
        return np.empty(shape, np.float16)
    header = npy_header("<f2", shape)
    try:
        with path.open("rb") as file:
            found = file.read(len(header))
            size = file.seek(0, 2)
    except OSError:
        raise InputError(f"{path} is missing: {_AGAIN}.") from None
    if size < len(header) + size_of(shape):
        raise InputError(f"{path} is cut short: {_AGAIN}.")
    if found != header or size > len(header) + size_of(shape):
        _damaged(path)
    return np.memmap(path, np.float16, "r", len(header), shape)


Manifest = tuple[Plan, dict[str, list[str]] | None]
"""A plan, and the digests once it is carried out."""


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, if it has one."""
    path = folder / "manifest.json"
    try:
        return parsed_manifest(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"{path} was edited or damaged: delete the store's folder and make it again."
        ) from None


def parsed_manifest(content: dict[str, Any]) -> Manifest:
    """A manifest from its plain values; whatever is not as we write it is a ValueError."""
    version = content["version"]
    if version != VERSION:
        raise InputError(
            f"The store is of version {version}, and this protofission reads {VERSION}: "
            "update it, or make the store again."
        )
    seal = content.pop("seal")
    if seal != fingerprint(content):
        raise ValueError("seal")
    parts = {
        name: Part(_whole(part["rows"]), {v: _whole(n) for v, n in part["views"].items()})
        for name, part in content["parts"].items()
    }
    if not {"train"} <= set(parts) <= {"train", "test"}:
        raise ValueError("parts")
    if any(
        set(part.views) - set(get_args(ViewName)) or "plain" not in part.views
        for part in parts.values()
    ):
        raise ValueError("views")
    plan = Plan(
        data=dict(content["data"]),
        encoder=dict(content["encoder"]),
        augmentation=dict(content["augmentation"]),
        item=tuple(_whole(side) for side in content["item"]),
        parts=parts,
        block=max(1, _whole(content["block"])),
        class_names=tuple(str(name) for name in content["class_names"]),
        coarse_names=tuple(str(name) for name in content["coarse_names"]),
    )
    plan.fingerprints  # noqa: B018  (a KeyError where one is not there)
    found = content["digests"]
    if found is None:
        return plan, None
    digests = {str(name): [str(value) for value in values] for name, values in found.items()}
    for name, part in parts.items():
        for view in part.views:
            if len(digests[file_of(name, view)]) != -(-part.rows // plan.block):
                raise ValueError("digests")
    return plan, digests


def as_manifest(plan: Plan, digests: dict[str, list[str]] | None) -> str:
    """A manifest as text, sealed by a fingerprint of the rest of it."""
    content = {"version": VERSION, **asdict(plan), "digests": digests}
    content = json.loads(json.dumps(content))  # as it will be read
    return json.dumps({**content, "seal": fingerprint(content)}, indent=1)


def finished_blocks(folder: Path, plan: Plan) -> dict[Block, dict[ViewName, str]]:
    """The blocks that an unfinished store has, with the digest of each view."""
    try:
        lines = (folder / "blocks.jsonl").read_bytes().splitlines()
    except OSError:
        return {}
    found: dict[Block, dict[ViewName, str]] = {}
    for line in lines:
        try:  # the last line may be cut short
            entry = json.loads(line)
            block = Block(str(entry["part"]), int(entry["start"]), int(entry["stop"]))
            digests = {view: str(entry["digests"][view]) for view in plan.parts[block.part].views}
        except (ValueError, KeyError, TypeError):
            continue
        if plan.has(block):
            found[block] = digests
    return found


def _whole(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**48:
        raise ValueError(f"{value!r} is no size")
    return value


def _damaged(path: Path) -> NoReturn:
    raise InputError(f"{path} was edited or damaged: {_AGAIN}.")


_AGAIN = "give its embed command again, and what is lost is made anew"
_MAKE = "make one with `protofission embed DATA --out STORE`"
