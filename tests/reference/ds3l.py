"""DS3L, image by image."""

from __future__ import annotations

import math

from reference.inner import Net, label_risk
from reference.methods import Logits, Loss, Scene
from reference.prototypes import mean
from reference.risks import softmax


def ds3l(
    scene: Scene,
    logits: Logits,
    *,
    net: Net,
    progress: float,
    unlabeled_weight: float = 10.0,
    ramp: float = 1.0,
) -> Loss:
    """Labels, and the second view's probabilities against the first's, weighted by the net."""
    risen = 1.0 if progress >= ramp else math.exp(-5 * (1 - progress / ramp) ** 2)
    gaps, weights = [], []
    for u in range(scene.unlabeled):
        first = softmax(scene.max_logits(("unlabeled", 0, u)))
        second = softmax(logits(("unlabeled", 1, u)))
        gaps.append(mean([(p - q) ** 2 for p, q in zip(second, first, strict=True)]))
        weights.append(net(first))
    weighed = math.fsum(w * g for w, g in zip(weights, gaps, strict=True)) / math.fsum(weights)
    return {
        "supervised": label_risk(scene, logits),
        "agreement": unlabeled_weight * risen * weighed,
    }
