"""ProtoGCD, row by row; the terms that it shares with SimGCD are in simgcd.py."""

from __future__ import annotations

import math

from reference.methods import Key, Logits, Scene
from reference.prototypes import cosine, mean
from reference.risks import log_sum_exp, softmax
from reference.simgcd import other_view


def share_at(progress: float, start: float, end: float, ramp: float) -> float:
    return end if progress >= ramp else start + (end - start) * progress / ramp


def teachers(scene: Scene, share: float, temperature: float) -> dict[Key, list[float]]:
    """What each row teaches: by its first probability over its second, view by view."""
    found = {}
    for view in (0, 1):
        rows = {key: [max(slots) for slots in scene.sims[key]] for key in scene.images(view)}
        soft = {key: softmax([z / temperature for z in row]) for key, row in rows.items()}

        def ratio(key: Key, soft: dict[Key, list[float]] = soft) -> float:
            second, first = sorted(soft[key])[-2:]
            return first / second

        surest = sorted(rows, key=ratio, reverse=True)[: int(share * len(rows))]
        for key, probs in soft.items():
            top = probs.index(max(probs))
            hard = [float(c == top) for c in range(len(probs))]
            found[key] = hard if key in surest else probs
    return found


def distillation(scene: Scene, logits: Logits, taught: dict[Key, list[float]]) -> float:
    rows = []
    for key in scene.images(0) + scene.images(1):
        teacher, own = taught[other_view(key)], logits(key)
        total = log_sum_exp(own)
        rows.append(math.fsum(p * (total - z) for p, z in zip(teacher, own, strict=True)))
    return mean(rows)


def separation(prototypes: list[list[list[float]]], temperature: float) -> float:
    """prototypes: by class and slot."""
    rows = []
    for c, own in enumerate(prototypes):
        for mine in own:
            others = [p for k, slots in enumerate(prototypes) if k != c for p in slots]
            rows.append(math.log(mean([math.exp(cosine(mine, p) / temperature) for p in others])))
    return mean(rows)
