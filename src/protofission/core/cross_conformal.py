"""The conformal threshold where every label both trains and calibrates: cross-conformal, or CV+.

K models are trained, model k without the labels of fold k. s_i is the score of label i by the model
of its own fold; a new image x has K scores s_k(x). Its rank is the number of labels that score no
higher, #{i : s_i <= s_k(i)(x)}. It is accepted if the rank is at least floor((n + 1)(1 - keep)):
if its p-value (1 + rank) / (n + 1) exceeds 1 - keep. With one model this is split conformal
prediction.

The rank is a sum over models. Where these disagree, it varies less than the rank by one of them,
and more known images than promised are accepted. `model_agreement` measures that, and
`cross_guarantee` then asks for a higher rank, which accepts as many as promised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from protofission.core.array_types import Floats, Ints
from protofission.core.conformal import Guarantee, accepted_range, conformal_rank
from protofission.core.errors import require
from protofission.core.score_checks import check_scores, check_shares

LEAST_NORMAL_SCORE = -1.0
"""Mean normal score from which on images are taken for known ones where agreement is measured."""
FEWEST_AGREED = 20
"""Fewest such images by which it is; of fewer, models are taken to agree."""
COUNTED_DISAGREEMENT = 0.5
"""The part of the measured disagreement that counts: the most unusual known images are unusual to
all models. By 1, 93.8 % were accepted in the mean of 45 fits of six sets of images with 95 %
promised, by a half 96.0 %, and by 0, which is plain CV+, 97.4 %."""
SIMULATED_IMAGES, SIMULATED_SETS = 20_000, 200
"""New images, and sets of labels, in a simulation."""
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


def model_agreement(ranked: FoldScores, reference: ArrayLike) -> float:
    """The correlation between models of the normal scores of known images, 0 to 1.

    A normal score is the quantile of the normal distribution at an image's place among the labels.
    How much those of one image differ between models is measured on the images of the reference
    that look known, and a part of it counts (COUNTED_DISAGREEMENT).

    Args:
        reference: (R, K), scores of the same images by every model, such as those of the pool.
    """
    table = check_model_scores(reference, ranked.models, "reference")
    n = len(ranked.scores)
    if ranked.models == 1 or n < 2:
        return 1.0
    own = np.sort((ranked.scores - ranked.centers[ranked.folds]) / ranked.scales[ranked.folds])
    places = np.searchsorted(own, (table - ranked.centers) / ranked.scales, side="right")
    normal: Floats = ndtri((places + 0.5) / (n + 1))
    known = normal[normal.mean(1) > LEAST_NORMAL_SCORE]
    if len(known) < FEWEST_AGREED:
        return 1.0
    variance = float(known.var(1, ddof=1).mean())
    return 1 - COUNTED_DISAGREEMENT * min(variance, 1.0)


def cross_guarantee(
    folds: ArrayLike, keep: float, confidence: float = 0.95, agreement: float = 1.0
) -> Guarantee:
    """The threshold on `FoldScores.id_scores`, and its guarantee.

    It is k / (n + 1). Of models that agree, k is floor((n + 1)(1 - keep)), and the share accepted
    is that of split conformal prediction. Of others, k is the highest rank that new known images
    reach with a probability of `keep`, if their scores by the K models are normal with the
    correlation `agreement`. Where n labels are too few for any model, k is 0 and the threshold
    -inf.

    `expected` and the range (`simulated_range`) are by that simulation, so estimates; `proved` is
    what holds for any models, however they depend on each other (`proved_share`).

    Args:
        folds: (n,), the fold of each label, 0 to K - 1.
        agreement: of the models, 0 to 1 (`model_agreement`).
    """
    check_shares(keep=keep, confidence=confidence)
    require(0 <= agreement <= 1, f"agreement = {agreement} must be between 0 and 1.")
    places = np.asarray(folds)
    sizes = np.bincount(check_folds(places, len(places), None))
    n = int(sizes.sum())
    rank = conformal_rank(n, keep)
    expected = (n + 1 - rank) / (n + 1)
    low, high = accepted_range(n, rank, confidence)
    if len(sizes) > 1 and rank and agreement < 1:
        reached = simulated_ranks(sizes, agreement)
        rank = max(rank, int(np.sort(reached)[math.floor(len(reached) * (1 - keep))]))
        expected = float((reached >= rank).mean())
        low, high = simulated_range(sizes, agreement, rank, confidence)
    return Guarantee(
        keep=keep,
        images=n,
        threshold=rank / (n + 1) if rank else -math.inf,
        rank=rank,
        expected=expected,
        at_least=low,
        confidence=confidence,
        at_most=high,
        folds=len(sizes),
        proved=proved_share(sizes, rank),
    )


def simulated_ranks(sizes: Ints, agreement: float) -> Ints:
    """(SIMULATED_IMAGES,): ranks of new known images among new labels, in folds of these sizes."""
    random = np.random.default_rng(0)
    found: Ints = random.binomial(sizes, _simulated_places(len(sizes), agreement, random)).sum(1)
    return found


def simulated_range(
    sizes: Ints, agreement: float, rank: int, confidence: float
) -> tuple[float, float]:
    """The range of the share of known images that reach a rank.

    The agreement is itself an estimate. So the lower end is for models that disagree half as much,
    and the upper end for those that disagree twice as much.
    """
    ends = (1 - (1 - agreement) / 2, max(1 - 2 * (1 - agreement), 0.0))
    tails = ((1 - confidence) / 2, (1 + confidence) / 2)
    low, high = (
        float(np.quantile(simulated_shares(sizes, end, rank), tail))
        for end, tail in zip(ends, tails, strict=True)
    )
    return low, high


def simulated_shares(sizes: Ints, agreement: float, rank: int) -> Floats:
    """(SIMULATED_SETS,): shares of known images that reach a rank, each among one set of labels."""
    random = np.random.default_rng(1)
    places = _simulated_places(len(sizes), agreement, random)[: SIMULATED_IMAGES // 4]
    order = np.argsort(places, axis=0)  # places in order are counted several times faster
    ordered, back = np.sort(places, axis=0).T, np.argsort(order, axis=0).T
    shares = np.zeros(SIMULATED_SETS)
    for number in range(SIMULATED_SETS):
        total = np.zeros(len(places), np.int64)
        for size, own, image in zip(sizes.tolist(), ordered, back, strict=True):
            total += np.searchsorted(np.sort(random.random(size)), own, side="right")[image]
        shares[number] = (total >= rank).mean()
    return shares


def _simulated_places(models: int, agreement: float, random: np.random.Generator) -> Floats:
    """(SIMULATED_IMAGES, K): places in (0, 1) of known images by models that agree so much."""
    common = random.normal(size=(SIMULATED_IMAGES, 1))
    own = random.normal(size=(SIMULATED_IMAGES, models))
    found: Floats = ndtr(math.sqrt(agreement) * common + math.sqrt(1 - agreement) * own)
    return found


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
