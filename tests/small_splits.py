"""A small data set and options that suit it, for each split."""

from typing import Any

import numpy as np

from protofission.data.splits.labeling import Labeling
from protofission.data.splits.registry import find_split
from protofission.data.splits.split import Split

SMALL: dict[str, dict[str, Any]] = {
    "orca": {},
    "ds3l": {"unlabeled": 60, "labels_per_class": 4},
    "ds3l-code": {
        "unlabeled": 60,
        "labels_per_class": 4,
        "validation": 20,
        "seen_classes": [1, 2, 4],
    },
    "oliver": {"labels_per_class": 4, "validation": 20, "seen_classes": [1, 2, 4]},
    "openmatch": {"labels_per_class": 4, "validation_per_class": 2, "seen_coarse": 2},
    "iomatch": {"labels_per_class": 4, "seen_coarse": 2},
    "gcd": {},
    "openldn": {},
    "controlled": {"seen_images": 30, "labels_per_class": 4},
    "coarse": {"labels_per_class": 8, "num_seen": 2},
    "full": {},
}


def small(extra: int = 0) -> Labeling:
    """Six classes of 40 images, in three coarse ones, and some images without a label."""
    order = np.random.default_rng(0).permutation(240 + extra)
    train = np.append(np.repeat(np.arange(6), 40), np.full(extra, -1))[order]
    test = np.arange(60) % 6
    coarse_of = np.array([0, 0, 1, 1, 2, 2, -1])
    names = ("ant", "bee", "cat", "dog", "elk", "fox")
    return Labeling(train, 6, test, names, coarse_of[train], coarse_of[test], ("x", "y", "z"))


def small_split(name: str, seed: int = 0, extra: int = 0) -> Split:
    return find_split(name, SMALL[name], seed=seed).split(small(extra))
