"""Splits: which images are labeled, which form the pool, which judge. Indices, nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protofission.errors import require

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Indices into an image set, the same for the same name and seed on every machine."""

    name: str
    seed: int
    seen_classes: tuple[int, ...]
    novel_classes: tuple[int, ...]
    labeled: Indices
    unlabeled: Indices
    test: Indices

    @property
    def sha256(self) -> str:
        """The fingerprint of the split: of its classes and of the indices in their order."""
        digest = hashlib.sha256()
        for part in (
            self.seen_classes,
            self.novel_classes,
            self.labeled,
            self.unlabeled,
            self.test,
        ):
            array = np.asarray(part, "<i8")
            digest.update(len(array).to_bytes(8, "little") + array.tobytes())
        return digest.hexdigest()

    def manifest(self) -> dict[str, Any]:
        """What identifies the split, as plain values."""
        return {
            "name": self.name,
            "seed": self.seed,
            "seen_classes": list(self.seen_classes),
            "novel_classes": list(self.novel_classes),
            "labeled": len(self.labeled),
            "unlabeled": len(self.unlabeled),
            "test": len(self.test),
            "sha256": self.sha256,
        }

    def renumbered(self, labels: Indices) -> Indices:
        """Labels with the seen classes first, in the split's order, then the novel ones."""
        order = np.asarray(self.seen_classes + self.novel_classes)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return places[labels]


def orca_split(
    labels: Indices,
    num_classes: int,
    *,
    num_seen: int | None = None,
    labeled_share: float = 0.5,
    seed: int = 0,
    pool_has_labeled: bool = False,
) -> Split:
    """ORCA's: the first classes are seen, each seen image is labeled by a draw of its own.

    NumPy's legacy generator is drawn once for each *seen* image in file order; a draw below
    `labeled_share` makes it labeled. The rest is the unlabeled pool, and the test set.

    Args:
        labels: (N,) true classes of all images, in file order.
        num_seen: half the classes where not given.
        pool_has_labeled: keep the labeled images in the pool as well (FixMatch's habit); the test
            set is the rest all the same.
    """
    seen = num_classes // 2 if num_seen is None else num_seen
    require(
        1 <= seen <= num_classes,
        f"num_seen = {seen} must be between 1 and the number of classes, {num_classes}.",
    )
    require(0 < labeled_share < 1, f"labeled_share = {labeled_share} must lie between 0 and 1.")
    is_seen = labels < seen
    draws = np.random.RandomState(seed).random_sample(int(is_seen.sum()))
    is_labeled = np.zeros(len(labels), bool)
    is_labeled[is_seen] = draws < labeled_share
    rest = np.flatnonzero(~is_labeled)
    for label in range(seen):
        require(
            bool(is_labeled[labels == label].any()),
            f"Class {label} has no labeled image among its {int((labels == label).sum())}: "
            "raise labeled_share or add images.",
        )
    return Split(
        name="orca",
        seed=seed,
        seen_classes=tuple(range(seen)),
        novel_classes=tuple(range(seen, num_classes)),
        labeled=np.flatnonzero(is_labeled),
        unlabeled=np.arange(len(labels)) if pool_has_labeled else rest,
        test=rest,
    )
