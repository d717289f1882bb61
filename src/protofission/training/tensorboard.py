"""Curves of a run for TensorBoard."""

from __future__ import annotations

from typing import Any

from protofission.system.optional_libraries import import_optional
from protofission.training.history import Epoch
from protofission.training.run_folder import RunFolder


class Tracker:
    """Writes the curves of a run into its folder's `tensorboard`."""

    def __init__(self, folder: RunFolder) -> None:
        import_optional("tensorboard", "track", "--track")
        from torch.utils.tensorboard import SummaryWriter

        self._folder = folder
        self._kind: Any = SummaryWriter
        self._writer: Any = None

    def add(self, epoch: Epoch) -> None:
        """Write an epoch; the first call drops what a killed run wrote beyond its saved state."""
        if self._writer is None:
            place = self._folder.path / "tensorboard"
            self._writer = self._kind(str(place), purge_step=epoch.epoch)
        for name, value in curve_values(epoch).items():
            self._writer.add_scalar(name, value, epoch.epoch)
        self._writer.flush()

    def finish(self) -> None:
        """Close the file of curves."""
        if self._writer is not None:
            self._writer.close()


def curve_values(epoch: Epoch) -> dict[str, float]:
    """The numbers of an epoch, by the names of their curves."""
    found = {"loss": epoch.loss, "learning_rate": epoch.learning_rate}
    found |= {f"terms/{name}": value for name, value in epoch.terms.items()}
    if epoch.trusted is not None:
        found["trusted"] = epoch.trusted
    if epoch.neighbours is not None:
        found["neighbours"] = epoch.neighbours
    for name, value in vars(epoch.summary).items() if epoch.summary else ():
        parts = {name: value} if isinstance(value, float) else vars(value)
        found |= {part if part == name else f"{name}/{part}": v for part, v in parts.items()}
    return found
