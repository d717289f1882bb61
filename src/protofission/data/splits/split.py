"""A split: the indices of the labeled, unlabeled, validation and test images."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

SPLIT_PARTS = ("labeled", "unlabeled", "validation", "test")
"""The arrays of indices that a split holds."""


def no_indices() -> Indices:
    """An empty part."""
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Split:
    """Indices into a data set: name, options and seed give the same ones on every machine.

    The indices of a part ascend. Seen and novel classes together are all classes, whether or not
    the pool holds images of each.
    """

    name: str
    seed: int
    seen_classes: tuple[int, ...]
    novel_classes: tuple[int, ...]
    labeled: Indices
    unlabeled: Indices
    test: Indices
    """Indices into the training images or the official test images, as `test_on` says."""
    test_on: Literal["train", "test"] = "train"
    validation: Indices = field(default_factory=no_indices)
    """Labeled images that are held out of training; empty if the protocol has none."""
    classes: Literal["fine", "coarse"] = "fine"
    """The labels of the data set that the classes are."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The protocol's options, which with name and seed determine the split."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The number of images of the data set, by "train" and "test"."""
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The number of images of each class, by part; those without a label are not counted."""

    @property
    def merge(self) -> int | None:
        """Fine classes that make a coarse one; None if the data set's own coarse ones are used."""
        return self.options.get("merge")

    @property
    def sha256(self) -> str:
        """The fingerprint of its classes and indices."""
        digest = hashlib.sha256()
        parts = [self.seen_classes, self.novel_classes, self.labeled, self.unlabeled, self.test]
        beyond = (len(self.validation), self.test_on, self.classes) != (0, "train", "fine")
        for part in [*parts, self.validation] if beyond else parts:
            array = np.asarray(part, "<i8")
            digest.update(len(array).to_bytes(8, "little") + array.tobytes())
        if beyond:
            digest.update(f"{self.test_on} {self.classes}".encode())
        return digest.hexdigest()

    def manifest(self) -> dict[str, Any]:
        """Name, options, seed, classes, counts and fingerprint as JSON values, without indices."""
        return {
            "name": self.name,
            "options": {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in self.options.items()
            },
            "seed": self.seed,
            "classes": self.classes,
            "seen_classes": list(self.seen_classes),
            "novel_classes": list(self.novel_classes),
            **{part: len(getattr(self, part)) for part in SPLIT_PARTS},
            "test_on": self.test_on,
            "sizes": dict(self.sizes),
            "counts": {part: list(counts) for part, counts in self.counts.items()},
            "sha256": self.sha256,
        }

    def renumber(self, labels: Indices) -> Indices:
        """Renumber labels: seen classes first, in the split's order, then novel ones; -1 stays."""
        order = np.asarray(self.seen_classes + self.novel_classes)
        places = np.full(len(order) + 1, -1)  # the last place is what -1 points to
        places[order] = np.arange(len(order))
        return places[labels]
