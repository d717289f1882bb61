"""Clusters of the images that a model rejects: candidates for novel classes, given or counted.

They are found by spherical k-means among unit vectors that are whitened by the scatter within known
classes, so that what differs between images of one class weighs less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from protofission.core.array_types import Floats, Ints
from protofission.core.cluster_numbers import FEWEST, MOST, ClusterNumber, count_clusters
from protofission.core.errors import require
from protofission.core.rng import step_rng
from protofission.core.unit_clusters import cluster_units
from protofission.core.unit_maps import UnitMap, check_features_given, whitening_map

POOL = 4000
"""Most rows of the pool by which the space is found; of more, a sample is taken."""


@dataclass(frozen=True)
class RejectedClusters:
    """Clusters of rejected images; a new one belongs to the center of the largest cosine."""

    space: UnitMap
    centers: Floats
    """(K, d), of length 1, the largest cluster first."""
    members: Ints
    """(R,): the cluster of each rejected image; NO_CLASS where there are none."""
    counted: ClusterNumber | None
    """The estimate, if the number was not given."""


def cluster_rejected(
    labeled: ArrayLike,
    labels: ArrayLike,
    pool: ArrayLike,
    rejected: ArrayLike,
    number: int | None = None,
    *,
    known: float = 0.0,
    most: int = MOST,
    seed: int = 0,
) -> RejectedClusters:
    """Cluster the rejected images of a pool, in as many clusters as given or as are found.

    Args:
        labeled: (L, D) features.
        labels: (L,): their classes, any whole numbers.
        pool: (U, D) features.
        rejected: (U,): which of the pool are rejected.
        number: K, or None to estimate it; there are fewer where different rows are fewer.
        known: of the rejected, how many are expected to be of known classes: where the others
            could be chance, nothing is new and the estimate is 0.
        most: the largest estimate.
    """
    rows, chosen = check_features_given(pool, "pool"), np.asarray(rejected)
    require(
        chosen.shape == (len(rows),) and chosen.dtype == np.bool_,
        f"rejected has the shape {chosen.shape} for {len(rows)} pool rows: give a bool for each.",
    )
    order = np.random.default_rng(step_rng(seed, 0, "rows of the space").initial_seed())
    sample = np.sort(order.permutation(len(rows))[:POOL])
    space = whitening_map(labeled, labels, rows[sample])
    units, counted = space.apply(rows[chosen]), None
    if number is None:
        counted = _count_new(units, known, most, seed)
        number = counted.number
    found = cluster_units(units, number, seed)
    return RejectedClusters(space, found.centers, found.members, counted)


def _count_new(units: Floats, known: float, most: int, seed: int) -> ClusterNumber:
    """The number of clusters; 0 where rejected rows are hardly more than known ones would be."""
    if len(units) < known + 2 * np.sqrt(known) + FEWEST:
        return ClusterNumber(0, 0, min(len(units), 1), ())
    return count_clusters(units, most, seed)
