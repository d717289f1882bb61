"""Prototypes that start from the data: class means, and clusters of the pool for novel classes.

For heads that compare by cosine, rows and centres are unit vectors, and a row costs
1 - cos(row, centre); for the distance head a row costs its squared distance from the centre.
It is computed on the CPU in double precision, so that every machine finds the same start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.errors import InputError, require
from protofission.core.records import NO_CLASS
from protofission.core.rng import step_rng
from protofission.fission import (
    FissionHead,
    check_features,
    check_labels,
    mixing,
    random_directions,
)
from protofission.models.heads import (
    AveragedHead,
    CosineHead,
    DistanceHead,
    StudentHead,
    squared_distances,
)

RESTARTS = 5
"""How often k-means is run; the cheapest result counts."""
ROUNDS = 50
"""Of one run of k-means, at most."""
SAME = 1e-9
"""Below this cost a row lies on a centre."""
SPREAD = 0.1
"""How far prototypes for which there is no feature stand from the one they repeat."""
SHORTEST = 0.1
"""The length below which no combined prototype starts: cosines of a shorter one are rough."""


def means(rows: Tensor, members: Tensor, centres: Tensor) -> Tensor:
    """The mean direction of each cluster; an empty one, or one that cancels out, stays."""
    sums = torch.zeros_like(centres, dtype=rows.dtype).index_add_(0, members, rows)
    lengths = sums.norm(dim=-1, keepdim=True)
    return torch.where(lengths > SAME, sums / lengths.clamp_min(SAME), centres)


def plain_means(rows: Tensor, members: Tensor, centres: Tensor) -> Tensor:
    """The mean of each cluster; an empty one stays."""
    sums = torch.zeros_like(centres, dtype=rows.dtype).index_add_(0, members, rows)
    counts = members.bincount(minlength=len(centres))[:, None]
    return torch.where(counts > 0, sums / counts.clamp_min(1), centres)


class Space(NamedTuple):
    """Where k-means takes place."""

    costs: Callable[[Tensor, Tensor], Tensor]
    """(N, D) rows and (K, D) centres to (N, K): what each row costs at each centre."""
    means: Callable[[Tensor, Tensor, Tensor], Tensor]
    """Rows, their clusters and the centres so far to the new centres."""
    placed: Callable[[Tensor], Tensor]
    """(K, D): centres that were moved, back where centres can be."""
    farthest: float
    """No row costs more."""


SPHERE = Space(lambda rows, centres: 1 - rows @ centres.T, means, F.normalize, 2.0)
"""Rows and centres of length 1."""
BALL = Space(squared_distances, plain_means, Tensor.clone, 4.0)
"""Rows and centres at most of length 1."""


@torch.no_grad()
def start_from_data(
    head: nn.Module, labeled: Tensor, labels: Tensor, pool: Tensor, num_seen: int, seed: int
) -> None:
    """Set the prototypes of a head by features, in place.

    A seen class starts at the mean direction of its labeled features, a novel one at that of a
    cluster of the pool; fission's V prototypes start at the k-means centres of the same features,
    and delta stays. Those of a distance head start at k-means centres of the features as they are.
    A class without a feature keeps its random start. A student head starts at the k-means centres
    of all features along their principal axes, whatever the labels.

    Args:
        labeled: (L, D) features; where there are none, S is 0 and every class a cluster.
        labels: (L,), in [0, S).
        pool: (U, D) features.
        num_seen: S.
    """
    shared = _placed(head)
    classes, width = len(shared), shared.shape[-1]
    check_features(labeled, width)
    check_features(pool, width)
    require(num_seen <= classes, f"num_seen = {num_seen} is above the head's {classes} classes.")
    if len(labeled):
        check_labels(labels, len(labeled), num_seen)
    require(bool((labels >= 0).all()), "A labeled feature has no class (-1): leave it to the pool.")
    generator = step_rng(seed, 0, "start of prototypes")
    if isinstance(head, DistanceHead):
        _start_in_ball(head, labeled, labels, pool, num_seen, generator)
        return
    if isinstance(head, StudentHead):
        _start_on_axes(head, torch.cat([labeled, pool]).cpu().double(), generator)
        return
    seen, known = _directed(labeled)
    free, _ = _directed(pool)
    found = _classes(seen, labels.cpu()[known], free, num_seen, classes, generator, SPHERE)
    for c, rows in found.items():
        start = F.normalize(shared[c].double().cpu(), dim=-1)
        centre = means(rows, torch.zeros(len(rows), dtype=torch.long), start[None])[0]
        shared[c] = centre.to(shared)
        if isinstance(head, FissionHead):
            used = int(head._own[c].max()) + 1  # tied slots repeat the first ones
            share = mixing(head.delta[c, :used]).double().cpu()
            local = local_parts(centre, split(rows, used, generator), share)
            head.l[c, :used] = local.to(head.l)


def _placed(head: nn.Module) -> Tensor:
    """(C, ..., D): what places a head's classes among the features."""
    match head:
        case FissionHead() if head.similarity == "cosine":
            return head.g
        case CosineHead():
            return head.weight
        case AveragedHead():
            return head.means
        case DistanceHead():
            return head.prototypes
        case StudentHead():
            return head.centres @ head.axes
    raise InputError(
        "A start from the data is for cosine, averaged, distance and student heads, and fission "
        f"heads that compare by cosine, but this is {type(head).__name__}: let it start at random."
    )


def _start_in_ball(
    head: DistanceHead,
    labeled: Tensor,
    labels: Tensor,
    pool: Tensor,
    num_seen: int,
    generator: torch.Generator,
) -> None:
    """The same for a distance head, on features that are moved and scaled into the unit ball."""
    seen, free = (rows.detach().cpu().double() for rows in (labeled, pool))
    rows = torch.cat([seen, free])
    middle = rows.mean(0)
    radius = (rows - middle).norm(dim=-1).max()
    radius = radius if radius > 0 else torch.ones_like(radius)
    seen, free = (seen - middle) / radius, (free - middle) / radius
    classes, slots, _ = head.prototypes.shape
    found = _classes(seen, labels.cpu(), free, num_seen, classes, generator, BALL)
    for c, own in found.items():
        head.prototypes[c] = (middle + radius * split(own, slots, generator, BALL)).to(
            head.prototypes
        )


def _start_on_axes(head: StudentHead, features: Tensor, generator: torch.Generator) -> None:
    """Principal axes of (N, D) features, and k-means centres along them.

    The axes are as long as makes the mean squared distance of a row from its centre 1, the unit of
    Student's t: among distances far below it all centres are alike.
    """
    middle = features.mean(0)
    _, axes = torch.linalg.eigh((features - middle).T @ (features - middle))  # the least first
    axes = axes.flip(1)[:, : len(head.axes)].T
    rows = (features - middle) @ axes.T
    radius = rows.norm(dim=-1).max()
    rows = rows / radius if radius > 0 else rows
    centres = split(rows, len(head.centres), generator, BALL)
    spread = squared_distances(rows, centres).amin(1).mean().sqrt()
    scale = 1 / spread if spread > SAME else torch.ones_like(spread)
    head.axes.copy_(axes * scale / (radius if radius > 0 else 1))
    head.centres.copy_(head.axes.double().cpu() @ middle + scale * centres)


def _classes(
    seen: Tensor,
    labels: Tensor,
    free: Tensor,
    num_seen: int,
    num_classes: int,
    generator: torch.Generator,
    space: Space,
) -> dict[int, Tensor]:
    """The rows of each class that has any: labeled ones, or those of a cluster."""
    present = _in_use(labels)
    owners = torch.searchsorted(present, labels)
    classes = {c: seen[owners == place] for place, c in enumerate(present.tolist())}
    novel = num_classes - num_seen
    if novel and len(free):
        centres = space.means(seen, owners, seen.new_zeros(len(present), seen.shape[1]))
        rows, everyone = torch.cat([seen, free]), F.pad(owners, (0, len(free)), value=NO_CLASS)
        members = cluster(rows, everyone, centres, novel, generator, space).members - len(present)
        found = _in_use(members[members >= 0]).tolist()
        classes |= {num_seen + place: rows[members == place] for place in found}
    return classes


def _directed(features: Tensor) -> tuple[Tensor, Tensor]:
    """The features that have a direction, at unit length, and which ones they are."""
    rows = features.detach().cpu().double()
    known = rows.norm(dim=-1) > 0
    return F.normalize(rows[known], dim=-1, eps=0), known


def _in_use(numbers: Tensor) -> Tensor:
    """The numbers that occur, in order."""
    return numbers.bincount().nonzero()[:, 0]


def split(rows: Tensor, number: int, generator: torch.Generator, space: Space = SPHERE) -> Tensor:
    """(V, D): k-means centres of (N, D) rows; where rows are too few, centres near them."""
    free = torch.full((len(rows),), NO_CLASS)
    centres = cluster(rows, free, rows[:0], number, generator, space).centres
    repeated = centres[torch.arange(number) % len(centres)]
    # A hair for the others too: a centre opposite to its class's has then a side to turn to.
    spread = torch.full((number, 1), 1e-9, dtype=rows.dtype)
    spread[len(centres) :] = SPREAD
    aside = random_directions(number, rows.shape[1], generator=generator)
    return space.placed(repeated + spread * aside)


def local_parts(g: Tensor, wanted: Tensor, share: Tensor) -> Tensor:
    """The l of unit length for which Eq. 1's prototypes point along the wanted directions.

    Of p = t w, |l| = 1 leaves t = (1 - lambda) cos + sqrt(((1 - lambda) cos)^2 - (1 - lambda)^2 +
    lambda^2) with cos = g w; l = (t w - (1 - lambda) g) / lambda. With lambda = 1/2, l is g
    reflected at w. It is exact wherever p keeps a length of `SHORTEST`: in all directions where
    lambda is well above 1/2, for cos >= `SHORTEST` at 1/2, and below it in the cone about g whose
    sine is lambda / (1 - lambda). A direction beyond is turned towards g until it can be reached.

    Args:
        g: (D,), of length 1.
        wanted: (V, D), of length 1.
        share: (V,), lambda.
    """
    rest, excess = 1 - share, 1 - 2 * share  # excess = (1 - lambda)^2 - lambda^2
    shortest = excess.clamp_min(SHORTEST**2).sqrt()
    lowest = ((shortest.square() + excess) / (2 * rest * shortest)).clamp(-1, 1)
    cosine = wanted @ g
    aside = F.normalize(wanted - cosine[:, None] * g, dim=-1)
    turned = cosine.maximum(lowest).clamp_max(1)
    length = rest * turned + ((rest * turned).square() - excess).clamp_min(0).sqrt()
    along = length * turned - rest
    across = length * (1 - turned.square()).sqrt()
    return F.normalize(along[:, None] * g + across[:, None] * aside, dim=-1, eps=1e-30)


class Clusters(NamedTuple):
    """A result of k-means."""

    centres: Tensor
    """(K, D)."""
    members: Tensor
    """(N,): the cluster of each row."""
    costs: tuple[float, ...]
    """The sum of what rows cost at their centres in each round; it never rises."""


def cluster(
    rows: Tensor,
    owners: Tensor,
    centres: Tensor,
    number: int,
    generator: torch.Generator,
    space: Space = SPHERE,
) -> Clusters:
    """The best of several runs of k-means with `number` clusters beside those of `centres`.

    Args:
        rows: (N, D), on the sphere or in the ball.
        owners: (N,): the cluster that a row keeps to, NO_CLASS where it is free.
        centres: (K, D): where the clusters that have owners start.
    """
    free = rows[owners == NO_CLASS]
    starts = (far_rows(free, centres, number, generator, space) for _ in range(RESTARTS))
    runs = (k_means(rows, owners, torch.cat([centres, far]), space) for far in starts)
    return min(runs, key=lambda run: run.costs[-1])


def far_rows(
    rows: Tensor,
    centres: Tensor,
    number: int,
    generator: torch.Generator,
    space: Space = SPHERE,
) -> Tensor:
    """Greedy k-means++: rows far from the centres and each other, fewer where none is left.

    Each is the best of some rows drawn in proportion to their cost at the centres so far.
    """
    costs = rows.new_full((len(rows),), space.farthest)
    if len(centres):
        costs = space.costs(rows, centres).amin(1)
    tries, chosen = 2 + int(math.log(max(number, 1))), centres[:0]
    for _ in range(number):
        costs = costs.where(costs > SAME, 0)
        if not costs.any():
            break
        drawn = rows[costs.multinomial(tries, replacement=True, generator=generator)]
        left = torch.minimum(costs[:, None], space.costs(rows, drawn))  # (N, tries)
        best = left.sum(0).argmin()
        costs, chosen = left[:, best], torch.cat([chosen, drawn[best, None]])
    return chosen


def k_means(rows: Tensor, owners: Tensor, centres: Tensor, space: Space = SPHERE) -> Clusters:
    """K-means from these centres, in which rows with an owner keep to it."""
    free, members, costs = owners == NO_CLASS, owners, []
    for _ in range(ROUNDS):
        each, before = space.costs(rows, centres), members  # (N, K)
        members = torch.where(free, each.argmin(1), owners)
        own = each.gather(1, members[:, None])[:, 0]
        costs.append(float(own.sum()))
        members = refill(members, own * free, len(centres))
        if torch.equal(members, before):
            break
        centres = space.means(rows, members, centres)
    return Clusters(centres, members, tuple(costs))


def refill(members: Tensor, costs: Tensor, number: int) -> Tensor:
    """Give the first empty cluster the costliest row, if it costs anything; others wait."""
    empty = (members.bincount(minlength=number) == 0).nonzero()[:1, 0]
    worst = costs.argmax()
    if len(empty) == 0 or costs[worst] <= SAME:
        return members
    return members.index_copy(0, worst[None], empty)
