"""Open-set protocols with few labels of each seen class: OpenMatch's and IOMatch's."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from protofission.data.splits.animals import animals
from protofission.data.splits.labeling import Labeling, all_but, joined
from protofission.data.splits.spec import Parts, SplitSpec, check_counts, chosen_classes
from protofission.data.splits.split import Indices


@dataclass(frozen=True, kw_only=True)
class OpenMatchSplit(SplitSpec):
    """OpenMatch's: so many labels and validation images of each seen class, the rest is the pool.

    As its code: CIFAR-10's six animals, or the classes of CIFAR-100's first coarse classes (11 for
    its option 10, 16 for 15: 55 or 80 classes); each seen class, in ascending order, draws its
    images with NumPy's legacy generator. The pool is all other training images, of any class or
    none. Judged on the official test set, all classes. The labeled images, which the code repeats
    to fill batches, are listed once.
    """

    name: str = field(default="openmatch", init=False)
    labels_per_class: int = 400
    """Of each seen class; the code knows 25, 50, 100 and 400."""
    validation_per_class: int = 50
    """Of each seen class."""
    seen_coarse: int = 11
    """The first so many coarse classes are seen, where the data set has any."""
    seen_classes: tuple[int, ...] | None = None
    """CIFAR-10's six animals, or those of the first coarse classes, where none are given."""

    def _check(self) -> None:
        check_counts(1, labels_per_class=self.labels_per_class, seen_coarse=self.seen_coarse)
        check_counts(validation_per_class=self.validation_per_class)

    def _parts(self, data: Labeling) -> Parts:
        seen = _by_coarse(self.seen_classes, self.seen_coarse, data)
        size = self.labels_per_class + self.validation_per_class
        remedy = "lower labels_per_class or validation_per_class"
        drawn = _choices(data, seen, size, self.seed, remedy)
        labeled = joined(order[: self.labels_per_class] for order in drawn)
        validation = joined(order[self.labels_per_class :] for order in drawn)
        return Parts(
            seen=seen,
            labeled=labeled,
            unlabeled=all_but(len(data.train), labeled, validation),
            validation=validation,
            test=data.official_test(),
            test_on="test",
        )


@dataclass(frozen=True, kw_only=True)
class IoMatchSplit(SplitSpec):
    """IOMatch's: few labels of each seen class; the pool is the whole training set.

    As its code: CIFAR-10's six animals, or the classes of CIFAR-100's first coarse classes (4, 10
    or 16: 20, 50 or 80 classes); each seen class, in ascending order, draws its labeled images with
    NumPy's legacy generator; they stay in the pool, which holds all training images, of any class
    or none. No validation. Judged on the official test set, all classes.
    """

    name: str = field(default="iomatch", init=False)
    labels_per_class: int = 25
    """Of each seen class; the code's configurations have 4 and 25."""
    seen_coarse: int = 10
    """The first so many coarse classes are seen, where the data set has any."""
    pool_has_labeled: bool = True
    """Whether the labeled images are in the pool as well."""
    seen_classes: tuple[int, ...] | None = None
    """CIFAR-10's six animals, or those of the first coarse classes, where none are given."""

    def _check(self) -> None:
        check_counts(1, labels_per_class=self.labels_per_class, seen_coarse=self.seen_coarse)

    def _parts(self, data: Labeling) -> Parts:
        seen = _by_coarse(self.seen_classes, self.seen_coarse, data)
        remedy = "lower labels_per_class"
        labeled = joined(_choices(data, seen, self.labels_per_class, self.seed, remedy))
        everything = np.arange(len(data.train))
        return Parts(
            seen=seen,
            labeled=labeled,
            unlabeled=everything if self.pool_has_labeled else all_but(len(data.train), labeled),
            test=data.official_test(),
            test_on="test",
        )


def _by_coarse(
    seen_classes: tuple[int, ...] | None, seen_coarse: int, data: Labeling
) -> tuple[int, ...]:
    if seen_classes is not None or data.coarse_train is None:
        return animals(seen_classes, data)
    return chosen_classes(data.classes_below(seen_coarse), data.num_classes)


def _choices(
    data: Labeling, classes: tuple[int, ...], size: int, seed: int, remedy: str
) -> list[Indices]:
    """So many images of each class, drawn one class after the other."""
    generator, drawn = np.random.RandomState(seed), []
    for label in classes:
        members = data.members(label)
        data.need(label, len(members), size, remedy)
        drawn.append(generator.choice(members, size, replace=False))
    return drawn
