"""k-means in which some rows stay with their class whatever the clusters do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STARTS = 4
"""Places tried for each next cluster."""


@dataclass(frozen=True)
class Anchors:
    """Labeled rows that stay with their class whatever the clusters do."""

    sums: Floats
    """(S, d)."""
    counts: Floats
    """(S,)."""

    @staticmethod
    def of(points: Floats, classes: Ints, number: int) -> Anchors:
        """Rows of so many classes."""
        members = np.eye(number)[classes]
        return Anchors(members.T @ points, members.sum(0))

    @property
    def means(self) -> Floats:
        """(S, d)."""
        return self.sums / self.counts[:, None]


@dataclass(frozen=True)
class Clusters:
    """Where clusters are, and what is in them."""

    centers: Floats
    """(K, d): those of the S known classes first."""
    members: Ints
    """(N,): the cluster of each row."""
    inertia: float
    """The squared distances of all rows from their centers."""


def squared_distances(points: Floats, centers: Floats) -> Floats:
    """(N, K)."""
    squares = (points * points).sum(1)[:, None] + (centers * centers).sum(1)
    return np.asarray(np.maximum(squares - 2 * points @ centers.T, 0.0))


def settled(points: Floats, centers: Floats, anchors: Anchors, turns: int) -> Clusters:
    """Lloyd's iterations in which anchors stay with their class."""
    known, places = len(anchors.counts), np.arange(len(points))
    members = np.full(len(points), -1)
    for _ in range(turns):
        distances = squared_distances(points, centers)
        before, members = members, distances.argmin(1)
        if (before == members).all():
            break
        belong = np.zeros((len(centers), len(points)))
        belong[members, places] = 1
        sums, counts = belong @ points, belong.sum(1)
        sums[:known] += anchors.sums
        counts[:known] += anchors.counts
        centers = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers)
    distances = squared_distances(points, centers)
    members = distances.argmin(1)
    return Clusters(centers, members, float(distances[places, members].sum()))


def growing(
    points: Floats, anchors: Anchors, most: int, random: np.random.Generator
) -> list[Clusters]:
    """Clusterings with 1 to `most` clusters besides the anchors', each grown from the last."""
    known = len(anchors.counts)
    found: list[Clusters] = []
    last = settled(points, anchors.means if known else points.mean(0, keepdims=True), anchors, 12)
    if not known:
        found.append(last)
    while len(found) < most:
        far = squared_distances(points, last.centers).min(1)
        if not far.sum() > 0:
            break
        starts = random.choice(len(points), STARTS, p=far / far.sum())
        # known classes start at their anchors again: strangers may have drawn them away
        before = np.vstack([anchors.means, last.centers[known:]])
        grown = [
            settled(points, np.vstack([before, points[start]]), anchors, 6) for start in starts
        ]
        best = min(grown, key=lambda clusters: clusters.inertia)
        last = settled(points, best.centers, anchors, 12)
        found.append(last)
    return found
