"""Features by class: labeled rows of seen classes, k-means clusters of the pool for novel ones.

Heads whose prototypes start from data share this. All is computed on the CPU in double precision,
so that every machine finds the same start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from protofission.core.kmeans import SPHERE, Space, cluster_rows, mean_directions
from protofission.core.records import NO_CLASS
from protofission.fission import random_directions

SPREAD = 0.1
"""Distance of prototypes for which there is no feature from the one that they repeat."""


class FeatureSample(NamedTuple):
    """Features that prototypes start from."""

    labeled: Tensor
    """(L, D); where there are none, S is 0 and every class a cluster."""
    labels: Tensor
    """(L,), in [0, S)."""
    pool: Tensor
    """(U, D)."""
    num_seen: int
    """S."""

    def doubles(self) -> FeatureSample:
        """The same features in double precision, all on the CPU."""
        labeled, pool = (rows.detach().cpu().double() for rows in (self.labeled, self.pool))
        return FeatureSample(labeled, self.labels.cpu(), pool, self.num_seen)

    def directions(self) -> FeatureSample:
        """The features at unit length, in double precision; those of length 0 are left out."""
        labeled, labels, pool, num_seen = self.doubles()
        known, some = (rows.norm(dim=-1) > 0 for rows in (labeled, pool))
        seen, free = (F.normalize(rows, dim=-1, eps=0) for rows in (labeled[known], pool[some]))
        return FeatureSample(seen, labels[known], free, num_seen)


def start_at_directions(
    prototypes: Tensor, sample: FeatureSample, generator: torch.Generator
) -> None:
    """Set (C, D) prototypes to the mean directions of their classes, in place."""
    for c, _, center in class_directions(prototypes, sample, generator):
        prototypes[c] = center.to(prototypes)


def class_directions(
    prototypes: Tensor, sample: FeatureSample, generator: torch.Generator
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number, (N, D) directions and (D,) mean direction of each class that has a feature.

    Args:
        prototypes: (C, D); a class whose directions cancel out keeps that of its prototype.
    """
    rows_of = class_rows(sample.directions(), len(prototypes), generator, SPHERE)
    for c, rows in rows_of.items():
        start = F.normalize(prototypes[c].double().cpu(), dim=-1)
        together = torch.zeros(len(rows), dtype=torch.long)
        yield c, rows, mean_directions(rows, together, start[None])[0]


def class_rows(
    sample: FeatureSample, num_classes: int, generator: torch.Generator, space: Space
) -> dict[int, Tensor]:
    """(N, D) rows of each class that has any: labeled ones, or those of a cluster of the pool."""
    seen, labels, free, num_seen = sample
    present = _numbers_in_use(labels)
    owners = torch.searchsorted(present, labels)
    classes = {c: seen[owners == place] for place, c in enumerate(present.tolist())}
    novel = num_classes - num_seen
    if novel and len(free):
        centers = space.means(seen, owners, seen.new_zeros(len(present), seen.shape[1]))
        rows, everyone = torch.cat([seen, free]), F.pad(owners, (0, len(free)), value=NO_CLASS)
        members = cluster_rows(rows, everyone, centers, novel, generator, space).members
        members = members - len(present)
        found = _numbers_in_use(members[members >= 0]).tolist()
        classes |= {num_seen + place: rows[members == place] for place in found}
    return classes


def prototype_centers(
    rows: Tensor, number: int, generator: torch.Generator, space: Space
) -> Tensor:
    """(V, D): k-means centers of (N, D) rows; where rows are too few, centers near them.

    Args:
        number: V.
    """
    free = torch.full((len(rows),), NO_CLASS)
    centers = cluster_rows(rows, free, rows[:0], number, generator, space).centers
    repeated = centers[torch.arange(number) % len(centers)]
    # A hair for the others too: a center opposite to its class's has then a side to turn to.
    spread = torch.full((number, 1), 1e-9, dtype=rows.dtype)
    spread[len(centers) :] = SPREAD
    aside = random_directions(number, rows.shape[1], generator=generator)
    return space.project(repeated + spread * aside)


def _numbers_in_use(numbers: Tensor) -> Tensor:
    """The numbers that occur, in order."""
    return numbers.bincount().nonzero()[:, 0]
