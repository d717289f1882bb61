"""Estimate the share of a pool that is of no known class, from ID scores of labels and pool.

Every label has a place in the pool: the share r of the pool that scores higher, by a model that did
not learn from its label. If the pool's known images are drawn like the labels, and a share F of
known images and H(F) of strangers score above a level, then r = (1 - s) F + s H(F) there, with s
the share of strangers. Whatever H is, 1 - s <= r / F. The share itself can be told only with an
assumption about H. Ours is that of the binormal ROC curve: on some scale, known scores are
N(0, 1) and strangers' N(-d, w^2), so H(F) = Phi((Phi^-1(F) - d) / w), with all d and w of a grid
equally probable beforehand, as are all s. So where scores overlap, the interval is wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr
from scipy.stats import beta

from protofission.core.array_types import Floats, Ints
from protofission.core.cross_conformal import check_folds, check_model_scores
from protofission.core.number_words import percent
from protofission.core.score_checks import check_scores, check_shares

DISTANCES = (0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 5.0)
"""d: how far strangers' scores lie below known ones, in deviations of known ones."""
WIDTHS = (0.75, 0.9, 1.1, 1.3, 1.6, 2.0)
"""w: the deviation of strangers' scores in that of known ones."""
# fmt: off
LEVELS = np.array([
    0.001, 0.002, 0.004, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04, 0.055, 0.07, 0.09, 0.11, 0.14, 0.17,
    0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95,
])
# fmt: on
"""Shares of the pool that score above each of the levels between which labels are counted."""
BOUND_LEVELS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7])
"""Shares of the pool above the levels of which the best bound is taken."""
SHARES = np.linspace(0, 1, 201)
"""s: the shares of strangers that are compared."""
TAIL = 0.25
"""The part of 1 - confidence that the posterior has beyond each end of the interval: half of what
it would need if the assumption held, since it does not quite."""
MOST_LABELS = 500
"""More labels than this weigh as much as these: they are more exact than the assumption is."""
FEWEST_KNOWN = 5
"""Fewest labels for an estimate."""


@dataclass(frozen=True)
class ShareEstimate:
    """The OOD share of a pool and its interval; if unknown, NaN in the interval 0 to 1."""

    share: float
    low: float
    high: float
    confidence: float = 0.95
    at_least: float = 0.0
    """A lower bound of the share, with this confidence, whatever the strangers look like."""

    def sentence(self) -> str:
        """The estimate as a sentence."""
        if math.isnan(self.share):
            return (
                "How much of the pool is of no known class cannot be told without a pool and "
                f"{FEWEST_KNOWN} held-out known images."
            )
        floor = math.floor(100 * self.at_least) / 100
        proved = f"; at least {percent(floor)} whatever these look like" if floor > 0 else ""
        return (
            f"About {percent(self.share, 0)} of the pool is of no known class "
            f"({percent(self.low, 0)} to {percent(self.high, 0)} with "
            f"{percent(self.confidence, 6)} confidence{proved})."
        )


def ood_share(
    known_scores: ArrayLike,
    pool_scores: ArrayLike,
    folds: ArrayLike | None = None,
    confidence: float = 0.95,
    pool_folds: ArrayLike | None = None,
) -> ShareEstimate:
    """Estimate the share of a pool that is OOD; its known images are drawn like the labels.

    The share is the median of its posterior distribution under the assumption above, the interval
    the middle of it. The number of labels between two levels of the pool is negative
    binomial, as places of one sample in another are. How often the interval holds the truth, in
    simulations and on real images: docs/guide.md, by benchmarks/shares.py.

    Where a model learned from the pool, it must have learned from the images of its held-out
    labels in the same way (as images of the pool, without their labels); otherwise known images of
    the pool score otherwise than labels do, and the estimate is off by that.

    Args:
        known_scores: (n,), the score of each label by a model that did not learn from it.
        pool_scores: (U, K), the pool's scores by each model; or (U,) of the only model.
        folds: (n,), the model of each label's score, 0 to K - 1; not needed for one model.
        confidence: of the interval, and of the bound.
        pool_folds: (U,): if given, the only model by which an image of the pool is compared with
            labels, as it is the one that did not learn from the image.
    """
    known = check_scores(known_scores, "held-out")
    pool = np.asarray(pool_scores, float)
    if pool.ndim == 1:
        pool = check_scores(pool, "pool")[:, None]
    models = pool.shape[1] if pool.ndim == 2 else 1
    pool = check_model_scores(pool, models, "pool")
    check_shares(confidence=confidence)
    n, m = len(known), len(pool)
    own = np.zeros(n, np.int64) if folds is None else folds
    if n < FEWEST_KNOWN or not m:
        return ShareEstimate(math.nan, 0.0, 1.0, confidence)
    parts = None if pool_folds is None else np.asarray(pool_folds)
    places = pool_places(known, check_folds(own, n, models), pool, parts)
    chances = share_posterior(places, m)
    below, tail = np.cumsum(chances) - chances / 2, TAIL * (1 - confidence)
    low, share, high = np.interp([tail, 0.5, 1 - tail], below, SHARES)
    bound = least_share(places, m, confidence)
    return ShareEstimate(float(share), float(low), float(high), confidence, bound)


def pool_places(known: Floats, folds: Ints, pool: Floats, pool_folds: Ints | None = None) -> Floats:
    """(n,): the share of the pool that scores above each label, by the model of its fold.

    With ties in the middle, and half an image added, so that it lies between 0 and 1.

    Args:
        pool_folds: (U,): labels of a fold are compared with these images of the pool alone.
    """
    places = np.empty(len(known))
    for fold in range(pool.shape[1]):
        own = pool[:, fold] if pool_folds is None else pool[pool_folds == fold, fold]
        scores, rows = np.sort(own), folds == fold
        below = np.searchsorted(scores, known[rows], side="left")
        reached = np.searchsorted(scores, known[rows], side="right")
        places[rows] = (len(own) - (below + reached) / 2 + 0.5) / (len(own) + 1)
    return places


def share_posterior(places: Floats, images: int) -> Floats:
    """(shares,): the probability of each of SHARES, given the labels' places in so many images."""
    log_likelihoods = share_log_likelihoods(places, images) * min(1, MOST_LABELS / len(places))
    chances: Floats = np.exp(log_likelihoods - log_likelihoods.max()).sum(1)
    chances[[0, -1]] /= 2
    chances /= chances.sum()
    return chances


def share_log_likelihoods(places: Floats, images: int) -> Floats:
    """(shares, shapes): log likelihood of each share and shape (d, w), up to a constant.

    Levels with fewer than two images of the pool above them are left out. Of the labels between
    two levels with m images of the pool between them, n p are expected, and their number is
    negative binomial with the variance n p + (n p)^2 / m.
    """
    first = int(np.searchsorted(LEVELS, 2 / images))
    levels = LEVELS[first:]
    counts = np.bincount(np.searchsorted(levels, places, side="right"), minlength=len(levels) + 1)
    sizes = images * np.diff(levels, prepend=0, append=1)
    chances, logarithms = _known_between(first)
    result: Floats = logarithms @ counts
    result -= np.log(sizes + len(places) * chances) @ (counts + sizes)
    return result


def least_share(places: Floats, images: int, confidence: float) -> float:
    """A lower bound of the share of strangers that assumes nothing about their scores.

    1 - r / F at the best of a few levels r, with F at its lower and r at its upper end of
    Clopper-Pearson intervals, each at such a confidence that all hold together.
    """
    error = (1 - confidence) / (2 * len(BOUND_LEVELS))
    n, reached = len(places), (places[:, None] <= BOUND_LEVELS).sum(0)
    above = np.floor(BOUND_LEVELS * images)
    least_known = np.where(reached > 0, beta.ppf(error, reached, n + 1 - reached), 0.0)
    most_pool = beta.ppf(1 - error, above + 1, np.maximum(images - above, 1e-9))
    parts = most_pool / np.maximum(least_known, 1e-9)
    return float(np.clip(1 - parts.min(), 0, 1))


@lru_cache(maxsize=4)
def _known_between(first: int) -> tuple[Floats, Floats]:
    """(shares, shapes, levels + 1): p, the known images between levels from `first` on; log p."""
    reached = np.delete(_known_reaching(), np.arange(1, first + 1), axis=2)
    chances = np.maximum(np.diff(reached, axis=2), 1e-12)
    return chances, np.log(chances)


@lru_cache(maxsize=1)
def _known_reaching() -> Floats:
    """(shares, shapes, levels + 2): F, the share of known images above each level, from 0 to 1.

    It solves r = (1 - s) F + s H(F) for each level r by halving intervals of Phi^-1(F).
    """
    grid = np.meshgrid(np.minimum(SHARES, 0.9995), DISTANCES, WIDTHS, indexing="ij")
    share, distance, width = (values.reshape(len(SHARES), -1, 1) for values in grid)
    low = np.full((*share.shape[:2], len(LEVELS)), -8.0)
    high = -low
    for _ in range(30):
        middle = (low + high) / 2
        pool = (1 - share) * ndtr(middle) + share * ndtr((middle - distance) / width)
        low, high = np.where(pool < LEVELS, middle, low), np.where(pool < LEVELS, high, middle)
    ends = np.zeros((*share.shape[:2], 1))
    result: Floats = np.concatenate([ends, ndtr(high), ends + 1], axis=2)
    return result
