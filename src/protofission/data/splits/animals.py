"""The splits of DS3L's code and of Oliver et al.: CIFAR-10's animals are seen, vehicles novel."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np

from protofission.core.errors import InputError, require
from protofission.data.splits.labeling import Labeling, join
from protofission.data.splits.spec import (
    Parts,
    SplitSpec,
    check_classes,
    check_counts,
    check_share,
)
from protofission.data.splits.split import Indices

ANIMALS = (2, 3, 4, 5, 6, 7)
"""CIFAR-10's bird, cat, deer, dog, frog and horse."""


@dataclass(frozen=True, kw_only=True)
class Ds3lCodeSplit(SplitSpec):
    """DS3L's, as in its code: six animals are seen, four vehicles are novel.

    The training images are permuted by NumPy's legacy generator, which the code seeds with 1 (here
    with 1 + seed); the seen images among the first `validation` are the validation set. Of the
    rest, in that order, each seen class gives `labels_per_class` labeled images, then
    `int(unlabeled * (1 - ratio)) // 6` images to the pool; each novel class gives a quarter,
    rounded down, of what the pool still lacks. So the ratio is met only approximately. The test
    set is the seen classes of the official one. Where a class has too few images, the code
    silently takes fewer; here that is an error.
    """

    name: str = field(default="ds3l-code", init=False)
    ratio: float = 0.3
    """r: the approximate share of the pool that is novel."""
    labels_per_class: int = 400
    """Labeled images of each seen class; the code's n_labels is the total, 2,400."""
    unlabeled: int = 20_000
    """The approximate size of the pool."""
    validation: int = 5_000
    """The number of images set aside first; the seen ones among them are the validation set."""
    seen_classes: tuple[int, ...] | None = None
    """Seen classes; by default CIFAR-10's six animals."""
    test_classes: Literal["seen", "all"] = "seen"
    """The classes of the official test set to test on; the code tests on the seen ones only."""

    def _check(self) -> None:
        check_share("ratio", self.ratio, ends="01")
        check_counts(1, labels_per_class=self.labels_per_class)
        check_counts(unlabeled=self.unlabeled, validation=self.validation)

    def _parts(self, data: Labeling) -> Parts:
        seen = named_or_animals(self.seen_classes, data)
        novel = data.novel(seen)
        require(bool(novel), f"All {len(seen)} classes are seen: leave some out of seen_classes.")
        each_seen = int(self.unlabeled * (1.0 - self.ratio)) // len(seen)
        each_novel = (self.unlabeled - each_seen * len(seen)) // len(novel)
        validation, orders = _permute(data, (1 + self.seed) % 2**32, self.validation, seen)
        labeled, unlabeled = [], []
        for label, order in enumerate(orders):
            first, more = (self.labels_per_class, each_seen) if label in seen else (0, each_novel)
            remedy = (
                "lower labels_per_class, unlabeled or validation, or raise ratio"
                if label in seen
                else "lower unlabeled, validation or ratio"
            )
            data.check_enough(
                label, len(order), first + more, remedy, " outside the validation set"
            )
            labeled.append(order[:first])
            unlabeled.append(order[first : first + more])
        return Parts(
            seen=seen,
            labeled=join(labeled),
            unlabeled=join(unlabeled),
            validation=validation,
            test=data.official_test(seen if self.test_classes == "seen" else None),
            test_on="test",
        )


@dataclass(frozen=True, kw_only=True)
class OliverSplit(SplitSpec):
    """Oliver et al.'s class mismatch: six animals are seen, the pool holds four classes.

    As in their code, the training images are permuted by NumPy's legacy generator, and the seen
    ones among the first `validation` are the validation set. A share `ratio` of the pool's classes
    are the first novel ones, the others are the last seen ones; all remaining images of these
    classes, labeled ones included, are the pool. The test set is the seen classes of the official
    one. Their labeled images come from a file that was drawn without a seed; here they are the
    first of each class in the permutation. Images without a label are not used.
    """

    name: str = field(default="oliver", init=False)
    ratio: float = 0.5
    """The share of the pool's classes that are novel: 0, 0.25, 0.5, 0.75 or 1 of four."""
    labels_per_class: int = 400
    """Labeled images of each seen class."""
    pool_classes: int = 4
    """The number of classes in the pool."""
    validation: int = 5_000
    """The number of images set aside first; the seen ones among them are the validation set."""
    pool_has_labeled: bool = True
    """Whether the labeled images of the pool's classes are in the pool as well."""
    seen_classes: tuple[int, ...] | None = None
    """Seen classes; by default CIFAR-10's six animals."""
    test_classes: Literal["seen", "all"] = "seen"
    """The classes of the official test set to test on; the code tests on the seen ones only."""

    def _check(self) -> None:
        check_share("ratio", self.ratio, ends="01")
        check_counts(1, labels_per_class=self.labels_per_class, pool_classes=self.pool_classes)
        check_counts(validation=self.validation)
        require(
            (Fraction(str(self.ratio)) * self.pool_classes).denominator == 1,
            f"ratio = {self.ratio} of {self.pool_classes} classes is not a whole number of them: "
            f"give a multiple of 1/{self.pool_classes}.",
        )

    def _parts(self, data: Labeling) -> Parts:
        seen = named_or_animals(self.seen_classes, data)
        novel = data.novel(seen)
        from_novel = int(Fraction(str(self.ratio)) * self.pool_classes)
        from_seen = self.pool_classes - from_novel
        require(
            from_novel <= len(novel) and from_seen <= len(seen),
            f"A pool of {from_seen} seen and {from_novel} novel classes is wanted, but there are "
            f"{len(seen)} and {len(novel)}: lower pool_classes, or change ratio.",
        )
        pool_classes = (*novel[:from_novel], *seen[len(seen) - from_seen :])
        validation, orders = _permute(data, self.seed, self.validation, seen)
        remedy = "lower labels_per_class or validation"
        for label in seen:
            has = len(orders[label])
            data.check_enough(
                label, has, self.labels_per_class, remedy, " outside the validation set"
            )
        labeled = join(orders[label][: self.labels_per_class] for label in seen)
        pool = join(orders[label] for label in pool_classes)
        return Parts(
            seen=seen,
            labeled=labeled,
            unlabeled=pool if self.pool_has_labeled else np.setdiff1d(pool, labeled),
            validation=validation,
            test=data.official_test(seen if self.test_classes == "seen" else None),
            test_on="test",
        )


def named_or_animals(seen_classes: tuple[int, ...] | None, data: Labeling) -> tuple[int, ...]:
    """The seen classes that the user names, or by default CIFAR-10's animals."""
    if seen_classes is not None:
        return check_classes(seen_classes, data.num_classes)
    if data.num_classes != 10:
        raise InputError(
            f"The protocol knows the seen classes of CIFAR-10, but here are {data.num_classes} "
            "classes: name them with seen_classes."
        )
    return ANIMALS


def _permute(
    data: Labeling, seed: int, set_aside: int, seen: tuple[int, ...]
) -> tuple[Indices, list[Indices]]:
    """Permute the training images, and set the first ones aside.

    Returns:
        The seen images among those set aside, and the others of each class, both as permuted.
    """
    order = np.random.RandomState(seed).permutation(len(data.train))
    require(
        set_aside < max(len(order), 1),
        f"validation = {set_aside:,} must be below the number of training images, {len(order):,}.",
    )
    first, rest = order[:set_aside], order[set_aside:]
    orders = [rest[data.train[rest] == label] for label in range(data.num_classes)]
    return first[np.isin(data.train[first], seen)], orders
