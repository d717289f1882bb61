"""Parts of each class, the sub-classes: clusters of its images in one space for all classes.

Whitening by the scatter within classes would divide by what tells their parts apart. So parts are
found without, and then again in the space that is whitened by the scatter within the parts found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from protofission.core.array_types import Floats, Ints
from protofission.core.cluster_numbers import ClusterNumber, count_clusters
from protofission.core.errors import require
from protofission.core.unit_clusters import cluster_units
from protofission.core.unit_maps import (
    UnitMap,
    check_classes,
    check_features_given,
    class_residuals,
    reduce_rows,
)

MOST_PARTS = 10
"""The largest number of parts that is estimated."""
PART_PRICE = 0.125
"""The price of parts: their space is not whitened, so that a class is longer and gains by a cut."""
WHITENINGS = 2
"""Number of times that the space is whitened by the parts found so far."""


@dataclass(frozen=True)
class ClassParts:
    """Parts of classes; an image of a class belongs to the part of the largest cosine."""

    space: UnitMap
    centers: tuple[Floats, ...]
    """(V, d) of each class, V as many as it has, the largest part first."""
    members: Ints
    """(N,): the part of each row within its class."""
    counted: tuple[ClusterNumber, ...] | None
    """The estimates of each class, if any number was not given."""


def split_classes(
    features: ArrayLike,
    classes: ArrayLike,
    numbers: Sequence[int | None] | None = None,
    *,
    most: int = MOST_PARTS,
    seed: int = 0,
) -> ClassParts:
    """Split each class into as many parts as given or as are found.

    Args:
        features: (N, D), of labeled images and of those of the pool that are taken for a class.
        classes: (N,): any whole numbers; parts come in their order.
        numbers: parts of each class, or None to estimate that of one or of all; there are fewer
            where different rows are fewer.
        most: the largest estimate.
    """
    rows = check_features_given(features, "class")
    own = check_classes(classes, len(rows))
    found = int(own.max(initial=-1)) + 1
    require(found > 0, "There are no rows of any class: give some.")
    require(
        numbers is None or len(numbers) == found,
        f"{len(numbers or ())} numbers of parts for {found} classes: give one each.",
    )
    reduced = reduce_rows(rows)
    space, counted = reduced.whiten(np.zeros_like(reduced.rows)), None
    given: list[int | None] = [None] * found if numbers is None else list(numbers)
    if None in given:
        units = space.apply(rows)
        counted = tuple(
            count_clusters(units[own == name], most, seed, PART_PRICE)
            if number is None
            else ClusterNumber(number, number, number, ())
            for name, number in enumerate(given)
        )
        given = [each.number for each in counted]
    wanted = [number for number in given if number is not None]
    for _ in range(WHITENINGS):
        _, members = _split(space.apply(rows), own, wanted, seed)
        parts = np.unique(np.stack([own, members]), axis=1, return_inverse=True)[1]
        space = reduced.whiten(class_residuals(reduced.rows, parts.reshape(-1)))
    return ClassParts(space, *_split(space.apply(rows), own, wanted, seed), counted)


def _split(
    rows: Floats, classes: Ints, numbers: Sequence[int], seed: int
) -> tuple[tuple[Floats, ...], Ints]:
    """Centers of each class, and the part of each row within its class."""
    members, centers = np.zeros(len(rows), np.int64), []
    for name, number in enumerate(numbers):
        own = classes == name
        found = cluster_units(rows[own], number, seed, restarts=5)
        members[own] = found.members
        centers.append(found.centers)
    return tuple(centers), members
