"""Estimate the number of clusters of unit vectors, with a range: 1 if they are of one piece.

A number is good if its clusters are apart (mean silhouette, Rousseeuw 1987) and recur, so that rows
which one half of the data puts together are also put together by the other (prediction strength,
Tibshirani and Walther 2005). The first times the root of the second is largest at the estimate, and
the range has all numbers at which it is nearly as large; above FINE the estimate is the range's
middle. One cluster has no silhouette: two or three must pass a test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protofission.core.array_types import Floats, Ints
from protofission.core.errors import require
from protofission.core.rng import step_rng
from protofission.core.unit_clusters import cluster_units, nearest_units

ROWS = 1500
"""Most rows that are clustered; of more, a sample is taken."""
MOST = 60
"""The largest answer, if none is given."""
PAIRS_OF_HALVES = 3
"""Number of random pairs of halves."""
RUNS = 2
"""Runs of k-means for each number."""
FINE = 8
"""Up to here every number is tried."""
FEWEST = 5
"""Fewest rows a cluster, on average."""
NEAR = 0.85
"""The share of the largest quality from which on a number is in the range."""
ONE_PIECE = {2: 0.2, 3: 0.25}
"""Shares of variance left by a cut in two, from which on two or three clusters are one piece."""
LEAST = 0.12
"""The least quality of two or more clusters."""


@dataclass(frozen=True)
class ClusterNumber:
    """An estimated number of clusters."""

    number: int
    low: int
    high: int
    """The range from `low` to `high` includes the number."""
    qualities: tuple[tuple[int, float], ...]
    """Numbers that were tried, from 2 on, and their qualities."""


def count_clusters(
    rows: Floats, most: int = MOST, seed: int = 0, least: float = LEAST
) -> ClusterNumber:
    """Estimate the number of clusters of (N, d) unit vectors.

    Args:
        most: the largest answer.
        least: the quality below which all rows are one cluster.
    """
    require(most >= 1, f"most = {most} must be 1 or more.")
    random = _rng(seed, 0)
    rows = rows[random.permutation(len(rows))[:ROWS]]
    tried = candidate_numbers(min(most, len(rows) // (2 * FEWEST)))
    if len(tried) == 0:
        return ClusterNumber(min(len(rows), 1), min(len(rows), 1), min(len(rows), most), ())
    quality = np.array([_quality(rows, number, seed) for number in tried])
    quality = smooth(tried, quality)
    best = int(quality.argmax())
    number, (low, high) = int(tried[best]), near_numbers(tried, quality)
    if number > FINE:
        number = round(float(np.sqrt(low * high)))
    ratio, limit = cut_ratio(rows, seed), ONE_PIECE.get(number, np.inf)
    if quality[best] < least or ratio >= limit:
        number = 1
    if number == 1 or ratio >= 0.75 * limit:
        low = 1
    pairs = zip(tried.tolist(), quality.tolist(), strict=True)
    return ClusterNumber(number, min(low, number), max(high, number), tuple(pairs))


def candidate_numbers(most: int) -> Ints:
    """Numbers from 2 to `most`: all up to FINE, then about a fifth larger each."""
    steps = np.round(FINE * 1.2 ** np.arange(1, 40)).astype(np.int64)
    numbers = np.concatenate([np.arange(2, FINE + 1), steps, [most]])
    return np.unique(numbers[(numbers <= most) & (numbers >= 2)])


def near_numbers(tried: Ints, quality: Floats) -> tuple[int, int]:
    """First and last number that is nearly as good as the best, and those next to it not tried."""
    near = np.flatnonzero(quality >= NEAR * quality.max())
    low = tried[near[0] - 1] + 1 if near[0] else tried[0]
    high = tried[near[-1] + 1] - 1 if near[-1] + 1 < len(tried) else tried[-1]
    return int(low), int(high)


def smooth(tried: Ints, quality: Floats) -> Floats:
    """Average the quality of numbers above FINE with those of their neighbors: steps are small."""
    padded = np.pad(quality, 1, mode="edge")
    mean = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
    return np.where(tried > FINE, mean, quality)


def _rng(seed: int, turn: int) -> np.random.Generator:
    return np.random.default_rng(step_rng(seed, turn, "number of clusters").initial_seed())


def _quality(rows: Floats, number: int, seed: int) -> float:
    """The mean silhouette of so many clusters, times the root of their prediction strength."""
    members = cluster_units(rows, number, seed, RUNS).members
    apart = silhouette(rows, members)
    strengths = []
    for turn in range(PAIRS_OF_HALVES):
        order = _rng(seed, 1 + turn).permutation(len(rows))
        halves = rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]
        found = [cluster_units(half, number, seed, RUNS) for half in halves]
        for own, other, half in zip(found, found[::-1], halves, strict=True):
            there = nearest_units(half, other.centers)
            strengths.append(prediction_strengths(own.members, there).mean())
    return max(apart, 0.0) * float(np.sqrt(np.mean(strengths)))


def silhouette(rows: Floats, members: Ints) -> float:
    """Mean silhouette of (N, d) unit vectors by 1 - cosine; 0 for rows alone in their cluster."""
    number = int(members.max(initial=-1)) + 1
    if number < 2:
        return 0.0
    sizes, sums = np.bincount(members, minlength=number), np.zeros((number, rows.shape[1]))
    np.add.at(sums, members, rows)
    totals = sizes - rows @ sums.T  # (N, K): summed distances of a row from those of a cluster
    each = np.arange(len(rows))
    own = totals[each, members] / np.maximum(sizes[members] - 1, 1)
    others = np.where(sizes > 0, totals / np.maximum(sizes, 1), np.inf)
    others[each, members] = np.inf
    nearest = others.min(1)
    scores = (nearest - own) / np.maximum(np.maximum(nearest, own), 1e-12)
    return float(np.where(sizes[members] > 1, scores, 0.0).mean())


def prediction_strengths(members: Ints, others: Ints) -> Floats:
    """(K,): the share of each cluster's pairs of rows that the other clustering puts together too.

    A cluster of one row has none, and strength 0.
    """
    sizes = np.bincount(members)
    both = np.zeros((len(sizes), int(others.max(initial=0)) + 1))
    np.add.at(both, (members, others), 1)
    pairs = sizes * (sizes - 1)
    return np.asarray((both * (both - 1)).sum(1) / np.maximum(pairs, 1))


def cut_ratio(rows: Floats, seed: int) -> float:
    """The share of variance that is left within two halves of held-out rows, cut by other rows.

    Two clusters are found in some rows; the others are projected onto the line between the two
    centers and cut in the middle. For a Gaussian, 1 - 2 / pi = 0.36 is left; for two clusters that
    are apart, less.
    """
    ratios = []
    for turn in range(PAIRS_OF_HALVES):
        order = _rng(seed, 1 + turn).permutation(len(rows))
        halves = rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]
        for half, held in (halves, halves[::-1]):
            centers = cluster_units(half, 2, seed, RUNS).centers
            ratios.append(_left_by_cut(held, centers) if len(centers) == 2 else 1.0)
    return float(np.mean(ratios))


def _left_by_cut(rows: Floats, centers: Floats) -> float:
    line = centers[0] - centers[1]
    places = rows @ line
    first = places > centers.mean(0) @ line
    variance = places.var()
    if not first.any() or first.all() or not variance > 0:
        return 1.0
    within = first.mean() * places[first].var() + (~first).mean() * places[~first].var()
    return float(within / variance)
