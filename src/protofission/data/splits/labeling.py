"""The labels of a data set, from which splits are made, and functions that draw by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from protofission.core.errors import InputError, require
from protofission.data.splits.split import Indices

if TYPE_CHECKING:
    from protofission.data.image_sets import ImageSets


@dataclass(frozen=True)
class Labeling:
    """The labels of a data set in file order; an image without a label has -1."""

    train: Indices
    num_classes: int
    test: Indices | None = None
    """The labels of the official test images, if there are any."""
    class_names: tuple[str, ...] = ()
    coarse_train: Indices | None = None
    """The coarse labels of the training images, if the classes are grouped into coarser ones."""
    coarse_test: Indices | None = None
    coarse_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind, labels in (("train", self.train), ("test", self.test)):
            low = -1 if labels is None else int(labels.min(initial=-1))
            high = -1 if labels is None else int(labels.max(initial=-1))
            require(
                low >= -1 and high < self.num_classes,
                f"A {kind} label is {low if low < -1 else high}, but there are {self.num_classes} "
                "classes: labels run from 0, and -1 stands for none.",
            )
        for fine, coarse in ((self.train, self.coarse_train), (self.test, self.coarse_test)):
            require(
                coarse is None or (fine is not None and len(fine) == len(coarse)),
                f"{0 if coarse is None else len(coarse)} coarse labels do not fit "
                f"{0 if fine is None else len(fine)} fine ones: give one for each image.",
            )

    @staticmethod
    def of(sets: ImageSets) -> Labeling:
        """The labels of a data set's images."""
        train, test = sets.train, sets.test
        return Labeling(
            train.labels,
            len(train.class_names),
            test.labels if test else None,
            train.class_names,
            train.coarse_labels,
            test.coarse_labels if test else None,
            train.coarse_names,
        )

    def coarse(self, merge: int | None = None) -> Labeling:
        """The same images with their coarse labels, or with every `merge` classes in a row as one.

        The last class is smaller where their number is no multiple of `merge`.
        """
        if merge is not None:
            test = None if self.test is None else merged_labels(self.test, merge)
            names = merged_names(self.class_names, merge)
            number = -(-self.num_classes // merge)
            return Labeling(merged_labels(self.train, merge), number, test, names)
        labels = self._coarse_labels()
        num_classes = len(self.coarse_names) or int(labels.max(initial=-1)) + 1
        return Labeling(labels, num_classes, self.coarse_test, self.coarse_names)

    def classes_below(self, coarse: int) -> tuple[int, ...]:
        """The classes that belong to the first `coarse` coarse classes."""
        labels = self._coarse_labels()
        inside = {int(c) for c in np.unique(self.train[(labels >= 0) & (labels < coarse)])}
        outside = {int(c) for c in np.unique(self.train[labels >= coarse])}
        both = sorted(inside & outside - {-1})
        require(not both, f"{self.describe(min(both, default=0))} has two coarse classes.")
        return tuple(sorted(inside - {-1}))

    def _coarse_labels(self) -> Indices:
        if self.coarse_train is None:
            raise InputError(
                "This data set has no coarse labels, and the split needs them: choose another "
                "split, or CIFAR-100."
            )
        return self.coarse_train

    def describe(self, label: int) -> str:
        """A class as messages name it: "Class 3 (cat)"."""
        name = f" ({self.class_names[label]})" if label < len(self.class_names) else ""
        return f"Class {label}{name}"

    def novel(self, seen: Sequence[int]) -> tuple[int, ...]:
        """All classes but the seen ones."""
        return tuple(label for label in range(self.num_classes) if label not in set(seen))

    def members(self, label: int) -> Indices:
        """The training images of a class, in file order."""
        return np.flatnonzero(self.train == label)

    def official_test(self, classes: Iterable[int] | None = None) -> Indices:
        """The labeled official test images of some classes, or of all.

        Raises:
            InputError: there is no official test set.
        """
        if self.test is None:
            raise InputError(
                "This data set has no official test images, and the split is judged on them: "
                "choose orca or gcd, or hold images out with test_per_class where a split has it."
            )
        wanted = self.test >= 0 if classes is None else np.isin(self.test, sorted(classes))
        return np.flatnonzero(wanted)

    def check_enough(self, label: int, has: int, wanted: int, remedy: str, where: str = "") -> None:
        """Refuse a split that wants more images of a class than there are."""
        require(
            has >= wanted,
            f"{self.describe(label)} has {has:,} images{where}, but {wanted:,} are wanted: "
            f"{remedy}.",
        )


def merged_labels(labels: Indices, merge: int) -> Indices:
    """The labels when every `merge` classes in a row are one; -1 stays."""
    return np.asarray(labels // merge)


def merged_names(names: Sequence[str], merge: int) -> tuple[str, ...]:
    """The names of the classes of `merged_labels`: those of their parts, joined by a plus."""
    return tuple("+".join(names[start : start + merge]) for start in range(0, len(names), merge))


def shuffle_classes(data: Labeling, seed: int) -> list[Indices]:
    """Shuffle the training images of each class, for protocols without draws of their own.

    Every training image, in file order, draws a 64-bit number from PCG64, and the images of a class
    are sorted by their numbers. NumPy guarantees PCG64's stream, but not `Generator.permutation`.
    """
    numbers = np.random.PCG64(seed).random_raw(len(data.train))
    by_class = (data.members(label) for label in range(data.num_classes))
    return [members[np.argsort(numbers[members], kind="stable")] for members in by_class]


def spread_evenly(total: int, classes: int) -> list[int]:
    """Divide a number of images among classes; the first ones get one more if it is uneven."""
    return [total // classes + (place < total % classes) for place in range(classes)]


def all_but(size: int, *parts: Indices) -> Indices:
    """The indices below `size` that are in none of the parts."""
    left = np.ones(size, bool)
    for part in parts:
        left[part] = False
    return np.flatnonzero(left)


def join(parts: Iterable[Indices]) -> Indices:
    """Concatenate arrays of indices."""
    return np.concatenate([np.empty(0, np.int64), *parts])
