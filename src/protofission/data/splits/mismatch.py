"""Protocols with a mismatch ratio: which share of the pool comes from novel classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from protofission.core.errors import InputError, require
from protofission.data.splits.labeling import Labeling, evenly, in_drawn_order, joined
from protofission.data.splits.spec import (
    Parts,
    SplitSpec,
    check_counts,
    check_share,
    first_classes,
)
from protofission.data.splits.split import Indices

LABELS_PER_CLASS = {10: 400, 100: 100}
"""The paper's labels of each seen class, by the number of classes."""


@dataclass(frozen=True, kw_only=True)
class Ds3lSplit(SplitSpec):
    """The paper's, by its words: DS3L with half the classes seen (for DS3L's code: `ds3l-code`).

    Of the `unlabeled` images of the pool, the whole number nearest to
    `ratio * unlabeled` (halves to even) is novel. Seen and novel images are spread evenly over
    their classes, the first classes getting one more where it is uneven. Judged on the official
    test set, all classes. The draws are ours: at one seed the labeled images are the same for
    every ratio. Images without a label are not used.
    """

    name: str = field(default="ds3l", init=False)
    ratio: float = 0.3
    """r: the share of the pool that is novel."""
    labels_per_class: int | None = None
    """Of each seen class; 400 of 10 classes and 100 of 100 where none is given."""
    unlabeled: int = 20_000
    """The size of the pool."""
    num_seen: int | None = None
    """S: the first S classes are seen; half of them where none is given."""
    test_per_class: int | None = None
    """Hold so many training images of each class out as the test set, instead of the official."""

    def _check(self) -> None:
        check_share("ratio", self.ratio, ends="01")
        check_counts(1, labels_per_class=self.labels_per_class, test_per_class=self.test_per_class)
        check_counts(unlabeled=self.unlabeled)

    def _parts(self, data: Labeling) -> Parts:
        novel = round(Fraction(str(self.ratio)) * self.unlabeled)
        pool = _Pool(
            seen=self.unlabeled - novel,
            novel=novel,
            if_seen="lower labels_per_class or unlabeled, or raise ratio",
            if_novel="lower unlabeled or ratio",
        )
        return _drawn(self, data, pool)


@dataclass(frozen=True, kw_only=True)
class ControlledSplit(SplitSpec):
    """Ours: the labeled images and the seen part of the pool stay, novel images are added.

    So the ratio alone changes, where `ds3l` trades seen images for novel ones. To `seen_images` of
    seen classes, the whole number nearest to `seen_images * ratio / (1 - ratio)` (halves to even)
    of novel images is added, so at one seed a higher ratio only adds images. All are spread evenly
    over their classes. Judged on the official test set, all classes. Images without a label are
    not used.
    """

    name: str = field(default="controlled", init=False)
    ratio: float = 0.3
    """r: the share of the pool that is novel."""
    labels_per_class: int | None = None
    """Of each seen class; 400 of 10 classes and 100 of 100 where none is given."""
    seen_images: int = 10_000
    """Images of seen classes in the pool; CIFAR has novel images for a ratio of 0.7 of these."""
    num_seen: int | None = None
    """S: the first S classes are seen; half of them where none is given."""
    test_per_class: int | None = None
    """Hold so many training images of each class out as the test set, instead of the official."""

    def _check(self) -> None:
        check_share("ratio", self.ratio, ends="0")
        check_counts(1, labels_per_class=self.labels_per_class, test_per_class=self.test_per_class)
        check_counts(seen_images=self.seen_images)

    def _parts(self, data: Labeling) -> Parts:
        ratio = Fraction(str(self.ratio))
        novel = round(self.seen_images * ratio / (1 - ratio))
        pool = _Pool(
            seen=self.seen_images,
            novel=novel,
            if_seen="lower labels_per_class or seen_images",
            if_novel="lower seen_images or ratio",
        )
        return _drawn(self, data, pool)


@dataclass(frozen=True)
class _Pool:
    """How many images of the pool are seen and novel, and what helps where a class is short."""

    seen: int
    novel: int
    if_seen: str
    if_novel: str


def _drawn(spec: Ds3lSplit | ControlledSplit, data: Labeling, pool: _Pool) -> Parts:
    """Of each class in its drawn order: first the labeled images, then the pool; last the test."""
    seen = first_classes(spec.num_seen, data.num_classes // 2, data.num_classes)
    novel = data.novel(seen)
    require(
        bool(novel) or pool.novel == 0,
        f"ratio = {spec.ratio} asks for novel images, but all {len(seen)} classes are seen: "
        "lower num_seen, or set ratio to 0.",
    )
    labels = labels_per_class(spec.labels_per_class, data.num_classes)
    sizes = dict(zip(seen, evenly(pool.seen, len(seen)), strict=True))
    sizes |= dict(zip(novel, evenly(pool.novel, len(novel)), strict=True)) if novel else {}
    held_out = spec.test_per_class or 0
    labeled, unlabeled, test = [], [], []
    for label, order in enumerate(in_drawn_order(data, spec.seed)):
        first = labels if label in seen else 0
        remedy = pool.if_seen if label in seen else pool.if_novel
        remedy += ", or lower test_per_class" if held_out else ""
        data.need(label, len(order), first + sizes[label] + held_out, remedy)
        labeled.append(order[:first])
        unlabeled.append(order[first : first + sizes[label]])
        test.append(order[len(order) - held_out :])
    return Parts(seen, joined(labeled), joined(unlabeled), *judged_on(data, joined(test)))


def labels_per_class(wanted: int | None, num_classes: int) -> int:
    """The number asked for, or the paper's."""
    number = LABELS_PER_CLASS.get(num_classes) if wanted is None else wanted
    if number is None:
        raise InputError(
            f"labels_per_class has a default for 10 and 100 classes, but here are {num_classes}: "
            "give it."
        )
    return number


def judged_on(data: Labeling, held_out: Indices) -> tuple[Indices, Literal["train", "test"]]:
    """The test set: training images that were held out, or else the official test images."""
    return (held_out, "train") if len(held_out) else (data.official_test(), "test")
