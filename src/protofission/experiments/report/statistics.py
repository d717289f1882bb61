"""Statistics over seeds: mean, spread, interval, and differences by seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Sample:
    """One quantity: a value for each seed. A value that is not there is NaN, and so is the mean."""

    values: tuple[float, ...]

    @property
    def n(self) -> int:
        """The number of seeds."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """The mean over the seeds; NaN if a seed has none, or if there is no seed."""
        return float(np.mean(self.values)) if self.n else nan

    @property
    def sd(self) -> float:
        """The sample standard deviation (ddof = 1); NaN for one seed."""
        return float(np.std(self.values, ddof=1)) if self.n > 1 else nan

    @property
    def interval(self) -> float:
        """Half of the width of Student's 95 % interval of the mean; NaN for one seed."""
        if self.n < 2:
            return nan
        return float(stdtrit(self.n - 1, (1 + CONFIDENCE) / 2)) * self.sd / sqrt(self.n)

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval."""
        return self.mean - self.interval, self.mean + self.interval

    @property
    def against_zero(self) -> str:
        """Whether the interval lies above 0, below it, or holds it."""
        low, high = self.ends
        return "above" if low > 0 else "below" if high < 0 else "not told apart"

    def times(self, factor: float) -> Sample:
        """The sample in another unit: each value times a factor."""
        return Sample(tuple(factor * value for value in self.values))


def paired_differences(first: Mapping[int, float], second: Mapping[int, float]) -> Sample:
    """Differences, first minus second, over the seeds that both have."""
    return Sample(tuple(first[seed] - second[seed] for seed in first if seed in second))
