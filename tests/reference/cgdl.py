"""CGDL's ladder, number by number."""

from __future__ import annotations

import math

from reference.prototypes import dot, mean
from reference.risks import cross_entropy

Row = list[float]
Weights = dict[str, list]
Gauss = list[tuple[float, float]]
"""Mean and variance of each coordinate."""


def linear(weights: Weights, name: str, row: Row) -> Row:
    lines = zip(weights[f"{name}.weight"], weights[f"{name}.bias"], strict=True)
    return [dot(line, row) + bias for line, bias in lines]


def rectified(row: Row) -> Row:
    return [max(x, 0.0) for x in row]


def gauss(sides: Row) -> Gauss:
    half = len(sides) // 2
    return [
        (m, math.log1p(math.exp(v)) + 1e-6) for m, v in zip(sides[:half], sides[half:], strict=True)
    ]


def point(own: Gauss, noise: Row) -> Row:
    return [m + math.sqrt(v) * e for (m, v), e in zip(own, noise, strict=True)]


def kl(own: Gauss, prior: Gauss) -> float:
    return sum(
        0.5 * (math.log(w / v) + (v + (m - n) ** 2) / w - 1)
        for (m, v), (n, w) in zip(own, prior, strict=True)
    )


def product(first: Gauss, second: Gauss) -> Gauss:
    both = zip(first, second, strict=True)
    return [((m * w + n * v) / (v + w), v * w / (v + w)) for (m, v), (n, w) in both]


def climb(weights: Weights, row: Row, noise: tuple[Row, Row]) -> tuple[Gauss, Row, float, Row]:
    """The upper latent, a point of it, the lower latent's divergence, and the row rebuilt."""
    first = rectified(linear(weights, "up", row))
    top = gauss(linear(weights, "up_top", rectified(linear(weights, "up_again", first))))
    latent = point(top, noise[0])
    prior = gauss(linear(weights, "down_step", rectified(linear(weights, "down", latent))))
    step = product(gauss(linear(weights, "up_step", first)), prior)
    lower = point(step, noise[1])
    rebuilt = linear(weights, "rebuild", rectified(linear(weights, "down_again", lower)))
    return top, latent, kl(step, prior), rebuilt


def losses(
    weights: Weights, rows: list[Row], labels: list[int], noise: list[list[Row]]
) -> dict[str, float]:
    """Unweighted; `rows` are standardised."""
    known, errors, apart = [], [], []
    for i, (row, y) in enumerate(zip(rows, labels, strict=True)):
        top, latent, lower, rebuilt = climb(weights, row, (noise[0][i], noise[1][i]))
        known.append(cross_entropy(linear(weights, "classify", latent), y))
        errors.append(sum((a - b) ** 2 for a, b in zip(row, rebuilt, strict=True)))
        apart.append(kl(top, [(m, 1.0) for m in weights["class_means"][y]]) + lower)
    return {"latent": mean(known), "reconstruction": mean(errors), "divergence": mean(apart)}
