"""Predictions of a model for the test images."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.metrics import Counts, contingency

Float32s = NDArray[np.float32]

NO_SLOT = -1
"""The slot of an image that no prototype claims."""


@dataclass(frozen=True)
class Predictions:
    """Predictions for N test images, beside their true labels."""

    labels: Ints
    """(N,): true classes, seen ones first."""
    heads: Ints
    """(N,): predicted heads; from S on, novel ones."""
    slots: Ints
    """(N,): the nearest prototype of the predicted head, or NO_SLOT."""
    similarities: Float32s
    """(N,): the similarity to that prototype, or to the nearest one of all."""
    ood_scores: Float32s
    """(N,): higher is more OOD."""
    prototypes: Float32s
    """(C, V, D); where heads are clusters of features, V = 1 and these are their centers."""
    mixing: Float32s
    """(C, V): lambda."""
    num_seen: int
    num_classes: int
    finer: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """(N,): true finer classes where there are any, else (0,); so for the two that follow."""
    own_slots: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """(N,): the nearest prototype of the true class."""
    own_clusters: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """(N,): the cluster of each image, by k-means with V clusters on the features of its class."""

    @property
    def confusion(self) -> Counts:
        """(classes, heads): images by true class and predicted head."""
        return contingency(self.labels, self.heads, self.num_classes, self.num_classes)

    @property
    def slot_usage(self) -> Counts:
        """(C, V): images by predicted head and its nearest slot."""
        claimed = self.slots != NO_SLOT
        usage = np.zeros(self.prototypes.shape[:2], np.int64)
        np.add.at(usage, (self.heads[claimed], self.slots[claimed]), 1)
        return usage
