"""A small net, and a step of a linear head down a loss: slopes by differences, weight by weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reference.methods import Key, Logits, Loss, Scene
from reference.prototypes import Matrix, Vector, dot, mean
from reference.risks import cross_entropy, sigmoid


@dataclass
class Net:
    """x to sigmoid(v relu(W x + a) + b)."""

    hidden: Matrix
    hidden_bias: Vector
    weight: Vector
    bias: float

    def __call__(self, row: Vector) -> float:
        first = zip(self.hidden, self.hidden_bias, strict=True)
        return sigmoid(dot([max(dot(row, w) + a, 0.0) for w, a in first], self.weight) + self.bias)


def label_risk(scene: Scene, logits: Logits) -> float:
    return mean([cross_entropy(logits(("labeled", 0, i)), y) for i, y in enumerate(scene.labels)])


def outer(
    scene: Scene,
    weight: Matrix,
    bias: Vector,
    loss: Callable[[Logits], Loss],
    rate: float,
    width: float = 1e-5,
) -> float:
    """The risk of the labels once every weight has gone `rate` times its slope down the loss."""
    rows = [*weight, bias]

    def logits_of(rows: Matrix) -> Logits:
        def logits(key: Key) -> Vector:
            return [
                dot(scene.features[key], w) + b for w, b in zip(rows[:-1], rows[-1], strict=True)
            ]

        return logits

    def moved(row: int, place: int, by: float) -> Matrix:
        changed = [list(values) for values in rows]
        changed[row][place] += by
        return changed

    def slope(row: int, place: int) -> float:
        above, below = (
            sum(loss(logits_of(moved(row, place, by))).values()) for by in (width, -width)
        )
        return (above - below) / (2 * width)

    after = [
        [value - rate * slope(row, place) for place, value in enumerate(values)]
        for row, values in enumerate(rows)
    ]
    return label_risk(scene, logits_of(after))
