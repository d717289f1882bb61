"""Start of a head's prototypes from features: class means, and clusters of the pool."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from protofission.core.checks import check_features, check_labels
from protofission.core.errors import require
from protofission.core.rng import step_rng
from protofission.models.class_clusters import FeatureSample
from protofission.models.heads import HEADS, kind_of, starting_kinds


@torch.no_grad()
def start_from_data(
    head: nn.Module, labeled: Tensor, labels: Tensor, pool: Tensor, num_seen: int, seed: int
) -> None:
    """Set the prototypes of a head by features, in place.

    Seen classes start at their labeled features, novel ones at clusters of the pool; where exactly,
    the head's own file says (models/heads). A class without a feature keeps its random start.

    Args:
        labeled: (L, D) features; where there are none, S is 0 and every class a cluster.
        labels: (L,), in [0, S).
        pool: (U, D) features.
        num_seen: S.

    Raises:
        InputError: if the head cannot start from data, or features and labels do not fit it.
    """
    entry = HEADS[kind_of(head)]
    require(
        entry.can_start,
        f"A start from the data is for {', '.join(starting_kinds())} heads, but this is "
        f"{type(head).__name__}: let it start at random.",
    )
    classes, _, width = entry.sizes(head)
    check_features(labeled, width)
    check_features(pool, width)
    require(num_seen <= classes, f"num_seen = {num_seen} is above the head's {classes} classes.")
    if len(labeled):
        check_labels(labels, len(labeled), num_seen)
    require(bool((labels >= 0).all()), "A labeled feature has no class (-1): leave it to the pool.")
    generator = step_rng(seed, 0, "start of prototypes")
    entry.start(head, FeatureSample(labeled, labels, pool, num_seen), generator)
