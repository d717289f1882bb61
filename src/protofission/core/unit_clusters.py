"""Clusters of unit vectors by spherical k-means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from protofission.core.array_types import Floats, Ints
from protofission.core.errors import require
from protofission.core.kmeans import SPHERE, cluster_rows
from protofission.core.records import NO_CLASS
from protofission.core.rng import step_rng

ROWS = 4000
"""Most rows by which clusters are found; of more, a sample is taken."""
RESTARTS = 20
"""Runs of k-means, of which the cheapest is kept."""


@dataclass(frozen=True)
class UnitClusters:
    """Clusters of unit vectors; a new image belongs to the center of the largest cosine."""

    centers: Floats
    """(K, d), of length 1."""
    members: Ints
    """(N,): the cluster of each row by which they were found."""


def cluster_units(rows: Floats, number: int, seed: int, restarts: int = RESTARTS) -> UnitClusters:
    """Spherical k-means of (N, d) unit vectors, largest cluster first.

    There are fewer clusters than `number` where different rows are fewer. Rows of length 0 belong
    to the first, and all rows to NO_CLASS where there are no clusters.
    """
    require(number >= 0, f"number = {number} of clusters must be 0 or more.")
    some = np.flatnonzero(np.einsum("nd,nd->n", rows, rows) > 0)
    if number == 0 or len(some) == 0:
        return UnitClusters(np.empty((0, rows.shape[1])), np.full(len(rows), NO_CLASS))
    generator = step_rng(seed, number, "clusters of unit vectors")
    if len(some) > ROWS:
        some = some[torch.randperm(len(some), generator=generator)[:ROWS].numpy()]
    units = torch.from_numpy(np.ascontiguousarray(rows[some]))
    free = torch.full((len(units),), NO_CLASS)
    found = cluster_rows(units, free, units[:0], number, generator, SPHERE, restarts=restarts)
    centers = found.centers.numpy()
    sizes = np.bincount(nearest_units(rows, centers), minlength=len(centers))
    centers = centers[np.argsort(-sizes, kind="stable")[: int((sizes > 0).sum())]]
    return UnitClusters(centers, nearest_units(rows, centers))


def nearest_units(rows: Floats, centers: Floats) -> Ints:
    """(N,): of (K, d) centers, the one of the largest cosine to each of (N, d) unit vectors."""
    return np.asarray((rows @ centers.T).argmax(1), np.int64)
