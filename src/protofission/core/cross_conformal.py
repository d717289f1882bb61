"""The conformal threshold where every label both trains and calibrates: cross-conformal, or CV+.

K models are trained, model k without the labels of fold k. s_i is the score of label i by the model
of its own fold; a new image x has K scores s_k(x). Its rank is the number of labels that score no
higher, #{i : s_i <= s_k(i)(x)}. It is accepted if the rank is at least floor((n + 1)(1 - keep)):
if its p-value (1 + rank) / (n + 1) exceeds 1 - keep. With one model this is split conformal
prediction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from protofission.core.array_types import Floats, Ints
from protofission.core.conformal import Guarantee, accepted_range, conformal_rank
from protofission.core.errors import require
from protofission.core.score_checks import check_scores, check_shares

HALF_WIDTH = 0.375
"""Within one rank, ID scores take 3 quarters of the room; the rest is for rounding in float32."""
FARTHEST = 1e6
"""Standardized scores are cut off here."""


@dataclass(frozen=True, eq=False)
class FoldScores:
    """Scores of labels by models that did not learn from them: what a new image is ranked among."""

    scores: Floats
    """(n,), label by label."""
    folds: Ints
    """(n,), the fold of each label, 0 to K - 1: its score is by the model of that number."""
    centers: Floats
    """(K,), what is subtracted from the scores of each model before their mean is taken."""
    scales: Floats
    """(K,), what they are then divided by."""

    @property
    def models(self) -> int:
        """K."""
        return len(self.centers)

    def ranks(self, scores: ArrayLike) -> Ints:
        """(N,): for each image, the number of labels that score no higher by their fold's model.

        Args:
            scores: (N, K) of images that no model learned from, by each model.
        """
        new = check_model_scores(scores, self.models, "new")
        total = np.zeros(len(new), np.int64)
        for fold in range(self.models):
            own = np.sort(self.scores[self.folds == fold])
            total += np.searchsorted(own, new[:, fold], side="right")
        return total

    def id_scores(self, scores: ArrayLike) -> Floats:
        """(N,) in (0, 1): images in the order of their ranks, then of their mean scores.

        (rank + 1/2 + 3/8 t / (1 + |t|)) / (n + 1), with t the mean over models of the standardized
        scores. It lies between rank / (n + 1) and the p-value (rank + 1) / (n + 1), and reaches
        the threshold of `cross_guarantee`, k / (n + 1), exactly if the rank reaches k. In float32
        that holds too, up to n = 1,000,000; images of one rank are then told apart by steps in
        t / (1 + |t|) of about 2^-24 at the lowest rank, and of about n 2^-22 at the highest: 0.01
        with 50,000 labels.
        """
        new = check_model_scores(scores, self.models, "new")
        t = self._mean_standardized(new)
        within: Floats = 0.5 + HALF_WIDTH * t / (1 + np.abs(t))
        return (self.ranks(new) + within) / (len(self.scores) + 1)

    def label_id_scores(self) -> Floats:
        """(n,): ID scores of the labels, each as if every model scored it as its fold's model does.

        A label has one score by a model that did not learn from it; standardized, it is taken for
        the score by every model, and the label is ranked among the others. A new known image has
        the mean rank of K models, which varies a little less.
        """
        own = (self.scores - self.centers[self.folds]) / self.scales[self.folds]
        moved = own[:, None] * self.scales + self.centers
        moved[np.arange(len(own)), self.folds] = self.scores
        ranks, t = self.ranks(moved) - 1, np.clip(own, -FARTHEST, FARTHEST)
        within: Floats = 0.5 + HALF_WIDTH * t / (1 + np.abs(t))
        return (ranks + within) / len(own)

    def _mean_standardized(self, scores: Floats) -> Floats:
        """(N,): the mean over models of the standardized scores."""
        standardized = (scores - self.centers) / self.scales
        means: Floats = np.clip(standardized, -FARTHEST, FARTHEST).mean(1)
        return means


def fold_scores(scores: ArrayLike, folds: ArrayLike, reference: ArrayLike) -> FoldScores:
    """Gather what new images are ranked among.

    Args:
        scores: (n,), the score of each label by the model that did not learn from its fold.
        folds: (n,), the fold of each label.
        reference: (R, K), scores of the same images by every model, such as those of the pool:
            their median and mean absolute deviation standardize each model's scores.
    """
    known = check_scores(scores, "held-out")
    table = np.asarray(reference, float)
    require(table.ndim == 2, f"The reference scores are of shape {table.shape}: give (R, K).")
    table = check_model_scores(table, table.shape[1], "reference")
    require(len(table) > 0, "There are no reference scores: give those of the pool.")
    places = check_folds(folds, len(known), table.shape[1])
    centers = np.median(table, axis=0)
    scales = np.abs(table - centers).mean(0)
    return FoldScores(known, places, centers, np.where(scales > 0, scales, 1.0))


def cross_guarantee(folds: ArrayLike, keep: float, confidence: float = 0.95) -> Guarantee:
    """The threshold on `FoldScores.id_scores`, and its guarantee.

    It is k / (n + 1) with k = floor((n + 1)(1 - keep)), or -inf where k is 0 because n labels are
    too few. About (n + 1 - k) / (n + 1) of new known images are accepted; `proved` is what holds
    for any models, however they depend on each other (`proved_share`).

    The range is not proved but measured (docs/guide.md). Its lower end is that of split conformal
    prediction with n images. An image's rank is a mean over models, which varies less than the
    rank by one model, so rather more are accepted: the upper end is that for half the rank.

    Args:
        folds: (n,), the fold of each label, 0 to K - 1.
    """
    check_shares(keep=keep, confidence=confidence)
    places = np.asarray(folds)
    sizes = np.bincount(check_folds(places, len(places), None))
    n = int(sizes.sum())
    rank = conformal_rank(n, keep)
    low, high = accepted_range(n, rank, confidence)
    if len(sizes) > 1:
        high = accepted_range(n, rank / 2, confidence)[1]
    return Guarantee(
        keep=keep,
        images=n,
        threshold=rank / (n + 1) if rank else -math.inf,
        rank=rank,
        expected=(n + 1 - rank) / (n + 1),
        at_least=low,
        confidence=confidence,
        at_most=high,
        folds=len(sizes),
        proved=proved_share(sizes, rank),
    )


def proved_share(sizes: ArrayLike, rank: int) -> float:
    """The least probability that a new known image's rank reaches k, over all models and scores.

    The larger of two bounds, for labels and image that are exchangeable:

    1. 1 - (K + 2 (k - 1)) / (n + K), for any sizes of folds. Within fold j the image has a place
       r_j among m_j + 1 that is uniform, or higher with ties, and it is rejected if the sum of the
       r_j is at most K + k - 1. Given an event of probability q, the mean of r_j is at least
       (q (m_j + 1) + 1) / 2; so (q (n + K) + K) / 2 <= K + k - 1. This is Vovk's argument by the
       mean of p-values (2q of Vovk & Wang 2020) with whole places; it is at least
       1 - 2a - 2 (1 - 1/K) / (n/K + 1) for a = k / (n + 1).
    2. 1 - 2 k / (n + 1) - (1 - K/n) / (K + 1), for folds of equal size: Theorem 4 of Barber,
       Candès, Ramdas & Tibshirani, "Predictive inference with the jackknife+", 2021.

    Args:
        sizes: (K,), labels of each fold.
    """
    labels = np.asarray(sizes)
    n, models = int(labels.sum()), len(labels)
    if not rank:
        return 1.0
    bounds = [0.0, 1 - (models + 2 * (rank - 1)) / (n + models)]
    if labels.min() == labels.max():
        bounds.append(1 - 2 * rank / (n + 1) - (1 - models / n) / (models + 1))
    if models == 1:
        bounds.append(1 - rank / (n + 1))
    return max(bounds)


def check_model_scores(values: ArrayLike, models: int, kind: str) -> Floats:
    """Return (N, K) scores as float64; refuse NaN and another number of models."""
    scores = np.asarray(values, float)
    require(
        scores.ndim == 2 and scores.shape[1] == models,
        f"The {kind} scores are of shape {scores.shape}: give {models} an image, one a model.",
    )
    bad = int(np.isnan(scores).any(1).sum())
    require(bad == 0, f"{bad} of {len(scores)} {kind} scores are NaN: leave these images out.")
    return scores


def check_folds(values: ArrayLike, images: int, models: int | None) -> Ints:
    """Return (n,) folds; refuse other shapes and numbers, and folds without a label."""
    folds = np.asarray(values)
    require(
        folds.shape == (images,) and (folds.size == 0 or np.issubdtype(folds.dtype, np.integer)),
        f"Folds of shape {folds.shape} and kind {folds.dtype} for {images} scores: give each label "
        "the number of its fold.",
    )
    folds = folds.astype(np.int64)
    low, high = (int(folds.min()), int(folds.max())) if folds.size else (0, -1)
    most = high + 1 if models is None else models
    require(low >= 0 and high < most, f"Folds {low} ... {high} lie outside 0 ... {most - 1}.")
    empty = np.flatnonzero(np.bincount(folds, minlength=most) == 0)
    require(
        empty.size == 0 or folds.size == 0,
        f"Fold {empty[0] if empty.size else 0} has no labels: number folds from 0 without gaps.",
    )
    return folds
