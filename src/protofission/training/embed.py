"""Images through a frozen encoder into a store, by one process or several, with the same bytes.

Every process computes on one thread: the bytes of a block depend on its images, the encoder, the
views and the seed, and on nothing else. The first process reads images and writes features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protofission.core.errors import InputError, printable, require, unknown, unknown_message
from protofission.core.progress import Progress
from protofission.core.rng import check_seed, step_rng
from protofission.core.threads import one_thread
from protofission.data.datasets import DATASETS, VIEWS
from protofission.data.image_sets import ImageSet, ImageSets, PixelRows
from protofission.data.readers.image_folders import load_folder
from protofission.data.readers.image_lists import is_list
from protofission.data.readers.image_problems import Report
from protofission.data.store.manifest import Block, Part, StorePlan, VersionCounts, fingerprint
from protofission.data.store.mapped_arrays import release
from protofission.data.store.reader import Store
from protofission.data.store.writer import BlockFeatures, Computed, check_store_destination, fill
from protofission.models.encoders import Encoder, EncoderSpec
from protofission.system.digests import digest
from protofission.system.launch.in_order import SHORT, run_in_order
from protofission.system.launch.launcher import Tell, Work
from protofission.system.worker_processes import check_processes
from protofission.training.encoder_choice import with_engine_of

MOST_IMAGES = 256
"""Most images of a block; a killed process loses the block that it was at."""
MOST_PIXELS = 2**23
"""Most numbers in one view of a block."""


@dataclass(frozen=True)
class ViewCounts:
    """Number of versions of each view in a store."""

    plain: int = 1
    weak: int = 3
    strong: int = 2
    simclr: int = 0

    def __post_init__(self) -> None:
        require(self.plain == 1, f"plain = {self.plain}: the image itself is there once, give 1.")
        for name, count in vars(self).items():
            require(0 <= count <= 1000, f"{name} = {count} must be between 0 and 1000.")

    def counts(self) -> VersionCounts:
        """The counts above 0, by view."""
        return {name: n for name, n in dataclasses.asdict(self).items() if n}  # type: ignore[misc]


@dataclass(frozen=True)
class Images:
    """A data set to be embedded."""

    name: str
    sets: ImageSets
    views: str
    """A name of protofission.data.datasets.VIEWS."""
    report: Report | None = None
    """Problems found in a folder or list."""
    known_fingerprint: str = ""
    """Fingerprint of all pixels and labels, if computed already."""
    starts: dict[str, int] = field(default_factory=dict)
    """By part, the number of images before these, if they are a shard of a larger set."""

    @property
    def parts(self) -> dict[str, ImageSet]:
        """train, and test where there are official test images."""
        test = self.sets.test
        return {"train": self.sets.train, **({"test": test} if test is not None else {})}

    def fingerprint(self) -> str:
        """Fingerprint of all pixels and labels; all pixels are read for it, unless it is known."""
        return self.known_fingerprint or fingerprint_of(self.parts)


def images_of(
    source: str, decode: int, folder: str | None = None, progress: Progress | None = None
) -> Images:
    """Load the images of a data set by name, or of a folder or list, decoded at a size.

    Args:
        folder: where the files of a named data set are, if not at the usual places.
        progress: called with the files that are read, and all.
    """
    if source in DATASETS:
        read, views = DATASETS[source]
        return Images(source, read(folder), views)
    path = Path(source).expanduser()
    require(
        folder is None, f"--folder = {folder} is for data sets by name: leave it out of {source}."
    )
    if not path.exists():
        known = unknown_message("data set", source, DATASETS, DATASETS)
        raise InputError(f"{known} It is no folder or list of images either.")
    require(
        path.is_dir() or is_list(path),
        f"{printable(source)} is no folder, and no .csv or .parquet list: give one of these.",
    )
    images, report = load_folder(path, decode, progress=progress)
    return Images(path.resolve().name, ImageSets(images), "natural", report)


def check_apart(source: str, folder: Path) -> None:
    """Refuse a store among the images that it is made of."""
    path = Path(source).expanduser()
    inside = source not in DATASETS and path.is_dir()
    require(
        not (inside and folder.resolve().is_relative_to(path.resolve())),
        f"The store {folder} lies in the folder of images: name one elsewhere.",
    )


def embed(
    images: Images,
    spec: EncoderSpec,
    folder: Path,
    counts: ViewCounts | None = None,
    *,
    views: str | None = None,
    seed: int = 0,
    processes: int = 1,
    encoder: Encoder | None = None,
    progress: Progress | None = None,
    wait: bool = False,
) -> Store:
    """Compute the features of all views of all images into a store.

    After a kill, the same call computes the blocks that are missing.

    Args:
        views: a name of VIEWS, if not the data set's usual one.
        seed: of the random views.
        processes: how many compute; one, where the encoder is on an accelerator. A script that
            wants several keeps its calls under `if __name__ == "__main__":`.
        encoder: the loaded one, where there is one already.
        progress: called with the images that are done, and all.
        wait: for another process that is making the same store.
    """
    check_processes(processes)
    check_seed(seed)
    folder = folder.expanduser()
    name = views or images.views
    if name not in VIEWS:
        raise unknown("views", name, VIEWS)
    check_store_destination(folder)
    with one_thread(strictly=True):
        if encoder is None:
            spec = with_engine_of(folder, spec)
            encoder = spec.load()
        loaded = encoder
        require(
            processes == 1 or encoder.mean.device.type == "cpu",
            f"processes = {processes}: on an accelerator one computes, give 1.",
        )
        plan = _plan(images, encoder, name, counts or ViewCounts(), seed)
        views_of = {part: about.views for part, about in plan.parts.items()}
        work = _Work(name, seed, views_of, images.starts)
        parts = images.parts

        def here(block: Block) -> BlockFeatures:
            return work.features(loaded, block, _pixels(parts, block))

        by_worker = Work(_begin, (work, spec, encoder.describe()), _carry_out)

        def piece_of(block: Block) -> _Piece:
            return block, _pixels(parts, block)

        def compute(blocks: Sequence[Block]) -> Computed:
            results = run_in_order(blocks, here, by_worker, piece_of, processes, SHORT)
            with closing(results):
                yield from zip(blocks, results, strict=True)

        labels = {part: own.labels for part, own in parts.items()}
        for part, own in parts.items():
            if own.coarse_labels is not None:
                labels[f"{part}-coarse"] = own.coarse_labels
        paths = {part: own.paths for part, own in parts.items() if own.paths}
        return fill(folder, plan, labels, compute, progress, paths=paths, wait=wait)


def _plan(images: Images, encoder: Encoder, views: str, counts: ViewCounts, seed: int) -> StorePlan:
    parts = images.parts
    train = images.sets.train
    shape = train.pixels.shape[1:]
    require(len(train.pixels) > 0, f"{images.name} holds no images: add some.")
    made_by: dict[str, Any] = {"views": views, "options": repr(VIEWS[views]), "seed": seed}
    if any(images.starts.values()):
        made_by["starts"] = images.starts
    first = torch.from_numpy(np.array(train.pixels[:1]))
    item = tuple(encoder.features(VIEWS[views].plain(first)).shape[1:])
    return StorePlan(
        data={
            "name": images.name,
            "shape": list(shape),
            "fingerprint": images.fingerprint(),
        },
        encoder=encoder.describe(),
        augmentation={**made_by, "fingerprint": fingerprint(made_by, counts.counts())},
        item=item,
        parts={
            # test images are evaluated as they are
            part: Part(len(own.labels), counts.counts() if part == "train" else {"plain": 1})
            for part, own in parts.items()
        },
        block=max(1, min(MOST_IMAGES, MOST_PIXELS // int(np.prod(shape)))),
        class_names=train.class_names,
        coarse_names=train.coarse_names,
    )


def fingerprint_of(parts: dict[str, ImageSet]) -> str:
    """Fingerprint of all pixels and labels, by digests of blocks of MOST_IMAGES images."""
    found = []
    for name, images in parts.items():
        blocks = range(0, len(images.pixels), MOST_IMAGES)
        pixels = [digest(_copy_rows(images.pixels, i, i + MOST_IMAGES)) for i in blocks]
        labels = [
            None if labels is None else digest(labels.tobytes())
            for labels in (images.labels, images.coarse_labels)
        ]
        names = [images.class_names, images.coarse_names]
        found.append([name, list(images.pixels.shape), pixels, labels, names])
    return fingerprint(found)


def _copy_rows(pixels: PixelRows, start: int, stop: int) -> NDArray[np.uint8]:
    """Copy some images, and release the memory-mapped pages they were read from."""
    copied = np.array(pixels[start:stop])
    release(pixels)
    return copied


def _pixels(parts: dict[str, ImageSet], block: Block) -> NDArray[np.uint8]:
    return _copy_rows(parts[block.part].pixels, block.start, block.stop)


@dataclass(frozen=True)
class _Work:
    """Computes the features of a block, in this process or in a worker."""

    views: str
    seed: int
    counts: dict[str, VersionCounts]
    """Number of versions of each view, by part."""
    starts: dict[str, int]
    """Images before the first one, by part: views are those of the whole set."""

    def features(self, encoder: Encoder, block: Block, pixels: NDArray[np.uint8]) -> BlockFeatures:
        """(images, versions, ...) of each view of a block."""
        images, views = torch.from_numpy(pixels), VIEWS[self.views]
        place = self.starts.get(block.part, 0) + block.start
        found: BlockFeatures = {}
        for name, count in self.counts[block.part].items():
            versions = []
            for number in range(count):
                drawn = step_rng(self.seed, place, f"{name} {number} of {block.part}")
                view = views.view(name, images, drawn)
                versions.append(encoder.features(view).cpu().to(torch.float16).numpy())
            found[name] = np.stack(versions, axis=1)
        return found


def _begin(work: _Work, spec: EncoderSpec, known: dict[str, Any]) -> tuple[_Work, Encoder]:
    encoder = spec.load()
    require(
        encoder.describe() == known,
        f"The encoder {printable(spec.source)} changed while it was in use: give the same "
        "command again.",
    )
    return work, encoder


_Piece = tuple[Block, NDArray[np.uint8]]


def _carry_out(begun: tuple[_Work, Encoder], piece: _Piece, _: Tell) -> BlockFeatures:
    work, encoder = begun
    return work.features(encoder, *piece)
