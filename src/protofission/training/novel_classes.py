"""Novel classes from clusters of features, for methods without heads for them.

ORCA's authors name two ways for methods that know seen classes only: reject, then cluster what was
rejected; or cluster all images, then match the clusters to the seen classes through the labels.
This is the second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from protofission.core.kmeans import cluster_rows, mean_directions
from protofission.core.metrics import contingency
from protofission.core.records import NO_CLASS
from protofission.core.rng import step_rng

CENTER_ROWS = 10_000
"""Most labeled images, and most other ones, by which centers are found."""


class ClassAssignment(NamedTuple):
    """The classes of images by their nearest cluster centers."""

    heads: Tensor
    """(N,): the class; from S on, a novel one."""
    similarities: Tensor
    """(N,): the cosine with the nearest center."""
    scores: Tensor
    """(N,): 1 - the cosine with the nearest center of a seen class; higher is more OOD."""
    centers: Tensor
    """(C, D): the center of each class, of length 1; 0 for a class without a cluster."""


def match_clusters(clusters: Tensor, labels: Tensor, num_seen: int, number: int) -> Tensor:
    """(number,): the class that each cluster stands for, by a one-to-one matching (Hungarian).

    The matching gets as many labeled images right as can be; clusters without a class are novel
    ones, numbered from S on in their order.

    Args:
        clusters: (L,), of the labeled images, in [0, number).
        labels: (L,), in [0, S).
        number: how many clusters there are, at least S.
    """
    counts = contingency(labels.cpu().numpy(), clusters.cpu().numpy(), num_seen, number)
    classes, chosen = linear_sum_assignment(counts, maximize=True)
    names = np.full(number, NO_CLASS)
    names[chosen] = classes
    names[names == NO_CLASS] = np.arange(num_seen, number)
    return torch.from_numpy(names)


def cluster_into_classes(
    labeled: Tensor,
    labels: Tensor,
    features: Tensor,
    num_seen: int,
    num_classes: int,
    seed: int,
    *,
    anchored: bool,
) -> ClassAssignment:
    """Spherical k-means of labeled and other features, matched to the classes through the labels.

    A feature of length 0 has no direction: it moves no center, and has a cosine of 0 with all.

    Args:
        labeled: (L, D).
        labels: (L,), in [0, S).
        features: (N, D), of the images whose classes are wanted.
        anchored: whether labeled images keep to the clusters of their classes (semi-supervised
            k-means), or move as all others do.
    """
    generator = step_rng(seed, 0, "clusters")
    known, rows = _units(labeled), _units(features)
    directed = known.any(1)
    known, labels = known[directed], labels.cpu()[directed.cpu()]
    found, names = _centers(known, labels, rows, num_seen, num_classes, generator, anchored)
    cosines = rows @ found.T  # (N, K)
    similarities, nearest = cosines.max(1)
    centers = rows.new_zeros(num_classes, rows.shape[1])
    centers[names] = found
    return ClassAssignment(
        heads=names[nearest],
        similarities=similarities,
        scores=1 - cosines[:, names < num_seen].amax(1),
        centers=centers,
    )


def _centers(
    known: Tensor,
    labels: Tensor,
    rows: Tensor,
    num_seen: int,
    num_classes: int,
    generator: torch.Generator,
    anchored: bool,
) -> tuple[Tensor, Tensor]:
    """(K, D) centers, at least one and at most C, and the class of each."""
    some = torch.randperm(len(known), generator=generator)[:CENTER_ROWS]
    others = rows[torch.randperm(len(rows), generator=generator)[:CENTER_ROWS]]
    fitted = torch.cat([known[some], others[others.any(1)]])
    if not len(fitted):
        return rows.new_zeros(1, rows.shape[1]), torch.zeros(1, dtype=torch.long)
    owners = torch.full((len(fitted),), NO_CLASS)
    if anchored:
        owners[: len(some)] = labels[some]
        nowhere = rows.new_zeros(num_seen, rows.shape[1])
        starts = mean_directions(known[some], labels[some], nowhere)
        found = cluster_rows(fitted, owners, starts, num_classes - num_seen, generator).centers
        return found, torch.arange(len(found))
    found = cluster_rows(fitted, owners, fitted[:0], num_classes, generator).centers
    nearest = (known @ found.T).argmax(1)
    return found, match_clusters(nearest, labels, num_seen, max(len(found), num_seen))[: len(found)]


def _units(rows: Tensor) -> Tensor:
    return F.normalize(rows.detach().cpu().double(), dim=1)
