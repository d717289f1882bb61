"""IOMatch, image by image."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reference.methods import Logits, Loss, Scene, supervised
from reference.openmatch import answers, ova_loss
from reference.prototypes import Matrix, Vector, dot, mean
from reference.risks import softmax


@dataclass
class Net:
    """The projection of two layers, and the two heads on it."""

    hidden: Matrix
    hidden_bias: Vector
    projection: Matrix
    projection_bias: Vector
    binary: list[Matrix]
    opened: Matrix
    open_bias: Vector

    def projected(self, row: Vector) -> Vector:
        layer = zip(self.hidden, self.hidden_bias, strict=True)
        hidden = [max(dot(row, w) + b, 0.0) for w, b in layer]
        last = zip(self.projection, self.projection_bias, strict=True)
        return [dot(hidden, w) + b for w, b in last]

    def open_logits(self, row: Vector) -> Vector:
        projected = self.projected(row)
        return [dot(projected, w) + b for w, b in zip(self.opened, self.open_bias, strict=True)]


def soft_cross_entropy(logits: Vector, target: Vector) -> float:
    return -math.fsum(t * math.log(p) for t, p in zip(target, softmax(logits), strict=True))


def aligned(probs: Vector, usual: Vector) -> Vector:
    divided = [p / u for p, u in zip(probs, usual, strict=True)]
    return [d / math.fsum(divided) for d in divided]


def iomatch(
    scene: Scene,
    logits: Logits,
    net: Net,
    recent: Matrix,
    *,
    progress: float,
    p_cut: float,
    q_cut: float,
    outlier_below: float,
    align: bool,
    align_batches: int,
    width: int,
    open_warmup: float,
    unlabeled_weight: float,
    binary_weight: float,
    open_weight: float,
) -> Loss:
    """`recent` holds the mean probabilities of the batches before this one, oldest first."""
    pool = range(scene.unlabeled)
    probs = [softmax(scene.max_logits(("unlabeled", 0, u))) for u in pool]
    last = [*recent, [mean(list(column)) for column in zip(*probs, strict=True)]][-align_batches:]
    usual = [mean(list(column)) for column in zip(*last, strict=True)]
    pseudo = opened = 0.0
    for u in pool:
        closed = aligned(probs[u], usual) if align else probs[u]
        said = answers(net.projected(scene.features["unlabeled", 0, u]), net.binary)
        outlier = math.fsum(p * outside for p, (_, outside) in zip(closed, said, strict=True))
        target = [p * inside for p, (inside, _) in zip(closed, said, strict=True)] + [outlier]
        if max(closed) >= p_cut and outlier < outlier_below:
            pseudo += soft_cross_entropy(logits(("unlabeled", 1, u)), closed)
        if max(target) >= q_cut and progress >= open_warmup:
            strong = net.open_logits(scene.features["unlabeled", 1, u])
            opened += soft_cross_entropy(strong, target)
    labeled = [
        ova_loss(answers(net.projected(scene.features["labeled", 0, i]), net.binary), y)
        for i, y in enumerate(scene.labels)
    ]
    return {
        **supervised(scene, logits),
        "pseudo": unlabeled_weight * pseudo / scene.unlabeled,
        "binary": binary_weight * mean(labeled),
        "open": open_weight * opened / scene.unlabeled,
    }
