"""Classes from clusters: how a method without heads for novel classes can speak of them.

ORCA's authors name two ways for methods that know seen classes only: reject, then cluster what was
rejected; or cluster all images, then match the clusters to the seen classes through the labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from protofission.metrics import contingency
from protofission.models.starts import cluster, means
from protofission.records import NO_CLASS
from protofission.rng import step_rng

FITTED = 10_000
"""Labeled images, and other ones, by which centres are found."""


class Clustered(NamedTuple):
    """Images by their nearest centre."""

    heads: Tensor
    """(N,): the class; from S on, a novel one."""
    scores: Tensor
    """(N,): 1 - the cosine with the nearest centre of a seen class."""


def names_of(clusters: Tensor, labels: Tensor, num_seen: int, number: int) -> Tensor:
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


def clustered(
    labeled: Tensor,
    labels: Tensor,
    features: Tensor,
    num_seen: int,
    num_classes: int,
    seed: int,
    *,
    anchored: bool,
) -> Clustered:
    """Spherical k-means of labeled and other features, matched to the classes through the labels.

    Args:
        labeled: (L, D).
        labels: (L,), in [0, S).
        features: (N, D), of the images whose classes are wanted.
        anchored: whether labeled images keep to the clusters of their classes (semi-supervised
            k-means), or move as all others do.
    """
    generator = step_rng(seed, 0, "clusters")
    some = torch.randperm(len(labeled), generator=generator)[:FITTED]
    others = torch.randperm(len(features), generator=generator)[:FITTED]
    known, all_rows = _units(labeled), _units(features)
    rows = torch.cat([known[some], all_rows[others]])
    labels = labels.cpu()
    if anchored:
        owners = F.pad(labels[some], (0, len(others)), value=NO_CLASS)
        starts = means(known[some], labels[some], known.new_zeros(num_seen, known.shape[1]))
        found = cluster(rows, owners, starts, num_classes - num_seen, generator).centres
        names = torch.arange(num_classes)
    else:
        free = torch.full((len(rows),), NO_CLASS)
        found = cluster(rows, free, rows[:0], num_classes, generator).centres
        names = names_of((known @ found.T).argmax(1), labels, num_seen, max(len(found), num_seen))
    cosines = all_rows @ found.T  # (N, K)
    names = names[: len(found)]
    nearest_seen = cosines[:, names < num_seen].amax(1)
    return Clustered(names[cosines.argmax(1)], 1 - nearest_seen)


def _units(rows: Tensor) -> Tensor:
    return F.normalize(rows.detach().cpu().double(), dim=1)
