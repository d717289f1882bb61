"""Activations and the risks that belong to them, one row of C logits at a time."""

from __future__ import annotations

import math


def log_sum_exp(values: list[float]) -> float:
    top = max(values)
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def softmax(logits: list[float]) -> list[float]:
    total = log_sum_exp(logits)
    return [math.exp(z - total) for z in logits]


def cross_entropy(logits: list[float], label: int) -> float:
    return log_sum_exp(logits) - logits[label]


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def binary(z: float, positive: bool) -> float:
    """-log sigmoid(z) for a positive, -log(1 - sigmoid(z)) for a negative."""
    signed = -z if positive else z
    return max(signed, 0.0) + math.log1p(math.exp(-abs(signed)))


def one_vs_all(logits: list[float], label: int | None, reduction: str = "sum") -> float:
    """The binary risks of all classes; Eq. 9 where the label is None: every class a negative."""
    parts = [binary(z, c == label) for c, z in enumerate(logits)]
    return math.fsum(parts) / (len(parts) if reduction == "mean" else 1)
