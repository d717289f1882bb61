"""T2T, image by image, with every wrong class in the place of a drawn one."""

from __future__ import annotations

import math

from reference.methods import Scene, best, nt_xent
from reference.prototypes import dot, mean
from reference.risks import cross_entropy, log_sum_exp, softmax

Weights = dict[str, list]


def linear(weights: Weights, name: str, row: list[float]) -> list[float]:
    lines = zip(weights[f"{name}.weight"], weights[f"{name}.bias"], strict=True)
    return [dot(line, row) + bias for line, bias in lines]


def match(weights: Weights, features: list[float], c: int) -> float:
    """The probability that an image matches class c."""
    hidden = zip(linear(weights, "images", features), weights["classes"][c], strict=True)
    (score,) = linear(weights, "score", [max(a + b, 0.0) for a, b in hidden])
    return 1 / (1 + math.exp(-score))


def binary(p: float, target: float) -> float:
    return -(target * math.log(p) + (1 - target) * math.log(1 - p))


def strength(progress: float, warmup: float, ramp: float) -> float:
    if progress < warmup:
        return 0.0
    return min(1.0, (progress - warmup) / ramp) if ramp else 1.0


def t2t(
    scene: Scene,
    weights: Weights,
    limit: float,
    *,
    progress: float,
    threshold: float,
    sharpen_temperature: float,
    matching_weight: float,
    doubt_weight: float,
    agreement_weight: float,
    pretext_weight: float,
    pretext_temperature: float,
    warmup: float,
    ramp: float,
    hidden: int,
) -> dict[str, float]:
    risks, matching, doubts, agreements = [], [], [], []
    heads = range(scene.heads)
    share = strength(progress, warmup, ramp)
    for i, y in enumerate(scene.labels):
        logits, features = scene.max_logits(("labeled", 0, i)), scene.features["labeled", 0, i]
        risks.append(cross_entropy(logits, y))
        wrong = sorted((c for c in heads if c != y), key=lambda c: -logits[c])
        chance = [match(weights, features, c) for c in heads]
        easy = [binary(chance[c], 0) for c in wrong[1:]]
        pairs = [binary(chance[y], 1), binary(chance[wrong[0]], 0), mean(easy) if easy else 0.0]
        matching.append(sum(pairs) / 3)
    views: list[list[list[float]]] = [[], []]
    for u in range(scene.unlabeled):
        weak, strong = (scene.max_logits(("unlabeled", view, u)) for view in (0, 1))
        confidence, top = best(softmax(weak))
        chance = [match(weights, scene.features["unlabeled", 0, u], c) for c in heads]
        entropy = [binary(p, p) for p in chance]
        rest = mean([entropy[c] for c in heads if c != top])
        doubts.append((entropy[top] + rest) / 2)
        if share and confidence >= threshold and chance[top] > limit:
            target = softmax([z / sharpen_temperature for z in weak])
            logs = [z - log_sum_exp(strong) for z in strong]
            agreements.append(
                sum(p * (math.log(p) - q) for p, q in zip(target, logs, strict=True) if p > 0)
            )
        for view in (0, 1):
            row = scene.features["unlabeled", view, u]
            views[view].append(linear(weights, "projection", row))
    return {
        "supervised": mean(risks),
        "agreement": share * agreement_weight * (mean(agreements) if agreements else 0.0),
        "matching": matching_weight * mean(matching),
        "doubt": share * doubt_weight * mean(doubts),
        "pretext": pretext_weight * nt_xent(*views, pretext_temperature),
    }


def otsu(values: list[float]) -> float:
    """Every cut is tried."""

    def between(cut: float) -> float:
        low, high = [v for v in values if v <= cut], [v for v in values if v > cut]
        return len(low) * len(high) * (mean(high) - mean(low)) ** 2

    return max(sorted(set(values))[:-1], key=between)
