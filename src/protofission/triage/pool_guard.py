"""The guard: whether the pool helped, by a control that did not learn from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Floats, Ints
from protofission.core.number_words import images, percent
from protofission.core.rng import step_rng

RESAMPLES = 200
"""Bootstraps of labels and pool, by which errors are estimated."""
DEVIATIONS = 2.33
"""Standard errors by which the control must be better to be kept: of two that are alike, in one fit
of a hundred. With 1, it was kept in 2 of 23 fits of real images, and was the worse one in both."""
TOLD_APART = 1.96
"""Standard errors from which on a difference is told from chance."""
FEWEST_TOLD = 20
"""Fewest labels, and fewest images of the pool, with which it is: of fewer, bootstraps are too much
alike."""


@dataclass(frozen=True)
class FoldVerdicts:
    """Verdicts of K models on labels that they did not learn from, and on the pool."""

    right: NDArray[np.bool_]
    """(n,): whether the class of a label is right, by the model of its fold."""
    scores: Floats
    """(n,): scores of the labels, by the model of their fold."""
    folds: Ints
    """(n,)."""
    pool: Floats
    """(R,): scores of the pool, of each image by the model that did not learn from it; by every
    model where all did."""
    parts: Ints
    """(R,): the model of each of these scores."""
    images: Ints
    """(R,): the image of each, 0 to U - 1."""


@dataclass(frozen=True)
class Guard:
    """The model that learned from the pool against a control, on labels that neither saw.

    They are compared by their accuracy, and by how often a label scores above an image of the
    pool. With a share s of strangers that is (1 - s) / 2 + s AUC, so a difference is s times that
    of the AUC of known images against strangers, though nobody knows which these are.
    """

    images: int
    """Labels by which they are compared."""
    pool: int
    """Images of the pool."""
    accuracy: tuple[float, float]
    """Share of right classes of the control and of the model."""
    above: tuple[float, float]
    """Share of pairs of a label and an image of the pool in which the label scores higher, by the
    control and by the model."""
    difference: float
    """By how much the model is better: see `compare`."""
    error: float
    """The standard error of the difference."""

    @property
    def pool_hurts(self) -> bool:
        """Whether the control is kept."""
        return self.difference < -DEVIATIONS * self.error

    @property
    def told_apart(self) -> bool:
        """Whether the difference is hardly chance, and its error estimated by enough images."""
        enough = min(self.images, self.pool) >= FEWEST_TOLD
        return enough and abs(self.difference) > TOLD_APART * self.error

    def sentence(self) -> str:
        """The comparison and its outcome as a sentence."""
        if not self.pool:
            return "There is no pool to learn from."
        if not self.images:
            return "Too few labels to compare with a control that did not learn from the pool."
        found = (
            f"On {images(self.images)} held out, the model that learned from the pool is "
            f"right in {percent(self.accuracy[1])} and the control that did not in "
            f"{percent(self.accuracy[0])}"
        )
        found += (
            f"; a label scores above an image of the pool in {percent(self.above[1])} and "
            f"{percent(self.above[0])} of pairs"
        )
        if self.pool_hurts:
            how = "the pool hurts" if self.told_apart else "the pool seems to hurt"
            return f"{found}: {how}, and the control is kept."
        if self.told_apart and self.difference > 0:
            return f"{found}: the pool helps."
        return f"{found}: too little to tell them apart, and the model is kept."


def compare(control: FoldVerdicts, model: FoldVerdicts, share: float, seed: int) -> Guard:
    """Compare the two by accuracy and by telling strangers.

    The difference is (1 - share) times that of the accuracies plus share times that of the AUC:
    each counts by the part of the pool that it is about. Its error is by Bayesian bootstraps (Rubin
    1981) of labels and pool, the same ones for both.

    Args:
        share: estimated share of strangers in the pool.
    """
    n = len(model.right)
    size = int(model.images.max(initial=-1)) + 1
    if not n or not size:
        return Guard(n, size, (math.nan, math.nan), (math.nan, math.nan), 0.0, 0.0)
    random = np.random.default_rng(step_rng(seed, 0, "guard").initial_seed())
    both = RankedPairs.of(standardize(control)), RankedPairs.of(standardize(model))
    accuracy, above = _measure(both, np.ones(n), np.ones(size))
    found = [
        _difference(
            *_measure(both, random.exponential(size=n), random.exponential(size=size)), share
        )
        for _ in range(RESAMPLES)
    ]
    difference = _difference(accuracy, above, share)
    return Guard(n, size, accuracy, above, difference, float(np.std(found)))


Pair = tuple[float, float]


def _difference(accuracy: Pair, above: Pair, share: float) -> float:
    return (1 - share) * (accuracy[1] - accuracy[0]) + above[1] - above[0]


def _measure(
    both: tuple[RankedPairs, RankedPairs], known: Floats, pool: Floats
) -> tuple[Pair, Pair]:
    """Accuracies and shares of pairs of both, with weights of labels and of pool images."""
    accuracy = tuple(float(np.average(each.right, weights=known)) for each in both)
    above = tuple(each.share_above(known, pool) for each in both)
    return (accuracy[0], accuracy[1]), (above[0], above[1])


@dataclass(frozen=True)
class RankedPairs:
    """Pairs of a label and a score of the pool, ranked once for many weights."""

    right: NDArray[np.bool_]
    """(n,): whether the class of a label is right."""
    images: Ints
    """(R,): the image of each score of the pool, the lowest score first."""
    below: Ints
    """(n,): how many of these scores are lower than that of a label."""
    reached: Ints
    """(n,): how many are no higher."""

    @staticmethod
    def of(verdicts: FoldVerdicts) -> RankedPairs:
        """Rank the scores of verdicts that are comparable."""
        order = np.argsort(verdicts.pool, kind="stable")
        scores = verdicts.pool[order]
        return RankedPairs(
            verdicts.right,
            verdicts.images[order],
            np.searchsorted(scores, verdicts.scores, side="left"),
            np.searchsorted(scores, verdicts.scores, side="right"),
        )

    def share_above(self, known: Floats, pool: Floats) -> float:
        """The weighted share of pairs in which the label scores above the image; ties half.

        Args:
            known: (n,) weights of labels.
            pool: (U,) weights of images.
        """
        total = np.concatenate([[0.0], np.cumsum(pool[self.images])])
        half = (total[self.below] + total[self.reached]) / 2 / total[-1]
        return float(np.average(half, weights=known))


def standardize(verdicts: FoldVerdicts) -> FoldVerdicts:
    """Make scores of different models comparable by those of the pool.

    Of each model's, the median of its scores of the pool is subtracted, and what is left is divided
    by the mean deviation from it.
    """
    labels, pool = verdicts.scores.astype(float), verdicts.pool.astype(float)
    for fold in np.unique(verdicts.folds):
        own = verdicts.parts == fold
        if not own.any():
            continue
        center = np.median(pool[own])
        scale = max(float(np.abs(pool[own] - center).mean()), 1e-12)
        pool[own] = (pool[own] - center) / scale
        mine = verdicts.folds == fold
        labels[mine] = (labels[mine] - center) / scale
    return replace(verdicts, scores=labels, pool=pool)
