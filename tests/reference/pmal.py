"""PMAL as it is read here, image by image."""

from __future__ import annotations

from reference.prototypes import Matrix, cosine, mean


def robustness(rows: Matrix, perturbed: list[Matrix]) -> list[float]:
    """Minus the mean squared change of a row's cosines with all rows."""
    found = []
    for i, row in enumerate(rows):
        changes = [
            (cosine(moved[i], moved[j]) - cosine(row, other)) ** 2
            for moved in perturbed
            for j, other in enumerate(rows)
        ]
        found.append(-mean(changes))
    return found


def mined(rows: Matrix, robust: list[float], number: int, share: float) -> list[int]:
    """Places of the most robust row, then of the candidates farthest from those before."""
    order = sorted(range(len(rows)), key=lambda i: -robust[i])
    candidates = order[: max(1, int(share * len(rows)))]
    chosen = [candidates[0]]
    while len(chosen) < number:
        chosen.append(min(candidates, key=lambda i: max(cosine(rows[i], rows[c]) for c in chosen)))
    return chosen
