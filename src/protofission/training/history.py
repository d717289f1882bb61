"""The history of a run: its epochs, and the steps of the one that is under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protofission.system.json_files import as_type
from protofission.training.evaluate import Summary
from protofission.training.loop import StepReport


@dataclass(frozen=True)
class Epoch:
    """One epoch of a run's history."""

    epoch: int
    loss: float
    """The weighted sum of the terms."""
    terms: dict[str, float]
    """The unweighted terms by name, averaged over the epoch."""
    trusted: float | None
    """The share of the unlabeled images that were taken for a class; none without such images."""
    learning_rate: float
    """Of the last step."""
    summary: Summary | None
    """What the test set says, where it was asked and there are classes. Never fed back."""
    neighbours: float | None
    """The nearest-neighbour accuracy of features that have no classes. Never fed back."""


@dataclass(frozen=True)
class DoneStep:
    """What is kept of a step until its epoch ends."""

    terms: tuple[tuple[str, float, float], ...]
    """Name, value and weight."""
    trusted: float | None
    learning_rate: float


@dataclass
class RunHistory:
    """The epochs of a run, and the steps of the epoch that is under way."""

    history: list[Epoch] = field(default_factory=list)
    steps: list[DoneStep] = field(default_factory=list)
    """Of the epoch that is under way."""

    def add(self, report: StepReport) -> None:
        """One step more."""
        terms = tuple((term.name, float(term.value), float(term.weight)) for term in report.terms)
        self.steps.append(DoneStep(terms, report.trusted, report.learning_rate))

    def end_epoch(self, summary: Summary | None, neighbours: float | None) -> Epoch:
        """The epoch of the steps so far, which are then forgotten."""
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
            summary=summary,
            neighbours=neighbours,
        )
        self.history.append(epoch)
        self.steps = []
        return epoch


def epochs(plain: Any, place: str = "") -> list[Epoch]:
    """Epochs from JSON; those of earlier versions may lack what their summaries had not yet."""
    rows = as_type(plain, tuple[dict[str, Any], ...], place)
    return [
        as_type({**row, "summary": _whole(row.get("summary"))}, Epoch, f"{place}[{i}]", nan=True)
        for i, row in enumerate(rows)
    ]


def summary_of(plain: Any) -> Summary:
    """A summary from JSON; one of an earlier version may lack the scores of sub-classes."""
    return as_type(_whole(plain), Summary, "", nan=True)


def history_from_json(plain: Any) -> RunHistory:
    """Read a run's history from JSON."""
    found = as_type(plain, dict[str, Any], "progress")
    steps = as_type(found.get("steps"), tuple[DoneStep, ...], "steps", nan=True)
    return RunHistory(epochs(found.get("history"), "history"), list(steps))


def _whole(summary: Any) -> Any:
    """A summary in JSON with all of its parts."""
    if not isinstance(summary, dict):
        return summary
    none = {"nmi": None, "accuracy": None}
    return {"subclasses": none, "subclusters": none, **summary}
