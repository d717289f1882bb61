"""Image sets, and the two halves of a split one: training data and test data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protofission.core.errors import require
from protofission.data.splits.labeling import merged_labels
from protofission.data.splits.split import Indices, Split
from protofission.system.digests import digest

Labels = NDArray[np.int64]


NO_LABEL = -1
"""The label of an image that has none."""


class PixelRows(Protocol):
    """Bytes of the shape (N, channels, height, width), read by rows.

    An array in memory, a memory-mapped one, or `JoinedRows` of several.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, channels, height, width)."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | NDArray[np.int64], /) -> NDArray[np.uint8]: ...


@dataclass(frozen=True)
class ImageSet:
    """Images with their labels. The arrays are read-only."""

    pixels: PixelRows
    """(N, channels, height, width)."""
    labels: Labels
    """(N,): indices into `class_names`, or NO_LABEL."""
    class_names: tuple[str, ...]
    coarse_labels: Labels | None = None
    """(N,): indices into `coarse_names`, if the classes are grouped into coarser ones."""
    coarse_names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """The file of each image, if it was read from one."""
    digests: tuple[str, ...] = ()
    """(N,): of each image's pixels, where the reader has computed them."""

    def __post_init__(self) -> None:
        require(
            len(self.pixels.shape) == 4 and len(self.pixels) == len(self.labels),
            f"{len(self.labels)} labels do not fit images of the shape {self.pixels.shape}: "
            "(N, channels, height, width) is wanted.",
        )
        for name in ("pixels", "labels", "coarse_labels"):
            if isinstance(array := getattr(self, name), np.ndarray):
                readonly = array.view()
                readonly.setflags(write=False)
                object.__setattr__(self, name, readonly)

    def pixel_digests(self) -> tuple[str, ...]:
        """(N,): the digest of each image's pixels, as the reader has computed it, or now."""
        if self.digests or not len(self.pixels):
            return self.digests
        rows = (self.pixels[i : i + 1] for i in range(len(self.pixels)))
        return tuple(digest(row) for row in rows)


@dataclass(frozen=True)
class ImageSets:
    """A data set: its training images, and its official test images if it has any."""

    train: ImageSet
    test: ImageSet | None = None


@dataclass(frozen=True)
class TrainingData:
    """The inputs of training: labeled images with their labels, and the pool without any."""

    labeled: Tensor
    """(images, ...): bytes, or floats in [0, 1]; or (images,): row numbers of a store."""
    labels: Tensor
    """(labeled images,): their classes, from 0 to S - 1."""
    unlabeled: Tensor
    """The pool, in the format of `labeled`."""
    num_seen: int
    """S, the number of seen classes."""
    num_classes: int
    """The number of seen and novel classes together."""
    shape: tuple[int, ...] = ()
    """(channels, height, width) of an image, or (D,) of features; by default that of `labeled`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self.shape or tuple(self.labeled.shape[1:]))
        require(
            len(self.labels) == len(self.labeled),
            f"{len(self.labels)} labels for {len(self.labeled)} labeled images: give one each.",
        )
        require(
            1 <= self.num_seen <= self.num_classes,
            f"num_seen = {self.num_seen} must be between 1 and the {self.num_classes} classes.",
        )
        counts = torch.bincount(self.labels, minlength=self.num_seen)
        empty = (counts == 0).nonzero().flatten().tolist()
        require(
            not empty,
            f"Seen class {empty[0] if empty else ''} has no labeled image: "
            "label at least one, or leave the class out.",
        )
        require(
            len(counts) == self.num_seen,
            f"A label is {len(counts) - 1}, but there are {self.num_seen} seen classes: "
            "labels run from 0 to num_seen - 1.",
        )
        for name, inputs in (("labeled", self.labeled), ("unlabeled", self.unlabeled)):
            known = len(inputs) == 0 or not inputs.is_floating_point()
            bad = 0 if known else int((~inputs.flatten(1).isfinite().all(1)).sum())
            require(bad == 0, f"{bad} {name} inputs hold NaN or infinity: clean or drop them.")


@dataclass(frozen=True)
class TestData:
    """The images that a trained model is evaluated on; training never gets them."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    inputs: Tensor
    """(images, ...): bytes; or (images,): row numbers of a store."""
    labels: Labels
    finer: Labels | None = None
    """The fine classes, if `labels` are coarse ones."""


def divide(
    sets: ImageSets, split: Split, *, pool_has_labeled: bool = False
) -> tuple[TrainingData, TestData]:
    """Divide a data set by a split; classes are renumbered, the seen ones first.

    Args:
        pool_has_labeled: put the labeled images into the pool as well.
    """
    images = sets.train
    judged = sets.test if split.test_on == "test" and sets.test is not None else images
    training = TrainingData(
        labeled=torch.from_numpy(images.pixels[split.labeled]),
        labels=torch.from_numpy(_labels(images, split)[split.labeled]),
        unlabeled=torch.from_numpy(images.pixels[pool_indices(split, pool_has_labeled)]),
        num_seen=len(split.seen_classes),
        num_classes=len(split.seen_classes) + len(split.novel_classes),
    )
    pixels = torch.from_numpy(judged.pixels[split.test])
    finer = judged.labels[split.test] if split.classes == "coarse" else None
    return training, TestData(pixels, _labels(judged, split)[split.test], finer)


def pool_indices(split: Split, has_labeled: bool) -> Indices:
    """The indices of the pool; with `has_labeled`, the labeled images are in it too."""
    return np.union1d(split.unlabeled, split.labeled) if has_labeled else split.unlabeled


def _labels(images: ImageSet, split: Split) -> Labels:
    """The fine or coarse labels that the split uses, renumbered."""
    if split.merge is not None:
        return split.renumber(merged_labels(images.labels, split.merge))
    coarse = images.coarse_labels if split.classes == "coarse" else None
    return split.renumber(images.labels if coarse is None else coarse)


def floats(images: Tensor) -> Tensor:
    """Images as floats in [0, 1]; floats are returned as they are."""
    return images if images.is_floating_point() else images.float().div_(255)
