"""Checks of arrays of scores, and of shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from protofission.core.array_types import Floats
from protofission.core.errors import require


def check_scores(values: ArrayLike, kind: str) -> Floats:
    """Return (n,) scores as float64; refuse NaN and other shapes."""
    scores = np.asarray(values, float)
    require(scores.ndim == 1, f"The {kind} scores are of shape {scores.shape}: give one an image.")
    bad = int(np.isnan(scores).sum())
    require(bad == 0, f"{bad} of {len(scores)} {kind} scores are NaN: leave these images out.")
    return scores


def check_shares(**shares: float) -> None:
    """Refuse shares, by their names, that are not between 0 and 1."""
    for name, share in shares.items():
        require(0 < share < 1, f"{name} = {share} must be above 0 and below 1.")
