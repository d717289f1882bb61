"""How a term comes to count in the course of training."""

from __future__ import annotations

import math


def risen(progress: float, ramp: float) -> float:
    """exp(-5 (1 - progress / ramp)^2) until the share `ramp` of training is over, then 1."""
    left = max(0.0, 1 - progress / ramp) if ramp else 0.0
    return math.exp(-5 * left**2)
