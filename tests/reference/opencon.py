"""OpenCon, image by image."""

from __future__ import annotations

import math

from reference.contrast import class_contrast, view_contrast
from reference.methods import Logits, Loss, Scene, best
from reference.prototypes import mean, unit
from reference.risks import softmax


def quantile(values: list[float], share: float) -> float:
    """Between two values, along the line from one to the other."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def novel_classes(scene: Scene, num_seen: int, below: float, among: str) -> list[int | None]:
    cosines = {key: [slots[0] for slots in sims] for key, sims in scene.sims.items()}
    labeled = [max(cosines["labeled", 0, i][:num_seen]) for i in range(len(scene.labels))]
    least, found = quantile(labeled, below), []
    for u in range(scene.unlabeled):
        row = cosines["unlabeled", 0, u]
        free = row if among == "all" else [-2.0] * num_seen + row[num_seen:]
        head = best(free)[1]
        found.append(head if max(row[:num_seen]) < least and head >= num_seen else None)
    return found


def loss(
    scene: Scene,
    logits: Logits,
    novel: list[int | None],
    *,
    progress: float,
    views_weight: float,
    views_temperature: float,
    labels_weight: float,
    labels_temperature: float,
    novel_weight: float,
    novel_temperature: float,
    novel_ramp: float,
    entropy_weight: float,
) -> Loss:
    vectors = scene.features
    free = [[vectors["unlabeled", v, u] for u in range(scene.unlabeled)] for v in (0, 1)]
    own = [vectors["labeled", v, i] for v in (0, 1) for i in range(len(scene.labels))]
    probs = [softmax(logits(key)) for key in scene.images(0)]
    use = [mean([p[c] for p in probs]) for c in range(scene.heads)]
    begun = 1.0 if progress >= novel_ramp else progress / novel_ramp
    return {
        "entropy": entropy_weight * math.fsum(p * math.log(p) for p in use),
        "views": views_weight * view_contrast(*free, views_temperature),
        "labels": labels_weight * class_contrast(own, scene.labels * 2, labels_temperature),
        "novel": begun
        * novel_weight
        * class_contrast([*free[0], *free[1]], novel * 2, novel_temperature),
    }


def moved(
    prototypes: list[list[float]],
    vectors: list[list[float]],
    classes: list[int | None],
    momentum: float,
) -> list[list[float]]:
    """Prototypes after a batch: n images of a class count as n steps towards their mean."""
    found = []
    for c, old in enumerate(prototypes):
        rows = [v for v, k in zip(vectors, classes, strict=True) if k == c]
        if not rows:
            found.append(old)
            continue
        middle, new = [mean(column) for column in zip(*rows, strict=True)], old
        for _ in rows:
            new = [momentum * p + (1 - momentum) * m for p, m in zip(new, middle, strict=True)]
        found.append(unit(new))
    return found
