"""Estimate the share of a pool that is of no known class, from ID scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from protofission.core.array_types import Floats, Ints
from protofission.core.errors import require
from protofission.core.number_words import percent
from protofission.core.rng import step_rng
from protofission.core.score_checks import check_scores, check_shares

UPPER_SHARES = (0.5, 0.25)
"""Shares of known scores above the two levels: their median, and their upper quartile."""
FEWEST_KNOWN = 5
"""Fewest held-out images for an estimate."""


@dataclass(frozen=True)
class ShareEstimate:
    """The OOD share of a pool and its interval; if unknown, NaN in the interval 0 to 1."""

    share: float
    low: float
    high: float
    confidence: float = 0.95

    def sentence(self) -> str:
        """The estimate as a sentence."""
        if math.isnan(self.share):
            return (
                "How much of the pool is of no known class cannot be told without a pool and "
                f"{FEWEST_KNOWN} held-out known images."
            )
        return (
            f"About {percent(self.share)} of the pool is of no known class "
            f"({percent(self.low)} to {percent(self.high)} with {percent(self.confidence, 6)} "
            "confidence), more if such images look like known ones."
        )


def ood_share(
    known_scores: ArrayLike,
    pool_scores: ArrayLike,
    confidence: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
) -> ShareEstimate:
    """Estimate the share of a pool that is OOD; its known images are drawn like the held-out ones.

    With F(t) and G(t) the shares of known and of pool images that score t or more, the known part
    of the pool is at most G(t) / F(t) for every t, and just that where no OOD image reaches t. The
    share is read at the median of known scores. So is the lower end of the interval; the upper end
    is the higher of those read there and at the upper quartile, as some OOD images may lie above
    the median. Resamples are Bayesian bootstraps (Rubin 1981) of both samples.

    Where a model learned from the pool and not from the held-out images, known images of the pool
    tend to score higher than held-out ones, and the estimate is then too low.

    In simulations with normal scores (n = 50 ... 2000, m = 200 ... 5000, shares of 0 ... 0.99, 100
    draws each) the interval held the pool's share in 97 % of all draws where OOD scores lie 3
    deviations below (AUC 0.98), in 95 % at 2.5 and in 86 % at 2 (AUC 0.92), most misses there
    at a share of 0.99; n = 5 and 20 gave 95, 92 and 87 %. Where scores overlap more it is an
    under-estimate: at 1 deviation (AUC 0.76) by up to a third. The interval's lower end held in
    94 ... 99 % at each distance. The least of G(t) / F(t) over all t is no remedy: with its
    bootstrap it held in 28 ... 59 %, as it finds the lowest point of the noise.
    """
    known, pool = check_scores(known_scores, "held-out"), check_scores(pool_scores, "pool")
    check_shares(confidence=confidence)
    require(resamples >= 1, f"resamples = {resamples} must be at least 1.")
    n, m = len(known), len(pool)
    if n < FEWEST_KNOWN or not m:
        return ShareEstimate(math.nan, 0.0, 1.0, confidence)
    levels = np.sort(known)[[n - math.ceil(share * n) for share in UPPER_SHARES]]
    reach_known, reach_pool = _count_reaching(known, levels), _count_reaching(pool, levels)
    # The chance of a new known image to reach the j-th highest of n scores is j / (n + 1).
    share = 1 - float(reach_pool[0] / m / (reach_known[0] / (n + 1)))
    rng = np.random.default_rng(step_rng(seed, 0, "share of strangers").initial_seed())
    parts = 1 - _bootstrap_shares(reach_pool, m, resamples, rng) / _bootstrap_shares(
        reach_known, n, resamples, rng
    )
    ends = np.quantile(parts, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    low, high = min(float(ends[0, 0]), share), max(float(ends[1].max()), share)
    share, low, high = (min(max(value, 0.0), 1.0) for value in (share, low, high))
    return ShareEstimate(share, low, high, confidence)


def _count_reaching(scores: Floats, levels: Floats) -> Ints:
    """(levels,): the number of scores that reach each level."""
    return len(scores) - np.searchsorted(np.sort(scores), levels)


def _bootstrap_shares(
    reaching: Ints, total: int, resamples: int, rng: np.random.Generator
) -> Floats:
    """(resamples, levels): shares that reach rising levels in Bayesian bootstraps.

    One pseudo-image in all keeps an empty part from being empty in every resample.
    """
    parts = -np.diff(reaching, prepend=total, append=0)
    drawn = rng.dirichlet(parts + 1 / len(parts), size=resamples)
    above = np.cumsum(drawn[:, ::-1], axis=1)[:, ::-1]
    return np.maximum(above[:, 1:], np.finfo(float).tiny)
