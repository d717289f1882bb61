"""OOD scores of one image from the logits and probabilities of its ID heads; higher is more OOD."""

from __future__ import annotations

import math


def max_probability(logits: list[float], probs: list[float]) -> float:
    return min(1 - p for p in probs)


def max_logit(logits: list[float], probs: list[float]) -> float:
    return min(-z for z in logits)


def energy(logits: list[float], probs: list[float]) -> float:
    return -math.log(math.fsum(math.exp(z) for z in logits))


def entropy(logits: list[float], probs: list[float]) -> float:
    whole = math.fsum(probs)
    return math.fsum(p / whole * math.log(whole / p) for p in probs if p > 0)


def lack_of_mass(logits: list[float], probs: list[float]) -> float:
    return 1 - math.fsum(probs)
