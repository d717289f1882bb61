"""SimGCD, row by row."""

from __future__ import annotations

import math

from reference.contrast import class_contrast, view_contrast
from reference.methods import Key, Logits, Loss, Scene
from reference.prototypes import dot, mean
from reference.risks import cross_entropy, log_sum_exp, softmax


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def projected(
    row: list[float], weights: list[list[list[float]]], biases: list[list[float]]
) -> list[float]:
    for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        inner = [gelu(x) for x in row] if place else row
        row = [dot(inner, w) + b for w, b in zip(weight, bias, strict=True)]
    return row


def teacher_temperature(progress: float, start: float, end: float, warmup: float) -> float:
    return end if progress >= warmup else start + (end - start) * progress / warmup


def other_view(key: Key) -> Key:
    kind, view, image = key
    return kind, 1 - view, image


def risk(
    scene: Scene, logits: Logits, *, supervised: float, entropy: float, temperature: float
) -> Loss:
    """The terms of the class logits."""
    keys = scene.images(0) + scene.images(1)
    own = [cross_entropy(logits(k), scene.labels[k[2]]) for k in keys if k[0] == "labeled"]
    distilled = []
    for key in keys:
        cosines = [max(slots) for slots in scene.sims[other_view(key)]]
        teacher = softmax([z / temperature for z in cosines])
        total = log_sum_exp(logits(key))
        distilled.append(
            math.fsum(p * (total - z) for p, z in zip(teacher, logits(key), strict=True))
        )
    probs = [softmax(logits(key)) for key in keys]
    use = [mean([p[c] for p in probs]) for c in range(scene.heads)]
    return {
        "supervised": supervised * mean(own),
        "distillation": (1 - supervised) * mean(distilled),
        "entropy": (1 - supervised) * entropy * math.fsum(p * math.log(p) for p in use),
    }


def contrasts(
    scene: Scene,
    vectors: dict[Key, list[float]],
    *,
    supervised: float,
    views_temperature: float,
    class_temperature: float,
) -> Loss:
    """The terms of the projected features."""
    first, second = ([vectors[key] for key in scene.images(view)] for view in (0, 1))
    labeled = len(scene.labels)
    by_class = class_contrast(
        [*first[:labeled], *second[:labeled]], [*scene.labels, *scene.labels], class_temperature
    )
    return {
        "contrast": (1 - supervised) * view_contrast(first, second, views_temperature),
        "class_contrast": supervised * by_class,
    }
