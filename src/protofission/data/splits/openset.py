"""Open-set protocols with few labels per seen class: OpenMatch's and IOMatch's."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from protofission.data.splits.animals import named_or_animals
from protofission.data.splits.labeling import Labeling, all_but, join
from protofission.data.splits.spec import Parts, SplitSpec, check_classes, check_counts
from protofission.data.splits.split import Indices


@dataclass(frozen=True, kw_only=True)
class OpenMatchSplit(SplitSpec):
    """OpenMatch's: a few labeled and validation images of each seen class, the rest is the pool.

    As in its code, the seen classes are CIFAR-10's six animals, or those of CIFAR-100's first
    coarse classes (11 for its option 10, 16 for 15: 55 or 80 classes); each seen class, in
    ascending order, draws its images with NumPy's legacy generator. The pool is all other training
    images, of any class or none. The test set is the official one, all classes. The labeled images,
    which the code repeats to fill batches, are listed once.
    """

    name: str = field(default="openmatch", init=False)
    labels_per_class: int = 400
    """Labeled images of each seen class; the code knows 25, 50, 100 and 400."""
    validation_per_class: int = 50
    """Validation images of each seen class."""
    seen_coarse: int = 11
    """The number of coarse classes, the first ones, that are seen, if the data set has any."""
    seen_classes: tuple[int, ...] | None = None
    """Seen classes; by default the first coarse ones', or else CIFAR-10's six animals."""

    def _check(self) -> None:
        check_counts(1, labels_per_class=self.labels_per_class, seen_coarse=self.seen_coarse)
        check_counts(validation_per_class=self.validation_per_class)

    def _parts(self, data: Labeling) -> Parts:
        seen = _named_or_coarse(self.seen_classes, self.seen_coarse, data)
        size = self.labels_per_class + self.validation_per_class
        remedy = "lower labels_per_class or validation_per_class"
        drawn = _draw_classes(data, seen, size, self.seed, remedy)
        labeled = join(order[: self.labels_per_class] for order in drawn)
        validation = join(order[self.labels_per_class :] for order in drawn)
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

    As in its code, the seen classes are CIFAR-10's six animals, or those of CIFAR-100's first
    coarse classes (4, 10 or 16: 20, 50 or 80 classes); each seen class, in ascending order, draws
    its labeled images with NumPy's legacy generator. They stay in the pool, which holds all
    training images, of any class or none. There is no validation set. The test set is the official
    one, all classes.
    """

    name: str = field(default="iomatch", init=False)
    labels_per_class: int = 25
    """Labeled images of each seen class; the code's configurations have 4 and 25."""
    seen_coarse: int = 10
    """The number of coarse classes, the first ones, that are seen, if the data set has any."""
    pool_has_labeled: bool = True
    """Whether the labeled images are in the pool as well."""
    seen_classes: tuple[int, ...] | None = None
    """Seen classes; by default the first coarse ones', or else CIFAR-10's six animals."""

    def _check(self) -> None:
        check_counts(1, labels_per_class=self.labels_per_class, seen_coarse=self.seen_coarse)

    def _parts(self, data: Labeling) -> Parts:
        seen = _named_or_coarse(self.seen_classes, self.seen_coarse, data)
        remedy = "lower labels_per_class"
        labeled = join(_draw_classes(data, seen, self.labels_per_class, self.seed, remedy))
        everything = np.arange(len(data.train))
        return Parts(
            seen=seen,
            labeled=labeled,
            unlabeled=everything if self.pool_has_labeled else all_but(len(data.train), labeled),
            test=data.official_test(),
            test_on="test",
        )


def _named_or_coarse(
    seen_classes: tuple[int, ...] | None, seen_coarse: int, data: Labeling
) -> tuple[int, ...]:
    """The seen classes that the user names, or by default those of the first coarse classes."""
    if seen_classes is not None or data.coarse_train is None:
        return named_or_animals(seen_classes, data)
    return check_classes(data.classes_below(seen_coarse), data.num_classes)


def _draw_classes(
    data: Labeling, classes: tuple[int, ...], size: int, seed: int, remedy: str
) -> list[Indices]:
    """Draw `size` images of each class, one class after the other."""
    generator, drawn = np.random.RandomState(seed), []
    for label in classes:
        members = data.members(label)
        data.check_enough(label, len(members), size, remedy)
        drawn.append(generator.choice(members, size, replace=False))
    return drawn
