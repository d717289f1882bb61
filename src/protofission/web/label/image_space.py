"""Images as unit vectors: the nearest to one, a map of all, and typical ones of a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Floats, Ints
from protofission.core.unit_clusters import cluster_units
from protofission.core.unit_maps import principal_axes, whitening_map

SAMPLE = 4000
"""Most images of the pool by which the space is found, and most by which the map is."""
AT_ONCE = 4096
"""Rows of features that are in memory at a time."""
MAP_SIDE = 65_535
"""Places of the map run from 0 to this, in both directions."""
CUT = 0.002
"""The share of the images on each side of the map that are put on its edge."""
NEIGHBORS = 5
"""Neighbors that say how stable a cluster is."""

Units = NDArray[np.float32]
RowsOf = Callable[[Ints], NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class ImageSpace:
    """Unit vectors of N images, whitened by the scatter within labeled classes."""

    units: Units
    """(N, d)."""

    @staticmethod
    def of(rows: RowsOf, number: int, labels: Ints, seed: int = 0) -> ImageSpace:
        """Find the space of images whose features are given by their numbers, labeled ones first.

        Args:
            number: N.
            labels: (L,): classes of the first L images.
        """
        labeled = len(labels)
        pool = np.random.default_rng(seed).permutation(np.arange(labeled, number))[:SAMPLE]
        space = whitening_map(rows(np.arange(labeled)), labels, rows(np.sort(pool)))
        parts = [
            space.apply(rows(np.arange(start, min(start + AT_ONCE, number)))).astype(np.float32)
            for start in range(0, number, AT_ONCE)
        ]
        return ImageSpace(np.concatenate(parts))

    def similar(self, row: int, number: int) -> tuple[Ints, Floats]:
        """The images nearest to one, without itself, the nearest first, and their cosines."""
        cosines = (self.units @ self.units[row]).astype(np.float64)
        cosines[row] = -np.inf
        number = min(number, len(cosines) - 1)
        nearest = np.argpartition(-cosines, number - 1)[:number] if number else np.arange(0)
        nearest = nearest[np.argsort(-cosines[nearest], kind="stable")]
        return nearest, np.clip(cosines[nearest], -1, 1)

    def places(self) -> tuple[Ints, Ints]:
        """(N,) twice: places on a map, by the two directions in which images differ most."""
        some = np.random.default_rng(0).permutation(len(self.units))[:SAMPLE]
        sample = self.units[some].astype(np.float64)
        flat = (self.units - sample.mean(0)) @ principal_axes(sample, 2)
        if flat.shape[1] < 2:
            flat = np.concatenate([flat, np.zeros_like(flat)], 1)
        x, y = (_quantized(flat[:, k]) for k in range(2))
        return x, y

    def typicality_of(self, rows: Ints) -> Floats:
        """(n,): the cosine of each of n images to their mean direction."""
        own = self.units[rows].astype(np.float64)
        center = own.sum(0)
        return np.asarray(own @ (center / max(float(np.sqrt(center @ center)), 1e-12)))

    def typicality(self, groups: Ints) -> Floats:
        """(N,): the cosine of each image to the mean direction of its group; 0 outside of groups.

        Args:
            groups: (N,): numbers of groups, negative outside.
        """
        found = np.zeros(len(groups))
        order = np.argsort(groups, kind="stable")
        order = order[groups[order] >= 0]
        if len(order):
            starts = np.flatnonzero(np.diff(groups[order])) + 1
            for rows in np.split(order, starts):
                found[rows] = self.typicality_of(rows)
        return found

    def stability(self, groups: Ints) -> dict[int, float]:
        """By group, the share of its images' nearest neighbors in groups that are in the same."""
        inside = np.flatnonzero(groups >= 0)
        some = np.random.default_rng(0).permutation(inside)[:SAMPLE]
        if len(some) <= NEIGHBORS:
            return {}
        own, same = groups[some], np.empty(len(some))
        for start in range(0, len(some), 512):
            part = slice(start, start + 512)
            cosines = self.units[some[part]] @ self.units[some].T
            cosines[np.arange(len(cosines)), np.arange(start, start + len(cosines))] = -2
            near = np.argpartition(-cosines, NEIGHBORS - 1, axis=1)[:, :NEIGHBORS]
            same[part] = (own[near] == own[part, None]).mean(1)
        return {int(number): float(same[own == number].mean()) for number in np.unique(own)}

    def split(self, rows: Ints, parts: int) -> tuple[Ints, ...]:
        """Divide images into parts by spherical k-means, the largest first; fewer if all alike."""
        found = cluster_units(self.units[rows].astype(np.float64), parts, seed=0)
        return tuple(rows[found.members == k] for k in range(len(found.centers)))


def _quantized(values: Floats) -> Ints:
    """Values on a scale from 0 to MAP_SIDE; a few far ones are put on the edge."""
    low, high = np.quantile(values, [CUT, 1 - CUT])
    if not high > low:
        return np.full(len(values), MAP_SIDE // 2)
    share = np.clip((values - low) / (high - low), 0, 1)
    return np.asarray(np.rint(share * MAP_SIDE), np.int64)
