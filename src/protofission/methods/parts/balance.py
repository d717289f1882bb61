"""Sinkhorn-Knopp: assignments that use all columns alike."""

from __future__ import annotations

from torch import Tensor


def balance(scores: Tensor, rounds: int) -> Tensor:
    """(M, C): exp(scores) scaled by row and by column until all columns have the same sum.

    Rows come last in a round, so that each sums to 1 exactly (Sinkhorn-Knopp).
    """
    for _ in range(rounds):
        scores = scores.log_softmax(0)
        scores = scores.log_softmax(1)
    return scores.exp()
