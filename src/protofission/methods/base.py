"""The protocol of a method: decide once, charge anywhere.

`decide` fixes the targets of a step without gradient. `risk` charges any (N, C) logits with them.
So whatever has several sets of logits, as prototype fission has, charges the same risk to each.

A method is a frozen dataclass: its fields are its hyper-parameters, its functions are pure. What it
keeps between steps lives in the module that `memory` makes and the training loop carries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from protofission.errors import check_choices, require
from protofission.models.heads import HeadSpec
from protofission.records import NO_CLASS, Output, Step, Targets, Terms, Views
from protofission.risks import Sigma, Softmax

T = TypeVar("T", bound=Targets)


@dataclass(frozen=True)
class Method(Generic[T]):
    """The base of all methods; a new one writes `decide` and `risk`, and says what it wants."""

    def __post_init__(self) -> None:
        check_choices(self)
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name.endswith("_weight"):
                require(value >= 0, f"{option.name} = {value} must be at least 0.")
            if option.name.endswith("_temperature"):
                require(value > 0, f"{option.name} = {value} must be above 0.")

    @property
    def views(self) -> Views:
        """What a batch holds."""
        return Views(labeled=("weak",))

    @property
    def sigma(self) -> Sigma:
        """The activation of the logits, and its risk."""
        return Softmax()

    @property
    def head(self) -> HeadSpec:
        """The head that the method wants where the experiment names none."""
        return HeadSpec("linear")

    @property
    def classifies(self) -> bool:
        """Whether the logits are of classes, so that predictions can be judged."""
        return True

    @property
    def discovers(self) -> bool:
        """Whether there are heads for novel classes too, or for the seen ones only."""
        return False

    @property
    def surveys(self) -> bool:
        """Whether `survey` wants to be called before each epoch."""
        return False

    def check(self, head: HeadSpec) -> None:
        """Refuse a head that does not fit the method or its options."""
        require(
            self.classifies == (head.kind != "projection"),
            f"head.kind = {head.kind} does not fit: a projection is for simclr, and for it alone.",
        )

    def memory(self, num_classes: int, num_slots: int) -> nn.Module:
        """What the method keeps between steps: buffers, or parameters to be trained."""
        return nn.Module()

    @torch.no_grad()
    def survey(self, memory: nn.Module, pool: Iterable[Output]) -> None:
        """Before each epoch: look at the whole unlabeled pool, chunk by chunk, and remember."""

    def decide(self, step: Step) -> T:
        """Fix, without gradient, what each row is charged with."""
        raise NotImplementedError

    def risk(self, step: Step, targets: T, logits: Tensor) -> Terms:
        """Charge (N, C) logits. Must be vectorisable: no shape may depend on a tensor's values."""
        raise NotImplementedError

    def slot_targets(self, targets: T) -> T:
        """What single slots are charged with, where that differs from the max-logits."""
        return targets

    def charge(self, step: Step, targets: T) -> Terms:
        """All terms of a step whose targets are fixed."""
        return self.risk(step, targets, step.logits)

    def terms(self, step: Step) -> Terms:
        """All terms of a step: decide, then charge."""
        return self.charge(step, self.decide(step))

    @torch.no_grad()
    def update(self, step: Step, targets: T) -> None:
        """After the optimiser's step: bring the memory up to date."""


def label_rows(step: Step) -> Tensor:
    """(N,): the labels on every view of the labeled images, NO_CLASS elsewhere."""
    classes = step.labels.new_full((step.layout.rows,), NO_CLASS)
    for view in range(step.layout.labeled_views):
        classes[step.layout.labeled_rows(view)] = step.labels
    return classes
