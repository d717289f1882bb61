"""TIDA, row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reference.methods import Key, Logits, Loss, Scene
from reference.owmatch import balanced
from reference.prototypes import cosine, mean
from reference.risks import cross_entropy, softmax
from reference.simgcd import projected

Matrix = list[list[float]]
TEMPERATURE = 10.0


@dataclass
class Level:
    """Layers of the projection, and the prototypes, of sub-classes or super-classes."""

    weights: list[Matrix]
    biases: Matrix
    prototypes: Matrix

    def cosines(self, row: list[float]) -> list[float]:
        length = math.sqrt(math.fsum(x * x for x in row))
        found = projected([x / length for x in row], self.weights, self.biases)
        return [cosine(found, p) for p in self.prototypes]


def swapped(
    scene: Scene,
    cosines: dict[Key, list[float]],
    sharpness: float,
    rounds: int,
    balance_over: str,
) -> dict[Key, list[float]]:
    """The self-label of each weak unlabeled row, by its other view."""
    found: dict[Key, list[float]] = {}
    for view in (0, 1):
        keys: list[Key] = [("unlabeled", view, u) for u in range(scene.unlabeled)]
        if balance_over == "all":
            keys += [("labeled", 0, i) for i in range(len(scene.labels))]
        made = balanced([[c / sharpness for c in cosines[key]] for key in keys], rounds)
        for (kind, _, image), code in zip(keys, made, strict=True):
            if kind == "unlabeled":
                found[kind, 1 - view, image] = code
    return found


def class_codes(
    scene: Scene,
    num_seen: int,
    *,
    sharpness: float,
    rounds: int,
    balance_over: str,
    novel_threshold: float,
) -> dict[Key, list[float]]:
    cosines = {key: [max(slots) for slots in own] for key, own in scene.sims.items()}
    found = swapped(scene, cosines, sharpness, rounds, balance_over)
    return {
        key: [float(q >= novel_threshold) for q in code]
        if max(code[num_seen:]) >= novel_threshold
        else code
        for key, code in found.items()
    }


def soft_entropy(logits: list[float], code: list[float]) -> float:
    return math.fsum(q * cross_entropy(logits, c) for c, q in enumerate(code))


def both(codes: dict[Key, list[float]], image: int) -> list[float]:
    first, second = codes["unlabeled", 0, image], codes["unlabeled", 1, image]
    return [(a + b) / 2 for a, b in zip(first, second, strict=True)]


def weak_keys(scene: Scene) -> list[Key]:
    labeled: list[Key] = [("labeled", 0, i) for i in range(len(scene.labels))]
    return labeled + [("unlabeled", v, u) for v in (0, 1) for u in range(scene.unlabeled)]


def mean_of_views(scene: Scene, values: list[float]) -> float:
    """As if the labeled images were as many as the unlabeled ones; values by `weak_keys`."""
    labeled, pool = values[: len(scene.labels)], values[len(scene.labels) :]
    return (mean(labeled) + mean(pool[: scene.unlabeled]) + mean(pool[scene.unlabeled :])) / 3


def class_targets(scene: Scene, codes: dict[Key, list[float]]) -> dict[Key, list[float]]:
    labels = {
        ("labeled", 0, i): [float(c == y) for c in range(scene.heads)]
        for i, y in enumerate(scene.labels)
    }
    return {**labels, **codes}


def risk(scene: Scene, logits: Logits, codes: dict[Key, list[float]], strong_weight: float) -> Loss:
    targets = class_targets(scene, codes)
    weak = [soft_entropy(logits(key), targets[key]) for key in weak_keys(scene)]
    strong = [
        soft_entropy(logits(("unlabeled", 2, u)), both(codes, u)) for u in range(scene.unlabeled)
    ]
    return {"classes": mean_of_views(scene, weak), "strong": strong_weight * mean(strong)}


def level_terms(
    scene: Scene,
    level: Level,
    classes: list[Matrix],
    codes: dict[Key, list[float]],
    *,
    sharpness: float,
    rounds: int,
    balance_over: str,
    level_weight: float,
    align_weight: float,
    strong_weight: float,
) -> list[float]:
    """classes: prototypes of the classes, by class and slot."""
    cosines = {key: level.cosines(row) for key, row in scene.features.items()}
    logits = {key: [TEMPERATURE * c for c in own] for key, own in cosines.items()}
    own_codes = swapped(scene, cosines, sharpness, rounds, balance_over)
    clusters, agreed = [], []
    targets = class_targets(scene, codes)
    for key in weak_keys(scene):
        best = own_codes.get(key, softmax(logits[key]))
        clusters.append(cross_entropy(logits[key], best.index(max(best))))
        by_class = [
            math.fsum(
                c * max(cosine(p, slot) for slot in slots)
                for c, p in zip(cosines[key], level.prototypes, strict=True)
            )
            for slots in classes
        ]
        agreed.append(soft_entropy([TEMPERATURE * z for z in by_class], targets[key]))
    strong = [
        soft_entropy(logits["unlabeled", 2, u], both(own_codes, u)) for u in range(scene.unlabeled)
    ]
    return [
        level_weight * mean_of_views(scene, clusters),
        align_weight * mean_of_views(scene, agreed),
        strong_weight * mean(strong),
    ]
