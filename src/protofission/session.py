"""A run as a person sees it: a bar, a line an epoch, warnings in words, curves in TensorBoard."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from protofission import diagnosis
from protofission.data.datasets import Data
from protofission.errors import InputError
from protofission.experiment import Experiment
from protofission.folder import RunFolder
from protofission.history import Epoch
from protofission.processes import ALONE, Processes
from protofission.run import SAVE_EVERY, perform
from protofission.train import number_of_steps


def bars(console: Console) -> Progress:
    """Bars with the number of steps, the time spent and the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def show_run(
    experiment: Experiment,
    data: Data,
    folder: RunFolder,
    console: Console,
    *,
    resume: bool = False,
    processes: Processes = ALONE,
    save_every: float = SAVE_EVERY,
    tracker: Tracker | None = None,
) -> None:
    """Perform a run under a bar; what is said is said once, by the first process."""
    moments = perform(
        experiment, data, folder, resume=resume, processes=processes, save_every=save_every
    )
    if not processes.first:
        for _ in moments:
            pass
        return
    steps = number_of_steps(experiment.recipe, data.training)
    said: set[str] = set()
    with bars(console) as progress:
        task = progress.add_task(f"{experiment.name}, seed {experiment.seed}", total=steps)
        for moment in moments:
            progress.update(task, completed=moment.report.step + 1)
            if moment.epoch is None:
                continue
            if tracker is not None:
                tracker.follow(moment.epoch)
            line(console, epoch_line(moment.epoch))
            done = (moment.report.step + 1) / steps
            for warning in diagnosis.after(moment.epoch, experiment, done):
                kind = re.split(r":| \(", warning)[0]  # what follows are numbers, which change
                if kind not in said:
                    said.add(kind)
                    warn(console, warning)
        progress.update(task, completed=steps)
    line(console, f"The run: {folder.path}")


def line(console: Console, text: str) -> None:
    """A line of plain text, however long."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def warn(console: Console, sentence: str) -> None:
    """A warning, in lines as wide as the terminal."""
    console.print(f"Warning: {sentence}", markup=False, highlight=False)


def epoch_line(epoch: Epoch) -> str:
    """An epoch in a line of at most 80 characters."""
    parts = [f"epoch {epoch.epoch + 1}", f"loss {epoch.loss:.3g}"]
    if epoch.trusted is not None:
        parts.append(f"trusted {epoch.trusted:.0%}")
    if epoch.neighbours is not None:
        parts.append(f"neighbours {epoch.neighbours:.2%}")
    if epoch.summary is not None:
        shares = vars(epoch.summary.strict).items()
        parts.append(" ".join(f"{name} {100 * share:.1f}" for name, share in shares))
        parts.append(f"AUC {epoch.summary.auc:.3f}")
    return "  ".join(parts)


class Tracker:
    """Curves of a run in its folder's `tensorboard`."""

    def __init__(self, folder: RunFolder) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError(
                "--track wants TensorBoard, which is not there: pip install protofission[track]."
            ) from None
        self._folder = folder
        self._kind: Any = SummaryWriter
        self._writer: Any = None

    def follow(self, epoch: Epoch) -> None:
        """One epoch more; what an interrupted run had written beyond its saved state is undone."""
        if self._writer is None:
            place = self._folder.path / "tensorboard"
            self._writer = self._kind(str(place), purge_step=epoch.epoch)
        for name, value in curves(epoch).items():
            self._writer.add_scalar(name, value, epoch.epoch)
        self._writer.flush()


def curves(epoch: Epoch) -> dict[str, float]:
    """The numbers of an epoch by the names of their curves."""
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
