"""Known and free centers among unit vectors: a mixture that is fitted to labels and a pool.

Every known class has a center, and strangers have a number of free ones. With m_k the centers, all
of length 1, and p_k their priors, the density of a unit vector x is proportional to
sum_k p_k exp(T <x, m_k>): von Mises-Fisher distributions of one concentration T. The priors are
given, by the share of strangers; the centers are found by expectation maximization. This is
semi-supervised spherical k-means in which a row may belong to several centers in part.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from protofission.core.errors import require
from protofission.core.kmeans import SAME, far_rows

CONCENTRATION = 10.0
"""T: how sure one cosine makes of a center. From 7 to 15 all serve about as well."""
ROUNDS = 15
"""Rounds of expectation maximization."""
LEAST_SHARE = 0.05
"""No side, known or free, is given less of the pool than this."""


class CenterMixture(NamedTuple):
    """Centers of known classes, then free ones, with the logarithms of their priors."""

    centers: Tensor
    """(S + M, d), of length 1."""
    log_priors: Tensor
    """(S + M,)."""

    def logits(self, rows: Tensor) -> Tensor:
        """(N, S + M): log-probabilities of the centers of (N, d) unit vectors, but for a sum."""
        return CONCENTRATION * rows @ self.centers.T + self.log_priors

    def memberships(self, rows: Tensor) -> Tensor:
        """(N, S + M): how much of each row belongs to each center; the sum of a row is 1."""
        return self.logits(rows).softmax(-1)


def start_centers(
    labeled: Tensor, labels: Tensor, pool: Tensor, free: int, generator: torch.Generator
) -> Tensor:
    """(S + M, d): the mean directions of classes, and rows of the pool far from all others.

    Args:
        labeled: (L, d) unit vectors.
        labels: (L,): classes 0 to S - 1, each with a label.
        pool: (U, d) unit vectors.
        free: M. Where the pool has fewer rows that lie on no other center, the rest is 0: a center
            that is equally far from all rows.
    """
    means = F.normalize(_class_sums(labeled, labels), dim=1)
    far = far_rows(pool, means, free, generator)
    return torch.cat([means, F.pad(far, (0, 0, 0, free - len(far)))])


def fit_centers(
    centers: Tensor, labeled: Tensor, labels: Tensor, pool: Tensor, share: float
) -> CenterMixture:
    """Move (S + M, d) centers to where labels and pool are densest.

    Labels belong to their class in every round.

    Args:
        labeled: (L, d) unit vectors, with their `labels`.
        pool: (U, d) unit vectors.
        share: of strangers in the pool.
    """
    own = _class_sums(labeled, labels)
    free = len(centers) - len(own)
    sums, priors = F.pad(own, (0, 0, 0, free)), log_priors(len(own), free, share).to(centers)
    for _ in range(ROUNDS):
        members = CenterMixture(centers, priors).memberships(pool)
        centers = _directions(sums + members.T @ pool, centers)
    return CenterMixture(centers, priors)


def _class_sums(labeled: Tensor, labels: Tensor) -> Tensor:
    """(S, d): the sum of each class's rows."""
    require(len(labels) > 0, "Centers of known classes need labels, and there are none: add some.")
    return F.one_hot(labels, int(labels.max()) + 1).to(labeled).T @ labeled


def log_priors(known: int, free: int, share: float) -> Tensor:
    """(S + M,): known centers share what is known of the pool equally, free ones the strangers."""
    strange = min(max(share, LEAST_SHARE), 1 - LEAST_SHARE)
    own = torch.full((known,), math.log((1 - strange) / known), dtype=torch.float64)
    return F.pad(own, (0, free), value=math.log(strange / max(free, 1)))


def _directions(sums: Tensor, before: Tensor) -> Tensor:
    """(K, d): sums made unit length; a center whose sum cancels out stays."""
    lengths = sums.norm(dim=1, keepdim=True)
    return torch.where(lengths > SAME, sums / lengths.clamp_min(SAME), before)
