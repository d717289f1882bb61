"""PIM, image by image."""

from __future__ import annotations

import math
from itertools import permutations

from reference.methods import Logits, Loss, Scene, supervised
from reference.prototypes import mean
from reference.risks import softmax


def entropy(probs: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in probs)


def pim(scene: Scene, logits: Logits, conditional_weight: float) -> Loss:
    probs = {key: softmax(logits(key)) for key in scene.images(0)}
    pool = [entropy(p) for key, p in probs.items() if key[0] == "unlabeled"]
    use = [mean([p[c] for p in probs.values()]) for c in range(scene.heads)]
    return {
        **supervised(scene, logits),
        "conditional": conditional_weight * mean(pool),
        "marginal": -entropy(use),
    }


def best_match(labels: list[int], taken: list[int], classes: int) -> int:
    """Images that are right under the best naming of the clusters, by trying all."""
    return max(
        sum(order[cluster] == y for cluster, y in zip(taken, labels, strict=True))
        for order in permutations(range(classes))
    )
