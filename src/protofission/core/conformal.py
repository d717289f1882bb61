"""The conformal threshold on ID scores, and its guarantee.

ID scores are higher for images more like a known class, and an image is accepted from the threshold
on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from protofission.core.number_words import images, percent
from protofission.core.score_checks import check_scores, check_shares

EXACTNESS = 1e-9
"""(n + 1)(1 - keep) is whole if it is so up to this: 10 (1 - 0.9) is 0.9999999999999998."""


def fewest_images(keep: float) -> int:
    """The fewest held-out images that can set a threshold: (n + 1)(1 - keep) is at least 1."""
    return math.ceil((1 - EXACTNESS) / (1 - keep)) - 1


@dataclass(frozen=True)
class Guarantee:
    """A threshold and its guarantee for new known images that are drawn like those it is set by.

    It is set by images that no model learned from (`guarantee`), or by all labels, each scored by
    the model of a fold that did not learn from it (`cross_conformal.cross_guarantee`).
    """

    keep: float
    """The share of known images to accept."""
    images: int
    """n, the number of known images that set the threshold."""
    threshold: float
    rank: int
    """k: the threshold is the k-th lowest of their scores; 0 where it is -inf."""
    expected: float
    """The share accepted on average over such sets: by one model (n + 1 - k) / (n + 1), more with
    ties; by those of several folds, an estimate."""
    at_least: float
    """The lower end of the range of the share accepted, for this number of images."""
    confidence: float = 0.95
    """The probability, over sets of n images, that the share accepted is within the range."""
    at_most: float = 1.0
    """The upper end of the range."""
    folds: int = 0
    """The number of folds, if all labels set the threshold; 0 if held-out images did."""
    proved: float = 0.0
    """The probability that a new known image is accepted is at least this, for any model."""

    @property
    def fewest_images(self) -> int:
        """The fewest images with which a threshold can guarantee `keep`."""
        return fewest_images(self.keep)

    @property
    def remedy(self) -> str:
        """Advice where there is no guarantee: n images can guarantee n / (n + 1) at most."""
        most = math.floor(1000 * self.images / (self.images + 1)) / 1000
        lower = f", or lower keep to {most:g}" if self.images else ""
        if self.folds:
            return f"label {self.fewest_images:,} at least{lower}"
        return f"label more, so that {self.fewest_images:,} can be held out{lower}"

    def sentence(self) -> str:
        """The guarantee as a sentence."""
        keep, kind = percent(self.keep, 6), "labels" if self.folds else "held out"
        if not self.rank:
            number = f"{self.images:,} label{'s' * (self.images != 1)}"
            given = number if self.folds else f"{images(self.images)} held out"
            return (
                f"{given} cannot set a threshold that keeps {keep} of known images, so every "
                f"image is accepted: {self.remedy}."
            )
        low = percent(math.floor(1000 * self.at_least) / 1000)
        high = percent(math.ceil(1000 * self.at_most) / 1000)
        proved = percent(math.floor(1000 * self.proved + EXACTNESS) / 1000)
        return (
            f"Of new images of a known class, if drawn like the {self.images:,} {kind}, about "
            f"{percent(self.expected)} are accepted: between {low} and {high} with "
            f"{percent(self.confidence, 6)} confidence for so many "
            f"(proved: at least {proved} on average)."
        )


def conformal_rank(images: int, keep: float) -> int:
    """k = floor((n + 1)(1 - keep)): a new image is accepted if k of n images score no higher."""
    return min(math.floor((images + 1) * (1 - keep) + EXACTNESS), images)


def accepted_range(images: int, rank: float, confidence: float) -> tuple[float, float]:
    """The range of the share of known images that score at least the k-th lowest of n others.

    The share is Beta(n + 1 - k, k) over draws of the n, less only with ties; both tails are equal.
    """
    if not rank:
        return 1.0, 1.0
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = betaincinv(images + 1 - rank, rank, tails)
    return float(low), float(high)


def guarantee(scores: ArrayLike, keep: float, confidence: float = 0.95) -> Guarantee:
    """The threshold that accepts a new known image with a probability of at least `keep`.

    Split conformal prediction: the floor((n + 1)(1 - keep))-th lowest score; -inf, which accepts
    everything, where that is 0 because n images are too few. It holds for any model and any scores
    if the new image is drawn like the held-out ones.

    Args:
        scores: (n,), the ID scores of known images that nothing was fitted to.
        confidence: of the range of the share accepted, `at_least` to `at_most`.
    """
    found = np.sort(check_scores(scores, "held-out"))
    check_shares(keep=keep, confidence=confidence)
    n = len(found)
    rank = conformal_rank(n, keep)
    low, high = accepted_range(n, rank, confidence)
    return Guarantee(
        keep=keep,
        images=n,
        threshold=float(found[rank - 1]) if rank else -math.inf,
        rank=rank,
        expected=(n + 1 - rank) / (n + 1),
        at_least=low,
        confidence=confidence,
        at_most=high,
        proved=(n + 1 - rank) / (n + 1),
    )
