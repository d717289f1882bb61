"""Contrast of vectors, pair by pair."""

from __future__ import annotations

from reference.prototypes import cosine, mean
from reference.risks import log_sum_exp


def class_contrast(
    vectors: list[list[float]], classes: list[int | None], temperature: float
) -> float:
    """Mean over vectors with a partner of the mean over partners of -log their share."""
    rows = []
    for i, mine in enumerate(classes):
        others = [j for j, c in enumerate(classes) if c is not None and j != i]
        partners = [j for j in others if mine is not None and classes[j] == mine]
        if partners:
            logits = {j: cosine(vectors[i], vectors[j]) / temperature for j in others}
            total = log_sum_exp(list(logits.values()))
            rows.append(mean([total - logits[j] for j in partners]))
    return mean(rows) if rows else 0.0


def view_contrast(first: list[list[float]], second: list[list[float]], temperature: float) -> float:
    """Each vector's partner is the other view of its image."""
    return class_contrast([*first, *second], [*range(len(first))] * 2, temperature)
