"""Protocols with a mismatch ratio, the share of the pool that comes from novel classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from protofission.core.errors import InputError, require
from protofission.data.splits.labeling import Labeling, join, shuffle_classes, spread_evenly
from protofission.data.splits.spec import (
    Parts,
    SplitSpec,
    check_counts,
    check_share,
    first_classes,
)
from protofission.data.splits.split import Indices

LABELS_PER_CLASS = {10: 400, 100: 100}
"""The paper's number of labeled images per seen class, by the number of classes."""


@dataclass(frozen=True, kw_only=True)
class Ds3lSplit(SplitSpec):
    """The paper's words: DS3L with half of the classes seen (for DS3L's code see `ds3l-code`).

    `round(ratio * unlabeled)` images of the pool are novel (halves round to even). Seen and novel
    images are spread evenly over their classes; the first classes get one more if it is uneven.
    The test set is the official one, all classes. The draws are ours: at one seed, the labeled
    images are the same for every ratio. Images without a label are not used.
    """

    name: str = field(default="ds3l", init=False)
    ratio: float = 0.3
    """r: the share of the pool that is novel."""
    labels_per_class: int | None = None
    """Labeled images of each seen class; by default 400 for 10 classes and 100 for 100 classes."""
    unlabeled: int = 20_000
    """The size of the pool."""
    num_seen: int | None = None
    """S: the first S classes are seen; by default half of them."""
    test_per_class: int | None = None
    """Hold out this many training images of each class as the test set, instead of the official."""

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
        return _draw_parts(self, data, pool)


@dataclass(frozen=True, kw_only=True)
class ControlledSplit(SplitSpec):
    """Ours: the labeled images and the seen part of the pool stay, novel images are added.

    So the ratio alone changes, where `ds3l` trades seen images for novel ones. The pool has
    `seen_images` images of seen classes and `round(seen_images * ratio / (1 - ratio))` novel ones
    (halves round to even), so at one seed a higher ratio only adds images. All are spread evenly
    over their classes. The test set is the official one, all classes. Images without a label are
    not used.
    """

    name: str = field(default="controlled", init=False)
    ratio: float = 0.3
    """r: the share of the pool that is novel."""
    labels_per_class: int | None = None
    """Labeled images of each seen class; by default 400 for 10 classes and 100 for 100 classes."""
    seen_images: int = 10_000
    """Images of seen classes in the pool; with 10,000, CIFAR allows a ratio of up to 0.7."""
    num_seen: int | None = None
    """S: the first S classes are seen; by default half of them."""
    test_per_class: int | None = None
    """Hold out this many training images of each class as the test set, instead of the official."""

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
        return _draw_parts(self, data, pool)


@dataclass(frozen=True)
class _Pool:
    """The numbers of seen and novel images in the pool, and the remedies if a class has too few."""

    seen: int
    novel: int
    if_seen: str
    if_novel: str


def _draw_parts(spec: Ds3lSplit | ControlledSplit, data: Labeling, pool: _Pool) -> Parts:
    """Cut each shuffled class into labeled images (the first), pool, and test images (the last)."""
    seen = first_classes(spec.num_seen, data.num_classes // 2, data.num_classes)
    novel = data.novel(seen)
    require(
        bool(novel) or pool.novel == 0,
        f"ratio = {spec.ratio} asks for novel images, but all {len(seen)} classes are seen: "
        "lower num_seen, or set ratio to 0.",
    )
    labels = choose_labels_per_class(spec.labels_per_class, data.num_classes)
    sizes = dict(zip(seen, spread_evenly(pool.seen, len(seen)), strict=True))
    sizes |= dict(zip(novel, spread_evenly(pool.novel, len(novel)), strict=True)) if novel else {}
    held_out = spec.test_per_class or 0
    labeled, unlabeled, test = [], [], []
    for label, order in enumerate(shuffle_classes(data, spec.seed)):
        first = labels if label in seen else 0
        remedy = pool.if_seen if label in seen else pool.if_novel
        remedy += ", or lower test_per_class" if held_out else ""
        data.check_enough(label, len(order), first + sizes[label] + held_out, remedy)
        labeled.append(order[:first])
        unlabeled.append(order[first : first + sizes[label]])
        test.append(order[len(order) - held_out :])
    return Parts(seen, join(labeled), join(unlabeled), *choose_test(data, join(test)))


def choose_labels_per_class(wanted: int | None, num_classes: int) -> int:
    """The wanted number, or by default the paper's."""
    number = LABELS_PER_CLASS.get(num_classes) if wanted is None else wanted
    if number is None:
        raise InputError(
            f"labels_per_class has a default for 10 and 100 classes, but here are {num_classes}: "
            "give it."
        )
    return number


def choose_test(data: Labeling, held_out: Indices) -> tuple[Indices, Literal["train", "test"]]:
    """The test set, and its source: training images held out, or else the official test images."""
    return (held_out, "train") if len(held_out) else (data.official_test(), "test")
