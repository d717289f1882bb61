"""Squared Euclidean distances between rows."""

from __future__ import annotations

from torch import Tensor


def squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    """(N, K): |row - other|^2 of (N, D) and (K, D) by one matrix product, never below 0.

    Both are first centered at the mean of the others: far from it, differences of large squares
    lose digits.
    """
    middle = others.mean(0)
    rows, others = rows - middle, others - middle
    squares = rows.square().sum(-1, keepdim=True) + others.square().sum(-1)
    return (squares - 2 * rows @ others.T).clamp_min(0)
