"""A result is a finished run with its method and seed; its files are read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from protofission.training.history import Epoch
from protofission.training.predictions import Predictions
from protofission.training.run_folder import RunFolder
from protofission.training.run_metrics import RunMetrics


@dataclass(frozen=True)
class Result:
    """One finished run of a method."""

    method: str
    seed: int
    folder: RunFolder

    @cached_property
    def metrics(self) -> RunMetrics:
        """The metrics of the reported epoch."""
        return self.folder.metrics()

    @cached_property
    def history(self) -> list[Epoch]:
        """The epochs of the run."""
        return self.folder.history()

    @cached_property
    def predictions(self) -> Predictions:
        """The predictions of the reported epoch."""
        return self.folder.predictions()

    @property
    def prototypes(self) -> int:
        """V."""
        return int(self.predictions.prototypes.shape[1])


Groups = dict[str, list[Result]]
"""Results by method, methods and seeds in the order in which they came."""


def by_method(results: Sequence[Result]) -> Groups:
    """The results of each method."""
    groups: Groups = {}
    for result in results:
        groups.setdefault(result.method, []).append(result)
    return groups


def oracles(results: Sequence[Result]) -> list[str]:
    """A sentence for each method whose reported epoch was chosen by the test labels."""
    return [
        f"{name}: the epoch is the best one by the test labels, an oracle: a bound, not a result."
        for name, group in by_method(results).items()
        if any(r.folder.plain("experiment")["judging"]["select"] == "oracle" for r in group)
    ]
