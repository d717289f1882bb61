"""The guard: whether the pool helped, by a control that did not learn from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Floats, Ints
from protofission.core.conformal import EXACTNESS, conformal_rank
from protofission.core.number_words import images, percent
from protofission.core.rng import step_rng

RESAMPLES = 200
"""Bootstraps of labels and pool, by which errors are estimated."""
DEVIATIONS = 1.0
"""Standard errors by which the control must be better to be kept."""
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

    Both thresholds keep the same share of known images, as far as labels tell, by the rule of a
    fit. Of the pool, the better one then rejects more: known images are rejected equally often, so
    the difference is strangers. Too few labels for a threshold reject nothing.
    """

    images: int
    """Labels by which they are compared."""
    pool: int
    """Images of the pool."""
    accuracy: tuple[float, float]
    """Share of right classes of the control and of the model."""
    rejected: tuple[float, float]
    """Share of the pool that the control and the model reject."""
    keep: float
    difference: float
    """By how much more of the pool the model treats rightly, by these estimates."""
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
            f"On {images(self.images)} held out in turn, the model that learned from the pool is "
            f"right in {percent(self.accuracy[1])} and the control that did not in "
            f"{percent(self.accuracy[0])}"
        )
        if conformal_rank(self.images, self.keep):
            found += (
                f"; where both keep {percent(self.keep, 6)} of known images, they reject "
                f"{percent(self.rejected[1])} and {percent(self.rejected[0])} of the pool"
            )
        if self.pool_hurts:
            how = "the pool hurts" if self.told_apart else "the pool seems to hurt"
            return f"{found}: {how}, and the control is kept."
        if self.told_apart:
            return f"{found}: the pool helps."
        return f"{found}: too little to tell them apart, and the model is kept."


def compare(
    control: FoldVerdicts, model: FoldVerdicts, keep: float, share: float, seed: int
) -> Guard:
    """Compare the two by accuracy and rejection.

    The difference is (1 - share) times that of the accuracies, plus that of the rejected shares of
    the pool: the part of the pool that is treated rightly. Its error is by bootstraps of labels and
    pool, the same ones for both.

    Args:
        share: estimated share of strangers in the pool.
    """
    n = len(model.right)
    size = int(model.images.max(initial=-1)) + 1
    if not n or not size:
        return Guard(n, size, (math.nan, math.nan), (math.nan, math.nan), keep, 0.0, 0.0)
    random = np.random.default_rng(step_rng(seed, 0, "guard").initial_seed())
    both = standardize(control), standardize(model)
    accuracy, rejected = _measure(both, np.ones(n + 1), np.ones(size), keep)
    found = [
        _difference(
            *_measure(both, random.exponential(size=n + 1), random.exponential(size=size), keep),
            share,
        )
        for _ in range(RESAMPLES)
    ]
    difference = _difference(accuracy, rejected, share)
    return Guard(n, size, accuracy, rejected, keep, difference, float(np.std(found)))


Pair = tuple[float, float]


def _difference(accuracy: Pair, rejected: Pair, share: float) -> float:
    return (1 - share) * (accuracy[1] - accuracy[0]) + rejected[1] - rejected[0]


def _measure(
    both: tuple[FoldVerdicts, FoldVerdicts], known: Floats, pool: Floats, keep: float
) -> tuple[Pair, Pair]:
    """Accuracies and rejected shares of both, with weights of labels and of pool images.

    Args:
        known: (n + 1,): the first is that of a new image.
    """
    accuracy = tuple(float(np.average(each.right, weights=known[1:])) for each in both)
    rejected = tuple(_rejected(each, known, pool, keep) for each in both)
    return (accuracy[0], accuracy[1]), (rejected[0], rejected[1])


def _rejected(verdicts: FoldVerdicts, known: Floats, pool: Floats, keep: float) -> float:
    """The weighted share of the pool below a threshold that keeps `keep` of the weighted labels.

    It is the conformal threshold, a new image counts among the labels as the lowest: with equal
    weights, the floor((n + 1)(1 - keep))-th lowest label, or nothing is rejected.
    """
    labels = verdicts.scores
    order = np.argsort(labels, kind="stable")
    below = np.cumsum(np.append(known[0], known[1:][order]))[:-1] / known.sum()
    rank = int(np.searchsorted(below, 1 - keep + EXACTNESS, side="right"))
    threshold = labels[order[rank - 1]] if rank else -math.inf
    return float(np.average(verdicts.pool < threshold, weights=pool[verdicts.images]))


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
