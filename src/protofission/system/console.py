"""Lines and progress bars in a terminal, or in a log where there is none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

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

from protofission.core import progress

SPEAK_EVERY = 30.0
"""Seconds between progress lines in a log, where there is no terminal for a bar."""


def print_line(console: Console, text: str) -> None:
    """Print plain text as one line, however long."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def print_warning(console: Console, sentence: str) -> None:
    """Print a warning, in lines as wide as the terminal."""
    console.print(f"Warning: {sentence}", markup=False, highlight=False)


def progress_bars(console: Console, *more: ProgressColumn) -> Progress:
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


class Speed(ProgressColumn):
    """Column of a bar: units done per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        """The speed as text; empty until it is known."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.0f} {self.unit}/s")


@contextmanager
def progress_bar(console: Console, title: str, unit: str = "images") -> Iterator[progress.Progress]:
    """A bar that appears with the first call `(done, total)`, with the speed in units a second."""
    with stages(console, Speed(unit)) as stage:
        yield lambda done, total: stage(title, done, total)


@contextmanager
def stages(console: Console, *more: ProgressColumn) -> Iterator[progress.StageProgress]:
    """Bars that appear one by one, by calls `(title, done, total)`."""
    shown, tasks = progress_bars(console, *more), dict[str, TaskID]()
    spoken = time.monotonic()

    def show(title: str, done: int, total: int) -> None:
        nonlocal spoken
        if not tasks:
            shown.start()
        if title not in tasks:  # what an earlier process did is not this one's speed
            tasks[title] = shown.add_task(title, total=total, completed=done)
        shown.update(tasks[title], completed=done)
        if not console.is_terminal and time.monotonic() - spoken > SPEAK_EVERY:
            spoken = time.monotonic()
            print_line(console, _in_words(shown.tasks[tasks[title]]))

    try:
        yield show
    finally:
        if tasks:  # else a stop would print an empty line
            shown.stop()


def _in_words(task: Task) -> str:
    """The state of a bar as a sentence, for a log that shows no bars."""
    left = task.time_remaining
    rest = "" if not task.speed or left is None else f", {task.speed:.3g}/s, {left:.0f} s left"
    return f"{task.description}: {task.completed:,.0f} of {task.total or 0:,.0f}{rest}"
