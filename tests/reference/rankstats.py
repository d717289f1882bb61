"""RankStats' loss, pair by pair."""

from __future__ import annotations

import math

from reference.dtc import risen
from reference.methods import Classes, Logits, Loss, Scene, orca_classes, supervised
from reference.prototypes import dot, mean
from reference.risks import cross_entropy, softmax

TINY = 1e-7


def largest(row: list[float], top: int) -> set[int]:
    return set(sorted(range(len(row)), key=lambda i: -abs(row[i]))[:top])


def rankstats(
    scene: Scene,
    logits: Logits,
    *,
    num_seen: int,
    progress: float,
    top: int = 5,
    pair_weight: float = 5.0,
    view_weight: float = 1.0,
    ramp: float = 0.25,
    transfer_share: float = 0.3,
    hard_threshold: float = 0.95,
) -> Loss:
    """Labels; all ordered pairs of unlabeled images, an image with itself too; and views.

    In the first stage labels alone, among the seen heads alone.
    """
    if progress < transfer_share:
        seen = [logits(("labeled", 0, i))[:num_seen] for i in range(len(scene.labels))]
        risks = [cross_entropy(z, y) for z, y in zip(seen, scene.labels, strict=True)]
        return {"supervised": mean(risks), "pairs": 0.0, "views": 0.0}
    within = (progress - transfer_share) / (1 - transfer_share)
    pairs = []
    for i in range(scene.unlabeled):
        for j in range(scene.unlabeled):
            sets = [largest(scene.features["unlabeled", 0, u], top) for u in (i, j)]
            mine = softmax(logits(("unlabeled", 0, i)))
            theirs = softmax(scene.max_logits(("unlabeled", 1, j)))
            agreed = dot(mine, theirs)
            pairs.append(-math.log((agreed if sets[0] == sets[1] else 1 - agreed) + TINY))
    gaps = []
    for first, second in zip(scene.images(0), scene.images(1), strict=True):
        own, other = softmax(logits(first)), softmax(scene.max_logits(second))
        gaps.append(math.fsum((p - q) ** 2 for p, q in zip(own, other, strict=True)))
    return {
        **supervised(scene, logits),
        "pairs": pair_weight * mean(pairs),
        "views": view_weight * risen(within, ramp) * mean(gaps),
    }


def rankstats_classes(
    scene: Scene, *, progress: float, transfer_share: float = 0.3, hard_threshold: float = 0.95
) -> Classes:
    """Labels, and from the second stage on the sure classes of unlabeled images."""
    if progress < transfer_share:
        return scene.label_classes()
    return orca_classes(scene, hard_threshold)
