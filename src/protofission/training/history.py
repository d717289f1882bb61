"""The history of a run: its epochs, and the steps of the one that is under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from protofission.system.json_files import as_type
from protofission.training.loop import StepReport
from protofission.training.run_metrics import RunMetrics


@dataclass(frozen=True)
class Epoch:
    """Averages and metrics of one epoch."""

    epoch: int
    loss: float
    """The weighted sum of the terms."""
    terms: dict[str, float]
    """The unweighted terms by name, averaged over the epoch."""
    trusted: float | None
    """The share of the unlabeled images that were taken for a class; none without such images."""
    learning_rate: float
    """Learning rate of the last step."""
    summary: RunMetrics | None
    """Metrics on the test set, if the epoch was evaluated and the method predicts classes. Never
    fed back into training."""
    neighbours: float | None
    """The nearest-neighbor accuracy, if the method predicts no classes. Never fed back."""


@dataclass(frozen=True)
class StepRecord:
    """The numbers of a step that its epoch averages."""

    terms: tuple[tuple[str, float, float], ...]
    """Name, value and weight."""
    trusted: float | None
    learning_rate: float


@dataclass
class RunHistory:
    """The epochs of a run, and the steps of the epoch that is under way."""

    history: list[Epoch] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    """Steps of the epoch that is under way, but for those that are not read yet."""

    def __post_init__(self) -> None:
        self._unread: list[StepReport] = []

    def add(self, report: StepReport) -> None:
        """Record a step; its numbers stay on their device until they are wanted."""
        self._unread.append(report)

    def read_steps(self) -> None:
        """Bring the numbers of the recorded steps to the CPU, all in one copy."""
        if not self._unread:
            return
        every = [
            value
            for report in self._unread
            for value in (*(term.value for term in report.terms), report.trusted)
            if value is not None
        ]
        numbers = iter(
            torch.stack([torch.as_tensor(v, dtype=torch.float64) for v in every]).cpu().tolist()
        )
        for report in self._unread:
            terms = tuple((t.name, next(numbers), float(t.weight)) for t in report.terms)
            trusted = None if report.trusted is None else next(numbers)
            self.steps.append(StepRecord(terms, trusted, report.learning_rate))
        self._unread = []

    def end_epoch(self, metrics: RunMetrics | None, neighbors: float | None) -> Epoch:
        """Average the recorded steps into an epoch, add it to the history and drop the steps."""
        self.read_steps()
        first, last = self.steps[0], self.steps[-1]
        values = np.array([[value for _, value, _ in step.terms] for step in self.steps])
        means = values.mean(0)
        trusted = None
        if first.trusted is not None:
            trusted = float(np.mean([step.trusted for step in self.steps]))
        epoch = Epoch(
            epoch=len(self.history),
            loss=float(means @ np.array([weight for _, _, weight in first.terms])),
            terms={name: float(m) for (name, _, _), m in zip(first.terms, means, strict=True)},
            trusted=trusted,
            learning_rate=last.learning_rate,
            summary=metrics,
            neighbours=neighbors,
        )
        self.history.append(epoch)
        self.steps = []
        return epoch


def epochs_from_json(plain: Any, place: str = "") -> list[Epoch]:
    """Read epochs from JSON; those of earlier versions may lack the sub-class scores."""
    rows = as_type(plain, tuple[dict[str, Any], ...], place)
    return [
        as_type(
            {**row, "summary": _with_subclass_scores(row.get("summary"))},
            Epoch,
            f"{place}[{i}]",
            nan=True,
        )
        for i, row in enumerate(rows)
    ]


def metrics_from_json(plain: Any) -> RunMetrics:
    """Read metrics from JSON; those of earlier versions may lack the sub-class scores."""
    return as_type(_with_subclass_scores(plain), RunMetrics, "", nan=True)


def history_from_json(plain: Any) -> RunHistory:
    """Read a run's history from JSON."""
    found = as_type(plain, dict[str, Any], "progress")
    steps = as_type(found.get("steps"), tuple[StepRecord, ...], "steps", nan=True)
    return RunHistory(epochs_from_json(found.get("history"), "history"), list(steps))


def _with_subclass_scores(metrics: Any) -> Any:
    """Metrics as JSON, with empty sub-class scores where an earlier version wrote none."""
    if not isinstance(metrics, dict):
        return metrics
    none = {"nmi": None, "accuracy": None}
    return {"subclasses": none, "subclusters": none, **metrics}
