"""CPL, RPL and ARPL image by image: distances, sums and logarithms of single numbers."""

from __future__ import annotations

import math

Vector = list[float]


def squared(a: Vector, b: Vector) -> float:
    return math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def cpl(
    features: list[Vector],
    labels: list[int],
    prototypes: list[list[Vector]],
    temperature: float,
    offset: float,
    prototype_weight: float,
) -> dict[str, float]:
    """-log of the own prototypes' share of all exp(-T |f - p|^2 / D); the nearest's distance."""
    distance = nearest = 0.0
    for f, y in zip(features, labels, strict=True):
        scale = temperature / len(f)
        shares = [
            math.fsum(math.exp(-scale * squared(f, p) - offset) for p in own) for own in prototypes
        ]
        distance -= math.log(shares[y] / math.fsum(shares)) / len(labels)
        nearest += min(squared(f, p) for p in prototypes[y]) / len(labels)
    return {"distance": distance, "prototype": prototype_weight * nearest}


def reciprocal(
    features: list[Vector],
    labels: list[int],
    points: list[Vector],
    radius: list[float],
    temperature: float,
    open_weight: float,
    margin: float | None,
) -> dict[str, float]:
    """RPL; with a margin, ARPL."""
    risk = charged = 0.0
    for f, y in zip(features, labels, strict=True):
        far = [squared(f, r) / len(f) for r in points]
        dots = [math.fsum(a * b for a, b in zip(f, r, strict=True)) for r in points]
        sims = far if margin is None else [d - a for d, a in zip(far, dots, strict=True)]
        shares = [math.exp(temperature * (s - max(sims))) for s in sims]
        risk -= math.log(shares[y] / math.fsum(shares)) / len(labels)
        own = radius[y] if len(radius) > 1 else radius[0]
        if margin is None:
            charged += (far[y] - own) ** 2 / len(labels)
        else:
            charged += max(far[y] - own + margin, 0.0) / len(labels)
    return {"reciprocal": risk, "open_space": open_weight * charged}
