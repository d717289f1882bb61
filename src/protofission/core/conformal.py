"""The conformal threshold on ID scores, and its guarantee.

ID scores are higher for images more like a known class, and an image is accepted from the threshold
on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta

from protofission.core.number_words import images, percent
from protofission.core.score_checks import check_scores, check_shares

EXACTNESS = 1e-9
"""(n + 1)(1 - keep) is whole if it is so up to this: 10 (1 - 0.9) is 0.9999999999999998."""


def fewest_images(keep: float) -> int:
    """The fewest held-out images that can set a threshold: (n + 1)(1 - keep) is at least 1."""
    return math.ceil((1 - EXACTNESS) / (1 - keep)) - 1


@dataclass(frozen=True)
class Guarantee:
    """A threshold and its guarantee for new images that are drawn like the held-out ones."""

    keep: float
    """The share of known images to accept."""
    images: int
    """n, the number of held-out known images."""
    threshold: float
    rank: int
    """k: the threshold is the k-th lowest of their scores; 0 where it is -inf."""
    expected: float
    """The share accepted on average over held-out sets: (n + 1 - k) / (n + 1), more with ties."""
    at_least: float
    """The share accepted that is reached with a probability of `confidence` over such sets."""
    confidence: float = 0.95

    @property
    def fewest_images(self) -> int:
        """The fewest held-out images with which a threshold can guarantee `keep`."""
        return fewest_images(self.keep)

    @property
    def remedy(self) -> str:
        """Advice where there is no guarantee: n images can guarantee n / (n + 1) at most."""
        most = math.floor(1000 * self.images / (self.images + 1)) / 1000
        lower = f", or lower keep to {most:g}" if self.images else ""
        return f"label more, so that {self.fewest_images:,} can be held out{lower}"

    def sentence(self) -> str:
        """The guarantee as a sentence."""
        keep = percent(self.keep, 6)
        if not self.rank:
            return (
                f"{images(self.images)} held out cannot set a threshold that keeps {keep} of "
                f"known images, so every image is accepted: {self.remedy}."
            )
        sure = percent(math.floor(1000 * self.at_least) / 1000)
        return (
            f"A new image of a known class, if drawn like the {images(self.images)} held out, is "
            f"accepted with a probability of at least {keep}: the threshold is "
            f"{self.threshold:.4g}, and with {percent(self.confidence, 6)} confidence it accepts "
            f"{sure} of them or more."
        )


def guarantee(scores: ArrayLike, keep: float, confidence: float = 0.95) -> Guarantee:
    """The threshold that accepts a new known image with a probability of at least `keep`.

    Split conformal prediction: the floor((n + 1)(1 - keep))-th lowest score; -inf, which accepts
    everything, where that is 0 because n images are too few. It holds for any model and any scores
    if the new image is drawn like the held-out ones.

    Args:
        scores: (n,), the ID scores of known images that nothing was fitted to.
        confidence: of the share that is reached, `Guarantee.at_least`.
    """
    found = np.sort(check_scores(scores, "held-out"))
    check_shares(keep=keep, confidence=confidence)
    n = len(found)
    rank = min(math.floor((n + 1) * (1 - keep) + EXACTNESS), n)
    return Guarantee(
        keep=keep,
        images=n,
        threshold=float(found[rank - 1]) if rank else -math.inf,
        rank=rank,
        expected=(n + 1 - rank) / (n + 1),
        at_least=float(beta.ppf(1 - confidence, n + 1 - rank, rank)) if rank else 1.0,
        confidence=confidence,
    )
