"""Incremental k-means: clusterings with 1, 2, 3 ... clusters beside those of labeled classes.

Sums and products are NumPy's: torch's round differently, and counts would change in near ties.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protofission.core.array_types import Floats, Ints
from protofission.core.kmeans import Space, assign, k_means
from protofission.core.records import NO_CLASS

STARTS = 4
"""Places tried for each next cluster."""
ROUGH_ROUNDS, ROUNDS = 6, 12
"""Rounds of k-means for each place tried, and for the best of them."""


@dataclass(frozen=True)
class Anchors:
    """Labeled rows that stay with their class whatever the clusters do."""

    sums: Floats
    """(S, d)."""
    counts: Floats
    """(S,)."""

    @staticmethod
    def of(points: Floats, classes: Ints, number: int) -> Anchors:
        """Anchors from (N, d) rows of so many classes."""
        members = np.eye(number)[classes]
        return Anchors(members.T @ points, members.sum(0))

    @property
    def means(self) -> Floats:
        """(S, d)."""
        return self.sums / self.counts[:, None]


@dataclass(frozen=True)
class Clustering:
    """Centers, and which rows are nearest to each."""

    centers: Floats
    """(K, d): those of the S known classes first."""
    members: Ints
    """(N,): the cluster of each row."""
    inertia: float
    """The sum of squared distances of all rows from their centers."""


def grow_clusters(
    points: Floats, anchors: Anchors, most: int, random: np.random.Generator
) -> list[Clustering]:
    """Clusterings with 1 to `most` clusters beside the anchors', each grown from the last.

    There are fewer where all points lie on centers.
    """
    known = len(anchors.counts)
    found: list[Clustering] = []
    first = anchors.means if known else points.mean(0, keepdims=True)
    last = anchored_k_means(points, first, anchors, ROUNDS)
    if not known:
        found.append(last)
    while len(found) < most:
        far = _squared_distances(points, last.centers).min(1)
        if not far.sum() > 0:
            break
        starts = random.choice(len(points), STARTS, p=far / far.sum())
        # known classes start at their anchors again: strangers may have drawn them away
        before = np.vstack([anchors.means, last.centers[known:]])
        grown = [
            anchored_k_means(points, np.vstack([before, points[start]]), anchors, ROUGH_ROUNDS)
            for start in starts
        ]
        best = min(grown, key=lambda clustering: clustering.inertia)
        last = anchored_k_means(points, best.centers, anchors, ROUNDS)
        found.append(last)
    return found


def anchored_k_means(points: Floats, centers: Floats, anchors: Anchors, rounds: int) -> Clustering:
    """K-means from these centers, the first S of which anchors hold; empty clusters stay empty.

    Args:
        points: (N, d), all free to move.
        centers: (K, d), those of the anchors' S classes first.
        rounds: at most.
    """
    space, rows = _anchored_space(anchors), torch.from_numpy(points)
    free = torch.full((len(rows),), NO_CLASS)
    start = torch.from_numpy(centers)
    found = k_means(rows, free, start, space, rounds=rounds, refills=False).centers
    members, costs = assign(rows, free, found, space)
    return Clustering(found.numpy(), members.numpy(), float(costs.numpy().sum()))


def nearest_centers(points: Floats, centers: Floats) -> Ints:
    """(N,): the nearest of (K, d) centers to each of (N, d) points."""
    return np.asarray(_squared_distances(points, centers).argmin(1))


def _squared_distances(points: Floats, centers: Floats) -> Floats:
    """(N, K)."""
    squares = (points * points).sum(1)[:, None] + (centers * centers).sum(1)
    return np.asarray(np.maximum(squares - 2 * points @ centers.T, 0.0))


def _anchored_space(anchors: Anchors) -> Space:
    """Squared distances, and means to which anchors add their rows."""
    known = len(anchors.counts)

    def costs(rows: Tensor, centers: Tensor) -> Tensor:
        return torch.from_numpy(_squared_distances(rows.numpy(), centers.numpy()))

    def means(rows: Tensor, members: Tensor, centers: Tensor) -> Tensor:
        belong = np.zeros((len(centers), len(rows)))
        belong[members.numpy(), np.arange(len(rows))] = 1
        sums, counts = belong @ rows.numpy(), belong.sum(1)
        sums[:known] += anchors.sums
        counts[:known] += anchors.counts
        found = sums / np.maximum(counts, 1)[:, None]
        return torch.from_numpy(np.where(counts[:, None] > 0, found, centers.numpy()))

    return Space(costs, means)
