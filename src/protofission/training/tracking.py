"""Trackers of runs: TensorBoard or MLflow, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from protofission.core.errors import unknown
from protofission.training.history import Epoch
from protofission.training.mlflow import MlflowTracker
from protofission.training.run_folder import RunFolder
from protofission.training.tensorboard import Tracker

TrackerName = Literal["tensorboard", "mlflow"]


class EpochTracker(Protocol):
    """Gets the epochs of a run."""

    def add(self, epoch: Epoch) -> None:
        """Write an epoch."""

    def finish(self) -> None:
        """Write what is left, after the last epoch."""


TRACKERS: dict[str, Callable[[RunFolder], EpochTracker]] = {
    "tensorboard": Tracker,
    "mlflow": MlflowTracker,
}


def find_tracker(name: str | None, folder: RunFolder) -> EpochTracker | None:
    """The tracker of a name for the run of a folder; None for no name.

    Raises:
        InputError: there is none of that name, or its library is missing.
    """
    if not name:
        return None
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)
    return TRACKERS[name](folder)
