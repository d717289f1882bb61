"""Test whether the ID scores of new images are distributed like those of held-out known ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike
from scipy.stats import beta, ks_2samp

from protofission.core.errors import require
from protofission.core.number_words import images, percent
from protofission.core.score_checks import check_scores

Verdict = Literal["no drift seen", "drift", "too few to tell"]

SIGNIFICANT = 0.01
"""The p-value below which a difference of scores is drift."""


@dataclass(frozen=True)
class Drift:
    """New images against the held-out ones; the interval is that of Clopper and Pearson, 95 %."""

    known: int
    """Held-out images."""
    images: int
    """New images."""
    expected: float
    """The share of held-out images below the threshold."""
    found: float
    """The share of new images below it, between `low` and `high`."""
    low: float
    high: float
    statistic: float
    """Kolmogorov-Smirnov statistic: the widest gap between the two distributions of scores."""
    p_value: float
    verdict: Verdict
    rejects: bool = True
    """Whether there is a threshold, so that an image can be below it."""

    def sentence(self) -> str:
        """The verdict as a sentence."""
        new, known = images(self.images, "new"), images(self.known, "held-out")
        if self.verdict == "too few to tell":
            remedy = "give more images" if self.images < self.known else "fit with more labels"
            return f"Too few to tell: {new} beside {known} cannot show drift; {remedy}."
        more, then = "more", "strangers among them are drift too"
        if self.verdict == "no drift seen":
            gap = percent(visible_gap(self.known, self.images), 0)
            more, then = "no more", f"a share of strangers below about {gap} may not show"
        return (
            f"{self.verdict.capitalize()}: the scores of {new} differ from those of {known} of "
            f"known classes by {more} than chance explains (Kolmogorov-Smirnov "
            f"{self.statistic:.2f}, p = {self.p_value:.2g}); {then}."
        )

    def rejections(self) -> str:
        """The numbers of images below the threshold as a sentence."""
        if not self.rejects:
            return (
                "The model accepts every image: it was fitted with too few labels for a threshold."
            )
        new, known = round(self.found * self.images), round(self.expected * self.known)
        return (
            f"Not accepted: {new:,} of {images(self.images, 'new')} ({percent(self.found)}; "
            f"{percent(self.low)} to {percent(self.high)} with 95 % confidence) and {known:,} of "
            f"{images(self.known, 'held-out')}."
        )


def visible_gap(known: int, new: int) -> float:
    """The least gap between the scores of so many images that is drift, by the limit for many.

    Where a share of the new images are strangers that score below all known ones, that is the gap.
    """
    return math.sqrt(-math.log(SIGNIFICANT / 2) / 2 * (1 / known + 1 / new))


def drift_test(known_scores: ArrayLike, new_scores: ArrayLike, threshold: float) -> Drift:
    """Test whether new images score like held-out known ones: drift if the p-value is below 0.01.

    Otherwise there are too few to tell, if not even disjoint samples would be drift.
    """
    known, new = check_scores(known_scores, "held-out"), check_scores(new_scores, "new")
    require(not math.isnan(threshold), "threshold = nan: give a number, or -inf to reject nothing.")
    for kind, scores in (("held-out", known), ("new", new)):
        require(len(scores) > 0, f"There are no {kind} scores: drift needs some of each.")
    total, rejected = len(new), int((new < threshold).sum())
    test = ks_2samp(known, new)
    verdict: Verdict = "no drift seen" if visible_gap(len(known), total) < 1 else "too few to tell"
    if test.pvalue < SIGNIFICANT:
        verdict = "drift"
    return Drift(
        known=len(known),
        images=total,
        expected=float((known < threshold).mean()),
        found=rejected / total,
        low=float(beta.ppf(0.025, rejected, total - rejected + 1)) if rejected else 0.0,
        high=float(beta.ppf(0.975, rejected + 1, total - rejected)) if rejected < total else 1.0,
        statistic=float(test.statistic),
        p_value=float(test.pvalue),
        verdict=verdict,
        rejects=threshold > -math.inf,
    )
