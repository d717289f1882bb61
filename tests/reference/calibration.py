"""Calibration by trying every temperature, by counting images and by binomial sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations


def log_loss(logits: list[list[float]], labels: list[int], temperature: float) -> float:
    """Mean negative log likelihood of softmax(logits / T)."""
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        tempered = [value / temperature for value in row]
        top = max(tempered)
        total += top + math.log(sum(math.exp(v - top) for v in tempered)) - tempered[label]
    return total / len(labels)


def best_temperature(logits: list[list[float]], labels: list[int], steps: int) -> float:
    """The best T of a geometric grid over 0.5 ... 20."""
    grid = [0.5 * 40 ** (step / steps) for step in range(steps + 1)]
    return min(grid, key=lambda temperature: log_loss(logits, labels, temperature))


def expected_calibration_error(probs: list[list[float]], labels: list[int], bins: int) -> float:
    error = 0.0
    for place in range(bins):
        inside = [
            (max(row), row.index(max(row)) == label)
            for row, label in zip(probs, labels, strict=True)
            if place / bins < max(row) <= (place + 1) / bins
        ]
        if inside:
            confidence = sum(top for top, _ in inside) / len(inside)
            right = sum(hit for _, hit in inside) / len(inside)
            error += len(inside) / len(labels) * abs(confidence - right)
    return error


def rank(n: int, keep: str) -> int:
    """The most k with k <= (n + 1)(1 - keep), in fractions."""
    return max(k for k in range(n + 1) if k <= (n + 1) * (1 - Fraction(keep)))


def at_most(successes: int, trials: int, chance: float) -> float:
    """P(Binomial(trials, chance) <= successes)."""
    return sum(
        math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for k in range(successes + 1)
    )


def crossing(falling: Callable[[float], float], level: float) -> float:
    """Where a falling function of 0 ... 1 passes a level."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > level else (low, middle)
    return low


def at_least(n: int, k: int, confidence: float) -> float:
    """The share a with P(share above the k-th lowest of n uniforms >= a) = confidence.

    That share is at least a if at least k of n fall into the lowest 1 - a.
    """
    return crossing(lambda a: 1 - at_most(k - 1, n, 1 - a), confidence)


def clopper_pearson(successes: int, trials: int) -> tuple[float, float]:
    """The chances at which so many, or so few, are seen in 2.5 %."""
    low = crossing(lambda p: at_most(successes - 1, trials, p), 0.975) if successes else 0.0
    high = crossing(lambda p: at_most(successes, trials, p), 0.025) if successes < trials else 1.0
    return low, high


def gap(first: list[float], second: list[float]) -> float:
    """The widest gap between two empirical distributions."""
    return max(
        abs(
            sum(v <= value for v in first) / len(first)
            - sum(v <= value for v in second) / len(second)
        )
        for value in first + second
    )


def gap_p_value(first: list[float], second: list[float]) -> float:
    """The share of all divisions of the values into two such samples with as wide a gap."""
    values, seen = first + second, gap(first, second)
    places = range(len(values))
    wide = [
        gap([values[i] for i in own], [values[i] for i in places if i not in own]) > seen - 1e-12
        for own in combinations(places, len(first))
    ]
    return sum(wide) / len(wide)


def ood_share(known: list[float], pool: list[float]) -> float:
    """One minus the known part that the images from the upper half of known scores on suggest."""
    level = sorted(known, reverse=True)[(len(known) + 1) // 2 - 1]
    chance = sum(score >= level for score in known) / (len(known) + 1)
    part = sum(score >= level for score in pool) / len(pool) / chance
    return min(max(1 - part, 0.0), 1.0)
