"""Ramps: factors that rise from 0 to 1 in the course of training."""

from __future__ import annotations

import math


def linear_ramp(progress: float, ramp: float) -> float:
    """progress / ramp until the share `ramp` of training is over, then 1."""
    return min(progress / ramp, 1.0) if ramp else 1.0


def gaussian_ramp(progress: float, ramp: float) -> float:
    """exp(-5 (1 - progress / ramp)^2) until the share `ramp` of training is over, then 1."""
    left = max(0.0, 1 - progress / ramp) if ramp else 0.0
    return math.exp(-5 * left**2)
