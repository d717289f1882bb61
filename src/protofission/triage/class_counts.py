"""Estimate the numbers of novel classes and of sub-classes, where a user asks for them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protofission.core.cluster_count import Count, count_novel, count_parts
from protofission.core.progress import Progress
from protofission.core.rng import step_rng
from protofission.data.augment.views import Augmentations
from protofission.data.image_sets import TrainingData

COUNTED = 4000
"""Most images of the pool, and most labeled ones, by which classes are counted."""
MOST_PARTS = 10
"""Most sub-classes of a class."""


def count_novel_classes(
    views: Augmentations, data: TrainingData, seed: int, progress: Progress
) -> Count:
    """Estimate the number of novel classes in the pool, by at most COUNTED images of each kind."""
    generator = step_rng(seed, 0, "images that are counted")
    some = torch.randperm(len(data.unlabeled), generator=generator)[:COUNTED]
    own = torch.randperm(len(data.labeled), generator=generator)[:COUNTED]
    return count_novel(
        _features(views, data.labeled[own]),
        data.labels[own].numpy(),
        _features(views, data.unlabeled[some]),
        seed=seed,
        progress=progress,
    )


def count_subclasses(
    views: Augmentations, data: TrainingData, seed: int, progress: Progress
) -> tuple[Count, ...]:
    """Estimate the number of sub-classes of each known class, by its labeled images."""
    found: list[Count] = []
    for own in range(data.num_seen):
        progress(own, data.num_seen)
        some = data.labeled[data.labels == own][:COUNTED]
        count = Count(1, 1.0, ())
        if len(some) > 1:
            count = count_parts(_features(views, some), most=MOST_PARTS, seed=seed)
        found.append(count)
    progress(data.num_seen, data.num_seen)
    return tuple(found)


def _features(views: Augmentations, rows: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = views.plain(rows).float().numpy()
    return found
