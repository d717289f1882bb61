"""DTC's loss, image by image."""

from __future__ import annotations

import math

from reference.methods import Classes, Logits, Loss, Scene, best
from reference.prototypes import dot, mean
from reference.risks import cross_entropy, softmax


def sharpened(probs: list[float], shares: list[float]) -> list[float]:
    """q^2 / f, made to sum to 1."""
    weights = [q * q / f for q, f in zip(probs, shares, strict=True)]
    return [w / math.fsum(weights) for w in weights]


def risen(progress: float, ramp: float) -> float:
    return 1.0 if progress >= ramp else math.exp(-5 * (1 - progress / ramp) ** 2)


def dtc(
    scene: Scene,
    logits: Logits,
    *,
    progress: float,
    view_weight: float = 10.0,
    ramp: float = 0.05,
    transfer_share: float = 0.5,
) -> Loss:
    """KL of the sharpened q of the max-logits from these logits' q, and the gap of two views.

    Neither in the first stage, where there are no clusters yet.
    """
    if progress < transfer_share:
        return {"clusters": 0.0, "views": 0.0}
    within = (progress - transfer_share) / (1 - transfer_share)
    divergences, gaps = [], []
    probs = [softmax(scene.max_logits(key)) for key in scene.images(0)]
    shares = [mean([q[c] for q in probs]) for c in range(scene.heads)]
    for first, second in zip(scene.images(0), scene.images(1), strict=True):
        aim = sharpened(softmax(scene.max_logits(first)), shares)
        own, other = softmax(logits(first)), softmax(scene.max_logits(second))
        divergences += [p * math.log(p / q) for p, q in zip(aim, own, strict=True)]
        gaps += [(q - r) ** 2 for q, r in zip(own, other, strict=True)]
    return {
        "clusters": mean(divergences),
        "views": view_weight * risen(within, ramp) * mean(gaps),
    }


def transfer(
    scene: Scene,
    weight: list[list[float]],
    bias: list[float],
    *,
    progress: float,
    transfer_share: float = 0.5,
) -> float:
    """The cross entropy of the labels on a linear layer over the features of view 1.

    In the first stage only.
    """
    if progress >= transfer_share:
        return 0.0
    risks = []
    for i, y in enumerate(scene.labels):
        row = scene.features["labeled", 0, i]
        scores = [dot(row, w) + b for w, b in zip(weight, bias, strict=True)]
        risks.append(cross_entropy(scores, y))
    return mean(risks)


def dtc_classes(
    scene: Scene, *, progress: float, transfer_share: float = 0.5, hard_threshold: float = 0.95
) -> Classes:
    """The cluster of every row that is sure of one, once there are any; the labels name none."""
    if progress < transfer_share:
        return dict.fromkeys(scene.sims)
    classes: Classes = {}
    for key in scene.sims:
        confidence, head = best(softmax(scene.max_logits(key)))
        classes[key] = head if confidence >= hard_threshold else None
    return classes
