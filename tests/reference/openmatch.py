"""OpenMatch, image by image."""

from __future__ import annotations

import math

from reference.methods import Key, Logits, Loss, Scene, best, supervised
from reference.prototypes import Matrix, Vector, dot, mean
from reference.risks import cross_entropy, softmax

Answers = list[tuple[float, float]]
"""For each class, the probabilities that an image is of it and that it is not."""


def answers(row: Vector, heads: list[Matrix]) -> Answers:
    found = []
    for of_it, not_of_it in heads:
        inside, outside = softmax([dot(row, of_it), dot(row, not_of_it)])
        found.append((inside, outside))
    return found


def ova_loss(said: Answers, label: int) -> float:
    negatives = [-math.log(outside) for c, (_, outside) in enumerate(said) if c != label]
    return -math.log(said[label][0]) + max(negatives)


def ova_entropy(said: Answers) -> float:
    return mean([-math.fsum(p * math.log(p) for p in pair) for pair in said])


def soft_consistency(first: Answers, second: Answers) -> float:
    pairs = zip(first, second, strict=True)
    return math.fsum((a - b) ** 2 for one, two in pairs for a, b in zip(one, two, strict=True))


def openmatch(
    scene: Scene,
    logits: Logits,
    heads: list[Matrix],
    *,
    progress: float,
    threshold: float,
    unknown_below: float,
    fix_warmup: float,
    unlabeled_weight: float,
    ova_weight: float,
    entropy_weight: float,
    socr_weight: float,
) -> Loss:
    def said(key: Key) -> Answers:
        return answers(scene.features[key], heads)

    charged, inliers = 0.0, 0
    entropies, distances = [], []
    for u in range(scene.unlabeled):
        first, second = said(("unlabeled", 0, u)), said(("unlabeled", 1, u))
        entropies += [ova_entropy(first), ova_entropy(second)]
        distances.append(soft_consistency(first, second))
        confidence, pseudo = best(softmax(scene.max_logits(("unlabeled", 0, u))))
        if progress >= fix_warmup and first[pseudo][1] < unknown_below:
            inliers += 1
            if confidence >= threshold:
                charged += cross_entropy(logits(("unlabeled", 2, u)), pseudo)
    labeled = [ova_loss(said(("labeled", 0, i)), y) for i, y in enumerate(scene.labels)]
    return {
        **supervised(scene, logits),
        "pseudo": unlabeled_weight * charged / max(inliers, 1),
        "ova": ova_weight * mean(labeled),
        "ova_entropy": entropy_weight * mean(entropies),
        "socr": socr_weight * mean(distances),
    }
