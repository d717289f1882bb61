"""OwMatch, row by row."""

from __future__ import annotations

import math

from reference.methods import Key, Logits, Loss, Scene, best
from reference.prototypes import mean
from reference.risks import cross_entropy, softmax

Matrix = list[list[float]]


def balanced(scores: Matrix, rounds: int) -> Matrix:
    """Sinkhorn-Knopp in its plain form: columns to 1 / C, rows to 1 / M, at last rows to 1."""
    q = [[math.exp(s) for s in row] for row in scores]
    rows, columns = len(q), len(q[0])
    for _ in range(rounds):
        sums = [math.fsum(row[c] for row in q) for c in range(columns)]
        q = [[x / sums[c] / columns for c, x in enumerate(row)] for row in q]
        q = [[x / math.fsum(row) / rows for x in row] for row in q]
    return [[x / math.fsum(row) for x in row] for row in q]


def scores(scene: Scene, view: int, conditional: bool) -> Matrix:
    found = []
    for kind, _, image in scene.images(view):
        row = [max(slots) for slots in scene.sims[kind, view, image]]
        if kind == "labeled" and conditional:
            row[scene.labels[image]] = 1.0
        found.append(row)
    return found


def thresholds(
    confidence: list[float], shares: list[float], num_seen: int, lowest: float
) -> list[float]:
    """confidence: of the seen and of the novel classes."""
    found = []
    for c, share in enumerate(shares):
        group = shares[:num_seen] if c < num_seen else shares[num_seen:]
        found.append(max(lowest, confidence[c >= num_seen] * share / max(group)))
    return found


def moved(
    probs: Matrix, confidence: list[float], shares: list[float], num_seen: int, momentum: float
) -> tuple[list[float], list[float]]:
    """The running means after a batch."""
    confidence, shares = list(confidence), list(shares)
    for group in (0, 1):
        rows = [p for p in probs if (best(p)[1] >= num_seen) == bool(group)]
        if not rows:
            continue
        kept = momentum * confidence[group]
        confidence[group] = kept + (1 - momentum) * mean([max(p) for p in rows])
        for c in range(len(shares)):
            if (c >= num_seen) == bool(group):
                shares[c] = momentum * shares[c] + (1 - momentum) * mean([p[c] for p in rows])
    return confidence, shares


def codes(
    scene: Scene,
    earlier: list[Matrix],
    *,
    sharpness: float,
    rounds: int,
    queue: int,
    conditional: bool,
) -> dict[Key, list[float]]:
    """What each weak view learns: the self-label by the other."""
    found: dict[Key, list[float]] = {}
    for view in (0, 1):
        new = scores(scene, view, conditional)
        room = max(queue - len(new), 0)
        rows = (earlier[view][-room:] if room else []) + new
        made = balanced([[s / sharpness for s in row] for row in rows], rounds)[-len(new) :]
        for (kind, _, image), code in zip(scene.images(view), made, strict=True):
            found[kind, 1 - view, image] = code
    return found


def loss(
    scene: Scene,
    logits: Logits,
    found: dict[Key, list[float]],
    limits: list[float],
    *,
    self_label_weight: float,
    pseudo_weight: float,
) -> Loss:
    own = [cross_entropy(logits(("labeled", 0, i)), y) for i, y in enumerate(scene.labels)]
    labels = [
        math.fsum(q * cross_entropy(logits(key), c) for c, q in enumerate(code))
        for key, code in found.items()
    ]
    pseudo = []
    for kind, _, image in scene.images(2):
        confidence, head = best(softmax(scene.max_logits((kind, 1, image))))
        risk = cross_entropy(logits((kind, 2, image)), head)
        pseudo.append(risk if confidence > limits[head] else 0.0)
    return {
        "supervised": mean(own),
        "self_labels": self_label_weight * mean(labels),
        "pseudo": pseudo_weight * mean(pseudo),
    }
