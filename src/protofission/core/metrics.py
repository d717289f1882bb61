"""Metrics: arrays in, numbers out, with one matching over the whole set.

Labels and predictions share their numbering: the S seen classes first, then the novel ones. There
may be more heads than classes, or fewer, and heads that are never predicted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata

from protofission.core.array_types import Floats
from protofission.core.errors import require

Protocol = Literal["orca", "strict"]
Counts = NDArray[np.int64]


def contingency(
    labels: ArrayLike, predictions: ArrayLike, num_classes: int, num_heads: int
) -> Counts:
    """(classes, heads): the number of images of each class that each head predicts."""
    true, predicted = np.asarray(labels), np.asarray(predictions)
    require(
        true.shape == predicted.shape,
        f"{len(predicted)} predictions for {len(true)} labels: give one each.",
    )
    for kind, values, size in (("label", true, num_classes), ("prediction", predicted, num_heads)):
        require(
            len(values) == 0 or np.issubdtype(values.dtype, np.integer),
            f"A {kind} is a whole number, but these are {values.dtype}.",
        )
        require(
            len(values) == 0 or (values.min() >= 0 and values.max() < size),
            f"A {kind} lies outside 0 ... {size - 1}.",
        )
    places = true.astype(np.int64) * num_heads + predicted.astype(np.int64)
    flat = np.bincount(places, minlength=num_classes * num_heads)
    return flat.reshape(num_classes, num_heads)


def count_matches(counts: Counts) -> int:
    """The number of images that the best one-to-one matching of classes and heads gets right.

    The matching is Hungarian; counts are (classes, heads), see `contingency`.
    """
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return int(counts[rows, columns].sum())


@dataclass(frozen=True)
class Accuracy:
    """Accuracies in [0, 1]; NaN where there is no image."""

    seen: float
    novel: float
    all: float


def accuracy(counts: Counts, num_seen: int, protocol: Protocol) -> Accuracy:
    """Accuracy on seen, novel and all images.

    `seen` is plain accuracy in both protocols.
    - "orca", as in its code: `novel` matches the novel images with all heads, seen ones included;
      `all` is another Hungarian matching, over all images and heads.
    - "strict", as in the paper's words: seen heads stay pinned to their classes, so a novel image
      on a seen head is an error, as is a seen image on a novel head.

    Args:
        counts: (classes, heads), see `contingency`.
    """
    images = counts.sum(1)
    seen_total, novel_total = int(images[:num_seen].sum()), int(images[num_seen:].sum())
    seen_right = int(np.trace(counts[:num_seen, :num_seen]))
    if protocol == "orca":
        novel_right = count_matches(counts[num_seen:])
        all_right = count_matches(counts)
    else:
        novel_right = count_matches(counts[num_seen:, num_seen:])
        all_right = seen_right + novel_right
    return Accuracy(
        seen=_share(seen_right, seen_total),
        novel=_share(novel_right, novel_total),
        all=_share(all_right, seen_total + novel_total),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def auroc(id_scores: ArrayLike, ood_scores: ArrayLike) -> float:
    """The probability that an OOD image scores above an ID image; ties count half.

    Args:
        id_scores, ood_scores: OOD scores (higher is more OOD) of ID and of OOD images.
    """
    inside, outside = _scores(id_scores), _scores(ood_scores)
    if not len(inside) or not len(outside):
        return float("nan")
    ranks = rankdata(np.concatenate([outside, inside]))[: len(outside)]
    above = ranks.sum() - len(outside) * (len(outside) + 1) / 2
    return float(above / (len(inside) * len(outside)))


def aupr(id_scores: ArrayLike, ood_scores: ArrayLike) -> float:
    """Average precision of finding OOD images by a high score (OOD is the positive class)."""
    inside, outside = _scores(id_scores), _scores(ood_scores)
    if not len(inside) or not len(outside):
        return float("nan")
    thresholds = np.unique(outside)[::-1]
    true = len(outside) - np.searchsorted(np.sort(outside), thresholds)
    false = len(inside) - np.searchsorted(np.sort(inside), thresholds)
    gained = np.diff(true, prepend=0) / len(outside)
    return float((gained * true / (true + false)).sum())


def fpr_at_tpr(id_scores: ArrayLike, ood_scores: ArrayLike, tpr: float = 0.95) -> float:
    """The share of OOD images accepted by the lowest threshold that accepts a share `tpr` of ID."""
    require(0 < tpr <= 1, f"tpr = {tpr} must be above 0, at most 1.")
    inside, outside = np.sort(_scores(id_scores)), _scores(ood_scores)
    if not len(inside) or not len(outside):
        return float("nan")
    threshold = inside[int(np.ceil(tpr * len(inside) - 1e-9)) - 1]
    return float((outside <= threshold).mean())


def _scores(values: ArrayLike) -> Floats:
    scores = np.asarray(values, float)
    bad = int(np.isnan(scores).sum())
    require(
        bad == 0, f"{bad} of {len(scores)} scores are NaN: an image without a score is no rank."
    )
    return scores


def nmi(counts: Counts) -> float:
    """Normalized mutual information of classes and heads: over the mean of the two entropies."""
    if not counts.sum():
        return float("nan")
    joint = counts / counts.sum()
    rows, columns = joint.sum(1), joint.sum(0)
    mean_entropy = (_entropy(rows) + _entropy(columns)) / 2
    if mean_entropy == 0:
        return 1.0
    information = _entropy(rows) + _entropy(columns) - _entropy(joint.ravel())
    return float(max(information, 0.0) / mean_entropy)


def ari(counts: Counts) -> float:
    """Adjusted Rand index of classes and heads: agreement of pairs above chance."""
    pairs = counts.sum() * (counts.sum() - 1) / 2
    joint, rows, columns = (
        float((part * (part - 1) / 2).sum()) for part in (counts, counts.sum(1), counts.sum(0))
    )
    expected, most = rows * columns / pairs if pairs else 0.0, (rows + columns) / 2
    return 1.0 if most == expected else (joint - expected) / (most - expected)


@dataclass(frozen=True)
class SubclassScore:
    """Agreement of each class's parts with its finer classes; NaN where there are none."""

    nmi: float = math.nan
    """Mean over classes."""
    accuracy: float = math.nan
    """Share of images in the part that is matched with their finer class (Hungarian)."""


def subclass_score(labels: Counts, finer: Counts, parts: Counts) -> SubclassScore:
    """Compare the parts of each class with its finer classes, class by class.

    Args:
        labels: (N,), the class of each image.
        finer: (N,), its finer class.
        parts: (N,), the part of its class that it is assigned to.
    """
    found, right = [], 0
    for label in np.unique(labels):
        own = labels == label
        (fine, true), (some, predicted) = (
            np.unique(values[own], return_inverse=True) for values in (finer, parts)
        )
        counts = contingency(true, predicted, len(fine), len(some))
        found.append(nmi(counts))
        right += count_matches(counts)
    if not found:
        return SubclassScore()
    return SubclassScore(float(np.mean(found)), right / len(labels))


def _entropy(shares: Floats) -> float:
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())


@dataclass(frozen=True)
class PrototypeHealth:
    """Use and diversity of the prototypes: means over classes, of usage over the classes in use."""

    usage_entropy: float
    """Entropy of the slots' shares of a class's images, in nats."""
    effective: float
    """Effective V: exp of that entropy, from 1 (one slot does all) to V."""
    dead: int
    """Slots, of classes in use, that are no image's nearest."""
    slot_cosine: float
    """Mean cosine of two different slots of a class; NaN for V = 1."""
    mixing: float
    """Mean lambda of Eq. 2."""


def prototype_health(usage: Counts, prototypes: ArrayLike, mixing: ArrayLike) -> PrototypeHealth:
    """Measure the use and diversity of a head's prototypes.

    Args:
        usage: (C, V), the number of images of each class by nearest slot.
        prototypes: (C, V, D).
        mixing: (C, V), lambda.
    """
    used = usage.sum(1) > 0
    entropies = [_entropy(row / row.sum()) for row in usage[used]]
    vectors = np.asarray(prototypes, float)
    slots = vectors.shape[1]
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    cosines = unit @ unit.transpose(0, 2, 1)  # (C, V, V)
    others = ~np.eye(slots, dtype=bool)
    return PrototypeHealth(
        usage_entropy=float(np.mean(entropies)) if entropies else float("nan"),
        effective=float(np.mean(np.exp(entropies))) if entropies else float("nan"),
        dead=int((usage[used] == 0).sum()),
        slot_cosine=float(cosines[:, others].mean()) if slots > 1 else float("nan"),
        mixing=float(np.asarray(mixing, float).mean()),
    )
