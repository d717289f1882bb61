"""Estimate the number of clusters of unit vectors, with a range: 1 if they are of one piece.

Rows are cut into halves, and each half is told by the centers of the other. This held-out loss, the
mean of 1 - cos to the nearest center, falls with the log of the number of centers: steeply while
they tell classes apart, slowly once they cut classes into pieces. The estimate is the number of the
least loss plus PRICE times its log. Up to FINE, a test follows: if so many centers gain little more
than they would on a Gaussian of the same covariance, there is one cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protofission.core.array_types import Floats, Ints
from protofission.core.errors import require
from protofission.core.rng import step_rng
from protofission.core.unit_clusters import cluster_units
from protofission.core.unit_maps import unit_rows

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
FEWEST = 4
"""Fewest rows a cluster in each half, on average."""
PRICE = 0.11
"""By how much the loss must fall for e times as many clusters."""
PRICES = (0.08, 0.14)
"""Prices of the upper and of the lower end of the range."""
GAP = 0.025
"""By how much more than on a Gaussian the loss must fall, or else there is one cluster."""


@dataclass(frozen=True)
class ClusterNumber:
    """An estimated number of clusters."""

    number: int
    low: int
    high: int
    """The range from `low` to `high` includes the number."""
    losses: tuple[tuple[int, float], ...]
    """Numbers that were tried, from 1 on, and their held-out losses."""


def count_clusters(
    rows: Floats, most: int = MOST, seed: int = 0, price: float = PRICE
) -> ClusterNumber:
    """Estimate the number of clusters of (N, d) unit vectors.

    Args:
        most: the largest answer.
        price: by how much the held-out loss must fall for e times as many clusters; the range's
            prices change with it.
    """
    require(most >= 1, f"most = {most} must be 1 or more.")
    require(price > 0, f"price = {price} must be above 0.")
    rows = rows[_rng(seed, 0).permutation(len(rows))[:ROWS]]
    tried = candidate_numbers(min(most, len(rows) // (2 * FEWEST)))
    if len(tried) < 2:
        return ClusterNumber(min(len(rows), 1), min(len(rows), 1), min(len(rows), most), ())
    losses = held_out_losses(rows, tried, seed)
    mean = losses.mean(0)
    number = cheapest_number(tried, mean, price)
    cheap, dear = (price / PRICE * end for end in PRICES)
    high = max(cheapest_number(tried, each, cheap) for each in (mean, *losses))
    low = min(cheapest_number(tried, each, dear) for each in (mean, *losses))
    high = int(min(tried[tried > high], default=high + 1)) - 1
    if 1 < number <= FINE:
        gap = gaussian_gap(rows, mean[0] - mean[tried == number][0], number, seed)
        low, number = (1 if gap < 1.5 * GAP else low), (1 if gap < GAP else number)
    pairs = zip(tried.tolist(), mean.tolist(), strict=True)
    return ClusterNumber(number, min(low, number), max(high, number), tuple(pairs))


def candidate_numbers(most: int) -> Ints:
    """Numbers from 1 to `most`: all up to FINE, then about a fifth larger each."""
    steps = np.round(FINE * 1.2 ** np.arange(1, 40)).astype(np.int64)
    numbers = np.concatenate([np.arange(1, FINE + 1), steps, [most]])
    return np.unique(numbers[(numbers <= most) & (numbers >= 1)])


def cheapest_number(tried: Ints, losses: Floats, price: float) -> int:
    """The number of the least loss plus `price` times its log."""
    return int(tried[(losses + price * np.log(tried)).argmin()])


def held_out_losses(rows: Floats, tried: Ints, seed: int) -> Floats:
    """(PAIRS_OF_HALVES, T): mean 1 - cos of rows to the nearest of so many centers of others."""
    losses = np.zeros((PAIRS_OF_HALVES, len(tried)))
    for turn in range(PAIRS_OF_HALVES):
        for half, held in _halves(rows, seed, turn):
            for place, number in enumerate(tried.tolist()):
                centers = cluster_units(half, number, seed, RUNS).centers
                best = (held @ centers.T).max(1, initial=-1.0)
                losses[turn, place] += (1 - best).sum() / len(rows)
    return losses


def _rng(seed: int, turn: int) -> np.random.Generator:
    return np.random.default_rng(step_rng(seed, turn, "number of clusters").initial_seed())


def _halves(rows: Floats, seed: int, turn: int) -> list[tuple[Floats, Floats]]:
    """Random halves, both ways round."""
    order = _rng(seed, 1 + turn).permutation(len(rows))
    first, second = rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]
    return [(first, second), (second, first)]


def gaussian_gap(rows: Floats, gain: float, number: int, seed: int) -> float:
    """By how much more the loss falls from 1 to so many clusters than it would for one Gaussian.

    The Gaussian has the mean and the covariance of the rows, and its points are made unit vectors:
    what is long and of one piece gains as much from being cut as it does.
    """
    spread, axes = np.linalg.eigh(np.cov(rows.T).reshape(rows.shape[1], -1))
    noise = _rng(seed, 1 + PAIRS_OF_HALVES).normal(size=rows.shape)
    noise -= noise.mean(0)
    points = unit_rows(rows.mean(0) + noise * np.sqrt(np.maximum(spread, 0)) @ axes.T)
    losses = held_out_losses(points, np.array([1, number]), seed).mean(0)
    return float(gain - (losses[0] - losses[1]))
