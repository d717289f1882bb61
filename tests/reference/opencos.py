"""OpenCoS, image by image."""

from __future__ import annotations

import math

from reference.iomatch import soft_cross_entropy
from reference.methods import Logits, Loss, Scene, best, supervised
from reference.prototypes import Matrix, Vector, cosine, mean
from reference.risks import cross_entropy, softmax


def class_means(rows: Matrix, labels: list[int], classes: int) -> Matrix:
    found = []
    for c in range(classes):
        own = [row for row, y in zip(rows, labels, strict=True) if y == c]
        found.append([mean(list(column)) for column in zip(*own, strict=True)])
    return found


def cosines(row: Vector, means: Matrix) -> Vector:
    return [cosine(row, m) for m in means]


def usual_and_deviation(rows: Matrix, means: Matrix) -> tuple[float, float]:
    nearest = [max(cosines(row, means)) for row in rows]
    usual = mean(nearest)
    return usual, math.sqrt(mean([(c - usual) ** 2 for c in nearest]))


def opencos(
    scene: Scene,
    logits: Logits,
    means: Matrix,
    usual: float,
    deviation: float,
    *,
    threshold: float,
    deviations: float,
    soft_temperature: float,
    unlabeled_weight: float,
    auxiliary_weight: float,
) -> Loss:
    pseudo_risk, soft_risks, inside = 0.0, [], 0
    for u in range(scene.unlabeled):
        near = cosines(scene.features["unlabeled", 0, u], means)
        if max(near) >= usual - deviations * deviation:
            inside += 1
            confidence, pseudo = best(softmax(scene.max_logits(("unlabeled", 0, u))))
            if confidence >= threshold:
                pseudo_risk += cross_entropy(logits(("unlabeled", 1, u)), pseudo)
        else:
            soft = softmax([c / soft_temperature for c in near])
            soft_risks.append(soft_cross_entropy(logits(("unlabeled", 0, u)), soft))
    return {
        **supervised(scene, logits),
        "pseudo": unlabeled_weight * pseudo_risk / max(inside, 1),
        "auxiliary": auxiliary_weight * (mean(soft_risks) if soft_risks else 0.0),
    }
