"""A run as a person sees it: a bar, a line an epoch, warnings in words, curves in TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from protofission.core.errors import InputError
from protofission.data.datasets import Data
from protofission.data.readers.image_cache import processors
from protofission.data.store.reader import Store
from protofission.data.store.stored_views import StoredViews
from protofission.models.encoders import EncoderSpec
from protofission.system.distributed import ALONE, Processes
from protofission.training import diagnosis
from protofission.training.embed import Images, ViewCounts, embed
from protofission.training.experiment import Experiment
from protofission.training.history import Epoch
from protofission.training.run import SAVE_EVERY, perform
from protofission.training.run_folder import RunFolder
from protofission.training.schedules import number_of_steps
from protofission.training.trunk_cache import cached_trunk

SPEAK_EVERY = 30.0
"""Seconds between the lines that stand for a bar where there is no terminal."""


def bars(console: Console, *more: ProgressColumn) -> Progress:
    """Bars with the number of steps, the time spent and the time left."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        *more,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        speed_estimate_period=3600,  # a step may take minutes
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
        for number, moment in enumerate(moments):
            if number == 0 and moment.report.step > 0:
                line(console, f"Going on after step {moment.report.step} of {steps}.")
            progress.update(task, completed=moment.report.step + 1)
            if moment.epoch is None:
                continue
            if tracker is not None:
                tracker.follow(moment.epoch)
            line(console, epoch_line(moment.epoch))
            done = (moment.report.step + 1) / steps
            for finding in diagnosis.after(moment.epoch, experiment, done):
                if finding.kind not in said:
                    said.add(finding.kind)
                    warn(console, finding.sentence)
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


class Speed(ProgressColumn):
    """What is done a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        """So many a second, once it is known."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.0f} {self.unit}/s")


def show_embedding(
    images: Images,
    spec: EncoderSpec,
    folder: Path,
    counts: ViewCounts,
    console: Console,
    **options: Any,
) -> Store:
    """Embed images under a bar; `options` are those of `embed`."""
    if images.report is not None:
        for text in images.report.lines():
            line(console, text)
    begun = time.monotonic()
    with progress_bar(console, f"embedding {images.name}") as progress:
        store = embed(images, spec, folder, counts, **options, progress=progress)
    rows = sum(part.rows for part in store.plan.parts.values())
    seconds = time.monotonic() - begun
    size = f"{_megabytes(store.folder):,.0f} MB"
    line(console, f"The store: {store.folder}, {rows:,} images, {size}, {seconds:.0f} s")
    return store


@contextmanager
def progress_bar(
    console: Console, title: str, unit: str = "images"
) -> Iterator[Callable[[int, int], None]]:
    """A bar that appears with the first call: what is done, of all, and how much a second."""
    with stages(console, Speed(unit)) as stage:
        yield lambda done, total: stage(title, done, total)


@contextmanager
def stages(console: Console, *more: ProgressColumn) -> Iterator[Callable[[str, int, int], None]]:
    """Bars that appear one by one: what is under way, what is done, and all."""
    shown, tasks = bars(console, *more), dict[str, TaskID]()
    spoken = time.monotonic()

    def show(what: str, done: int, total: int) -> None:
        nonlocal spoken
        if not tasks:
            shown.start()
        if what not in tasks:  # what an earlier process did is not this one's speed
            tasks[what] = shown.add_task(what, total=total, completed=done)
        shown.update(tasks[what], completed=done)
        if not console.is_terminal and time.monotonic() - spoken > SPEAK_EVERY:
            spoken = time.monotonic()
            line(console, _in_words(shown.tasks[tasks[what]]))

    try:
        yield show
    finally:
        if tasks:  # else a stop would print an empty line
            shown.stop()


def _in_words(task: Task) -> str:
    """Where a bar stands, for a log that shows no bars."""
    left = task.time_remaining
    rest = "" if not task.speed or left is None else f", {task.speed:.3g}/s, {left:.0f} s left"
    return f"{task.description}: {task.completed:,.0f} of {task.total or 0:,.0f}{rest}"


def show_loading(experiment: Experiment, processes: Processes, console: Console) -> Data:
    """The data of an experiment; the maps of a frozen trunk are computed under a bar."""
    if not experiment.recipe.trunk_cache:
        return experiment.data.load()
    if processes.first:
        with progress_bar(console, "caching the trunk") as progress:
            data = cached_trunk(experiment, processors(), progress)
        if isinstance(data.augmentations, StoredViews):
            folder = data.augmentations.store.folder
            line(console, f"The maps: {folder}, {_megabytes(folder):,.0f} MB")
    processes.wait()
    return cached_trunk(experiment)


def _megabytes(store: Path) -> float:
    return sum(path.stat().st_size for path in store.glob("*.npy")) / 1e6


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
