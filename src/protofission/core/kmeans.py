"""K-means in which labeled rows keep to their cluster; by cosine or by distance.

`k_means` is the only Lloyd iteration of the package. Its callers differ in the `Space`, of cosines
or of distances. scikit-learn's k-means stays where evaluation reports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from protofission.core.distances import squared_distances
from protofission.core.records import NO_CLASS

RESTARTS = 5
"""Runs of k-means, of which the cheapest is kept."""
ROUNDS = 50
"""Most rounds of one run."""
SAME = 1e-9
"""The cost up to which a row lies on a center."""


def mean_directions(rows: Tensor, members: Tensor, centers: Tensor) -> Tensor:
    """(K, D): the mean direction of each cluster; an empty one, or one that cancels out, stays."""
    sums = torch.zeros_like(centers, dtype=rows.dtype).index_add_(0, members, rows)
    lengths = sums.norm(dim=-1, keepdim=True)
    return torch.where(lengths > SAME, sums / lengths.clamp_min(SAME), centers)


def means(rows: Tensor, members: Tensor, centers: Tensor) -> Tensor:
    """(K, D): the mean of each cluster; an empty one stays."""
    sums = torch.zeros_like(centers, dtype=rows.dtype).index_add_(0, members, rows)
    counts = members.bincount(minlength=len(centers))[:, None]
    return torch.where(counts > 0, sums / counts.clamp_min(1), centers)


class Space(NamedTuple):
    """Costs and means of k-means, in which its uses differ."""

    costs: Callable[[Tensor, Tensor], Tensor]
    """(N, D) rows and (K, D) centers to (N, K), the cost of each row at each center."""
    means: Callable[[Tensor, Tensor, Tensor], Tensor]
    """(N, D) rows, (N,) their clusters and (K, D) old centers to (K, D) new ones."""
    project: Callable[[Tensor], Tensor] = Tensor.clone
    """(K, D) centers that were moved, back into the space."""
    largest_cost: float = math.inf
    """An upper bound on the cost of a row."""


SPHERE = Space(lambda rows, centers: 1 - rows @ centers.T, mean_directions, F.normalize, 2.0)
"""Rows and centers of length 1, cost 1 - cos: spherical k-means."""
BALL = Space(squared_distances, means, Tensor.clone, 4.0)
"""Rows and centers at most of length 1, cost |row - center|^2: plain k-means."""


class Clusters(NamedTuple):
    """Result of k-means."""

    centers: Tensor
    """(K, D)."""
    members: Tensor
    """(N,): the cluster of each row."""
    costs: tuple[float, ...]
    """The total cost of all rows in each round; it never rises."""


def cluster_rows(
    rows: Tensor,
    owners: Tensor,
    centers: Tensor,
    number: int,
    generator: torch.Generator,
    space: Space = SPHERE,
    *,
    restarts: int = RESTARTS,
) -> Clusters:
    """The cheapest of several runs of k-means, with `number` clusters beside given ones.

    Args:
        rows: (N, D), in the space.
        owners: (N,): the cluster that a labeled row keeps to, NO_CLASS where a row is free.
        centers: (K, D): where the clusters that have owners start.
        number: clusters of free rows; there are fewer where rows are.
        restarts: runs.
    """
    free = rows[owners == NO_CLASS]
    starts = (far_rows(free, centers, number, generator, space) for _ in range(restarts))
    runs = (k_means(rows, owners, torch.cat([centers, far]), space) for far in starts)
    return min(runs, key=lambda run: run.costs[-1])


def far_rows(
    rows: Tensor,
    centers: Tensor,
    number: int,
    generator: torch.Generator,
    space: Space = SPHERE,
) -> Tensor:
    """(number, D): rows far from the centers and each other, by greedy k-means++.

    Each is the best of some rows drawn in proportion to their cost at the centers so far; there are
    fewer where all rows lie on centers.
    """
    costs = rows.new_full((len(rows),), space.largest_cost)
    if len(centers):
        costs = space.costs(rows, centers).amin(1)
    tries, chosen = 2 + int(math.log(max(number, 1))), centers[:0]
    for _ in range(number):
        costs = costs.where(costs > SAME, 0)
        if not costs.any():
            break
        drawn = rows[costs.multinomial(tries, replacement=True, generator=generator)]
        left = torch.minimum(costs[:, None], space.costs(rows, drawn))  # (N, tries)
        best = left.sum(0).argmin()
        costs, chosen = left[:, best], torch.cat([chosen, drawn[best, None]])
    return chosen


def k_means(
    rows: Tensor,
    owners: Tensor,
    centers: Tensor,
    space: Space = SPHERE,
    *,
    rounds: int = ROUNDS,
    refills: bool = True,
) -> Clusters:
    """Lloyd's iteration from these centers, in which rows with an owner keep to it.

    Args:
        rows: (N, D).
        owners: (N,): the cluster that a row keeps to, NO_CLASS where it is free.
        centers: (K, D).
        rounds: at most; it ends earlier once no row moves.
        refills: whether empty clusters take the costliest rows, one a round, or stay empty.
    """
    free, members, costs = owners == NO_CLASS, owners, []
    for _ in range(rounds):
        before = members
        members, each = assign(rows, owners, centers, space)
        costs.append(float(each.sum()))
        if refills:
            members = refill(members, each * free, len(centers))
        if torch.equal(members, before):
            break
        centers = space.means(rows, members, centers)
    return Clusters(centers, members, tuple(costs))


def assign(rows: Tensor, owners: Tensor, centers: Tensor, space: Space) -> tuple[Tensor, Tensor]:
    """(N,) twice: the owner or else the cheapest cluster of each row, and the row's cost there."""
    costs = space.costs(rows, centers)  # (N, K)
    members = torch.where(owners == NO_CLASS, costs.argmin(1), owners)
    return members, costs.gather(1, members[:, None])[:, 0]


def refill(members: Tensor, costs: Tensor, number: int) -> Tensor:
    """Give the first empty of `number` clusters the costliest row, if it costs anything."""
    empty = (members.bincount(minlength=number) == 0).nonzero()[:1, 0]
    worst = costs.argmax()
    if len(empty) == 0 or costs[worst] <= SAME:
        return members
    return members.index_copy(0, worst[None], empty)
