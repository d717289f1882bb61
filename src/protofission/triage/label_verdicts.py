"""Verdicts on the labels themselves, by models that did not see them: confusions and doubts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Floats, Ints
from protofission.core.records import NO_CLASS
from protofission.triage.folds import NO_FOLD


@dataclass(frozen=True)
class LabelVerdicts:
    """Verdicts on L labels, each by a model that did not see it."""

    labels: Ints
    """(L,)"""
    likeliest: Ints
    """(L,): the class that the model prefers; NO_CLASS where none judged."""
    probability: Floats
    """(L,): of the label; NaN where none judged."""
    likeliest_probability: Floats
    """(L,): of the likeliest class; NaN where none judged."""
    folds: Ints
    """(L,): the fold that the label was held out in; NO_FOLD where none judged."""
    doubtful: NDArray[np.bool_]
    """(L,): labels in doubt."""

    @property
    def doubts(self) -> Floats:
        """(L,): the likeliest class's probability above the label's, of labels in doubt; else 0."""
        return np.where(self.doubtful, self.likeliest_probability - self.probability, 0.0)

    def confusion(self, num_classes: int) -> Ints:
        """(S, S): the number of judged images by label and by likeliest class."""
        judged = self.likeliest != NO_CLASS
        cells = self.labels[judged] * num_classes + self.likeliest[judged]
        return np.bincount(cells, minlength=num_classes**2).reshape(num_classes, -1)


def judge_labels(labels: Ints, probs: NDArray[np.floating], folds: Ints) -> LabelVerdicts:
    """Judge labels by the probabilities that models gave which did not see them.

    A label is in doubt, by the rule of confident learning (Northcutt et al., 2021), if another
    class is the likeliest, and at least as probable as it is on average for images labeled so.

    Args:
        labels: (L,).
        probs: (L, S); rows without a fold are not read.
        folds: (L,): NO_FOLD where no model judged.
    """
    judged = folds != NO_FOLD
    known = np.where(judged[:, None], probs, 0.0).astype(np.float64)
    rows = np.arange(len(labels))
    likeliest = np.where(judged, known.argmax(1), NO_CLASS)
    own, best = known[rows, labels], known.max(1, initial=0.0)
    classes = probs.shape[1]
    counts = np.bincount(labels[judged], minlength=classes)
    usual = np.bincount(labels[judged], own[judged], minlength=classes) / np.maximum(counts, 1)
    sure = (counts[likeliest] > 0) & (best >= usual[likeliest])
    return LabelVerdicts(
        labels=labels,
        likeliest=likeliest,
        probability=np.where(judged, own, np.nan),
        likeliest_probability=np.where(judged, best, np.nan),
        folds=folds,
        doubtful=judged & (likeliest != labels) & sure,
    )
