"""Eqs. 1-8 of docs/method.md, one number at a time.

Rows, classes, slots and features are nested lists; a row without a class has the class None.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Vector = list[float]
Matrix = list[Vector]


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def unit(a: Vector) -> Vector:
    length = math.sqrt(dot(a, a))
    return [x / length for x in a] if length > 0 else [0.0 for _ in a]


def cosine(a: Vector, b: Vector) -> float:
    return dot(unit(a), unit(b))


def squared_distance(a: Vector, b: Vector) -> float:
    return math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def mixing(delta: float) -> float:
    """Eq. 2."""
    return (math.tanh(delta) + 1) / 2


def combine(g: Matrix, l: list[Matrix], delta: Matrix) -> list[Matrix]:
    """Eq. 1: p[c][i][d]."""
    prototypes: list[Matrix] = []
    for c in range(len(g)):
        slots = []
        for i in range(len(l[c])):
            lam = mixing(delta[c][i])
            shared, own = unit(g[c]), unit(l[c][i])
            slots.append([(1 - lam) * s + lam * o for s, o in zip(shared, own, strict=True)])
        prototypes.append(slots)
    return prototypes


def similarity(f: Vector, p: Vector, kind: str = "cosine", root: Matrix | None = None) -> float:
    """sim of Eq. 3: the cosine, or 1 - d^2 / 2 with the Euclidean or the Mahalanobis distance d."""
    if kind == "cosine":
        return cosine(f, p)
    gap = [x - y for x, y in zip(f, p, strict=True)]
    if kind == "mahalanobis":
        assert root is not None
        gap = [dot([row[k] for row in root], gap) for k in range(len(root[0]))]  # W^T (f - p)
    return 1 - dot(gap, gap) / 2


def similarities(
    f: Vector, prototypes: list[Matrix], kind: str = "cosine", root: Matrix | None = None
) -> Matrix:
    """One row's sim[c][i]."""
    return [[similarity(f, p, kind, root) for p in slots] for slots in prototypes]


def max_logit(sims: Matrix) -> Vector:
    """Eq. 3: the best slot of each class."""
    return [max(slots) for slots in sims]


def local_diversity(l: list[Matrix], reduction: str = "mean") -> float:
    """Eq. 4: pair by pair; a class's mean or sum, then the mean over classes."""
    per_class = []
    for slots in l:
        pairs = [
            cosine(a, b) for i, a in enumerate(slots) for j, b in enumerate(slots) if i != j
        ] or [0.0]
        per_class.append(mean(pairs) if reduction == "mean" else math.fsum(pairs))
    return mean(per_class)


def assignment(own_sims: Vector, temperature: float = 10.0) -> Vector:
    """Eq. 5, from the similarities to the slots of the row's own class."""
    top = max(own_sims)
    weights = [math.exp(temperature * (s - top)) for s in own_sims]
    return [w / math.fsum(weights) for w in weights]


def kl(p: Vector, q: Vector | None = None) -> float:
    """KL(p || q), q uniform where none; 0 log 0 is 0."""
    q = [1 / len(p)] * len(p) if q is None else q
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def usage(assigned: Matrix, labels: list[int | None], c: int) -> tuple[Vector, int]:
    """The mean of A(x) over class c, and the number of its rows."""
    members = [row for row, label in zip(assigned, labels, strict=True) if label == c]
    if not members:
        return [], 0
    return [mean([row[i] for row in members]) for i in range(len(members[0]))], len(members)


def diversity(
    assigned: Matrix,
    labels: list[int | None],
    num_classes: int,
    prior: Vector | Matrix | None = None,
    reduce: str = "batch_mean",
    min_samples: int = 1,
) -> float:
    """Eq. 6 over the classes with at least `min_samples` rows; 0 where there is none."""
    found = []
    for c in range(num_classes):
        members = [row for row, label in zip(assigned, labels, strict=True) if label == c]
        if len(members) < max(min_samples, 1):
            continue
        own = prior[c] if prior is not None and isinstance(prior[0], list) else prior
        if reduce == "batch_mean":
            found.append(kl(usage(assigned, labels, c)[0], own))
        else:
            found.append(mean([kl(row, own) for row in members]))
    return mean(found) if found else 0.0


def consistency(risk: Callable[[Matrix], float], slot_logits: list[Matrix]) -> float:
    """Eq. 7: the mean over slots of the risk of the (N, C) logits of that slot."""
    slots = len(slot_logits[0][0])
    return mean([risk([[own[i] for own in row] for row in slot_logits]) for i in range(slots)])


def overall(
    risk: Callable[[Matrix], float],
    sims: list[Matrix],
    labels: list[int | None],
    *,
    temperature: float,
    offset: float,
    diversity_weight: float,
    consistency_weight: float,
    assign_temperature: float = 10.0,
    prior: Vector | None = None,
) -> float:
    """Eq. 8."""
    tempered = [[[temperature * s - offset for s in slots] for slots in row] for row in sims]
    assigned = [
        assignment(row[label or 0], assign_temperature)
        for row, label in zip(sims, labels, strict=True)
    ]
    return (
        risk([max_logit(row) for row in tempered])
        + diversity_weight * diversity(assigned, labels, len(sims[0]), prior)
        + consistency_weight * consistency(risk, tempered)
    )
