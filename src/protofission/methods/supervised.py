"""Supervised training on the labels only: the baseline of every other method."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from protofission.core.records import Step, Targets, Term, Terms
from protofission.methods.base import Method, label_rows


@dataclass(frozen=True)
class Supervised(Method[Targets]):
    """Cross entropy on the labeled images."""

    def decide(self, step: Step) -> Targets:
        """The labels."""
        return Targets(label_rows(step))

    def risk(self, step: Step, targets: Targets, logits: Tensor) -> Terms:
        """R on the weak view of the labeled images."""
        return (Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),)
