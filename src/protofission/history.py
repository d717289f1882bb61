"""What a run has been through: its epochs, and the steps of the one that is under way."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protofission.evaluate import Summary
from protofission.metrics import Accuracy, PrototypeHealth, SubclassScore
from protofission.train import StepReport


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


@dataclass
class Progress:
    """What a run has been through so far."""

    history: list[Epoch] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    """Of the epoch that is under way: terms, trusted share and learning rate, as plain values."""

    def add(self, report: StepReport) -> None:
        """One step more."""
        terms = [[term.name, float(term.value), term.weight] for term in report.terms]
        trusted, rate = report.trusted, report.learning_rate
        self.steps.append({"terms": terms, "trusted": trusted, "learning_rate": rate})

    def end_epoch(self, summary: Summary | None, neighbours: float | None) -> Epoch:
        """The epoch of the steps so far, which are then forgotten."""
        first, last = self.steps[0], self.steps[-1]
        values = np.array([[value for _, value, _ in step["terms"]] for step in self.steps])
        means = values.mean(0)
        trusted = None
        if first["trusted"] is not None:
            trusted = float(np.mean([step["trusted"] for step in self.steps]))
        epoch = Epoch(
            epoch=len(self.history),
            loss=float(means @ np.array([weight for _, _, weight in first["terms"]])),
            terms={name: float(m) for (name, _, _), m in zip(first["terms"], means, strict=True)},
            trusted=trusted,
            learning_rate=last["learning_rate"],
            summary=summary,
            neighbours=neighbours,
        )
        self.history.append(epoch)
        self.steps = []
        return epoch


def epochs(rows: list[dict[str, Any]]) -> list[Epoch]:
    """Epochs from their plain values."""
    return [
        Epoch(**{**row, "summary": row["summary"] and summary_of(row["summary"])}) for row in rows
    ]


def summary_of(values: dict[str, Any]) -> Summary:
    """A summary from its plain values."""
    parts = {
        "orca": Accuracy(**_with_nan(values["orca"])),
        "strict": Accuracy(**_with_nan(values["strict"])),
        "prototypes": PrototypeHealth(**_with_nan(values["prototypes"])),
        "subclasses": SubclassScore(**_with_nan(values.get("subclasses", {}))),
        "subclusters": SubclassScore(**_with_nan(values.get("subclusters", {}))),
    }
    return Summary(**{**_with_nan(values), **parts})


def as_plain_json(value: Any) -> str:
    """JSON that every reader takes: a number that is not there is null, never NaN."""
    return json.dumps(_without_nan(value), indent=1, allow_nan=False)


def _without_nan(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_nan(inner) for key, inner in value.items()}
        case list():
            return [_without_nan(inner) for inner in value]
        case float() if math.isnan(value):
            return None
        case _:
            return value


def _with_nan(values: dict[str, Any]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in values.items()}
