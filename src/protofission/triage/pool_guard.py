"""The guard: whether the pool helped, by a control that did not learn from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Floats, Ints
from protofission.core.number_words import images, percent
from protofission.core.rng import step_rng

RESAMPLES = 200
"""Bootstraps of labels and pool, by which errors are estimated."""
DEVIATIONS = 1.0
"""Standard errors by which the control must be better to be kept."""
TOLD_APART = 1.96
"""Standard errors from which on a difference is told from chance."""


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
    """(U,): scores of the pool, each by the model of its own part."""
    parts: Ints
    """(U,): the model of each image of the pool."""


@dataclass(frozen=True)
class Guard:
    """The model that learned from the pool against a control, on labels that neither saw.

    Both thresholds keep the same share of the labels. Of the pool, the better one then rejects
    more: known images are rejected equally often, so the difference is strangers.
    """

    images: int
    """Labels by which they are compared."""
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

    def sentence(self) -> str:
        """The comparison and its outcome as a sentence."""
        if not self.images:
            return "Too few labels to compare with a control that did not learn from the pool."
        found = (
            f"On {images(self.images)} held out in turn, the model that learned from the pool is "
            f"right in {percent(self.accuracy[1])} and the control that did not in "
            f"{percent(self.accuracy[0])}; where both keep {percent(self.keep, 6)} of these, they "
            f"reject {percent(self.rejected[1])} and {percent(self.rejected[0])} of the pool"
        )
        told = abs(self.difference) > TOLD_APART * self.error
        if self.pool_hurts:
            how = "the pool hurts" if told else "the pool seems to hurt"
            return f"{found}: {how}, and the control is kept."
        if told:
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
    if not n or not len(model.pool):
        return Guard(n, (math.nan, math.nan), (math.nan, math.nan), keep, 0.0, 0.0)
    random = np.random.default_rng(step_rng(seed, 0, "guard").initial_seed())
    known, pool = np.ones(n), np.ones(len(model.pool))
    accuracy, rejected = _measure((control, model), known, pool, keep)
    found = [
        _difference(
            *_measure(
                (control, model),
                random.exponential(size=n),
                random.exponential(size=len(pool)),
                keep,
            ),
            share,
        )
        for _ in range(RESAMPLES)
    ]
    return Guard(
        n, accuracy, rejected, keep, _difference(accuracy, rejected, share), float(np.std(found))
    )


Pair = tuple[float, float]


def _difference(accuracy: Pair, rejected: Pair, share: float) -> float:
    return (1 - share) * (accuracy[1] - accuracy[0]) + rejected[1] - rejected[0]


def _measure(
    both: tuple[FoldVerdicts, FoldVerdicts], known: Floats, pool: Floats, keep: float
) -> tuple[Pair, Pair]:
    """Accuracies and rejected shares of both, with weights of labels and of pool images."""
    accuracy = tuple(float(np.average(each.right, weights=known)) for each in both)
    rejected = tuple(_rejected(each, known, pool, keep) for each in both)
    return (accuracy[0], accuracy[1]), (rejected[0], rejected[1])


def _rejected(verdicts: FoldVerdicts, known: Floats, pool: Floats, keep: float) -> float:
    """The weighted share of the pool below a threshold that keeps `keep` of the weighted labels.

    Scores of different models are compared by the pool's: each is standardized.
    """
    labels, others = standardize(verdicts)
    order = np.argsort(labels, kind="stable")
    below = np.cumsum(known[order]) / known.sum()
    threshold = labels[order[min(int(np.searchsorted(below, 1 - keep)), len(order) - 1)]]
    return float(np.average(others < threshold, weights=pool))


def standardize(verdicts: FoldVerdicts) -> tuple[Floats, Floats]:
    """Scores of labels and pool, less the median of the model's pool, in its mean deviations."""
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
    return labels, pool
