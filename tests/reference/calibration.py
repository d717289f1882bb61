"""Calibration by trying every temperature, by counting images and by binomial sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, pairwise


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


def cross_rank(scores: list[float], folds: list[int], new: list[float]) -> int:
    """Labels that score no higher than a new image, each by the model of its fold."""
    return sum(score <= new[fold] for score, fold in zip(scores, folds, strict=True))


def cross_id_score(
    scores: list[float], folds: list[int], reference: list[list[float]], new: list[float]
) -> float:
    """Rank first, then the mean of scores standardized by the reference images."""
    total = 0.0
    for model, score in enumerate(new):
        column = sorted(row[model] for row in reference)
        half = len(column) // 2
        median = column[half] if len(column) % 2 else (column[half - 1] + column[half]) / 2
        deviation = sum(abs(value - median) for value in column) / len(column)
        total += (score - median) / (deviation or 1.0)
    mean = total / len(new)
    within = 0.5 + 0.375 * mean / (1 + abs(mean))
    return (cross_rank(scores, folds, new) + within) / (len(scores) + 1)


def normal_above(value: float) -> float:
    """P(N(0, 1) <= value)."""
    return math.erfc(-value / math.sqrt(2)) / 2


def known_above(level: float, share: float, distance: float, width: float) -> float:
    """The known part above a level of the pool, if strangers are N(-distance, width^2)."""

    def pool_below(chance: float) -> float:
        bound = 10 * (2 * chance - 1)  # falls from 10 to -10 as the argument of `crossing` falls
        return (1 - share) * normal_above(-bound) + share * normal_above(
            (-bound - distance) / width
        )

    return normal_above(-10 * (2 * crossing(pool_below, level) - 1))


def share_log_likelihood(
    places: list[float], images: int, levels: list[float], shape: tuple[float, float, float]
) -> float:
    """Negative binomial log likelihood of labels counted between levels of the pool."""
    ends = [0.0, *[level for level in levels if level * images >= 2], 1.0]
    total = 0.0
    for low, high in pairwise(ends):
        count = sum(low <= place < high for place in places)
        size = images * (high - low)
        above = [known_above(end, *shape) if 0 < end < 1 else end for end in (low, high)]
        mean = len(places) * (above[1] - above[0])
        total += (
            math.lgamma(count + size) - math.lgamma(size) - math.lgamma(count + 1)
            + size * math.log(size / (size + mean)) + count * math.log(mean / (size + mean))
        )  # fmt: skip
    return total
