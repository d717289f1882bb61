"""The protocol of a method: decide once, charge anywhere.

`decide` fixes the targets of a step without gradient. `risk` charges any (N, C) logits with them.
So whatever has several sets of logits, as prototype fission has, charges the same risk to each.

A method is a frozen dataclass: its fields are its hyper-parameters, its functions are pure. What it
keeps between steps lives in the module that `memory` makes and the training loop carries.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from protofission.core.errors import check_choices, check_positive, require
from protofission.core.records import (
    NO_CLASS,
    Output,
    Sizes,
    Step,
    Survey,
    Targets,
    Terms,
    Views,
)
from protofission.core.risks import Sigma, Softmax
from protofission.models.heads import HeadSpec

T = TypeVar("T", bound=Targets)

Novel = Literal["heads", "match", "reject", "cluster", "anchor"]
"""How a method speaks of novel classes:
heads: by heads beyond those of the seen classes;
match: its heads are clusters without names, matched to the seen classes through the labels;
reject: not at all; what it rejects is clustered by k-means;
cluster: k-means on the features of all images, matched to the seen classes through the labels;
anchor: the same, where the labeled images keep to their classes."""


class Adam(NamedTuple):
    """The optimiser that a method's own parameters may want in the place of the recipe's."""

    learning_rate: float
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Method(Generic[T]):
    """The base of all methods; a new one writes `decide` and `risk`, and says what it wants."""

    def __post_init__(self) -> None:
        check_choices(self)
        for option in fields(self):
            value = getattr(self, option.name)
            if not isinstance(value, int | float):
                continue
            if option.name.endswith("_weight"):
                require(value >= 0, f"{option.name} = {value} must be at least 0.")
            if option.name.endswith("_temperature"):
                check_positive(**{option.name: value})
            if option.name.endswith("_threshold"):
                require(0 < value <= 1, f"{option.name} = {value} must be above 0, at most 1.")

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
    def novel(self) -> Novel:
        """How it speaks of novel classes."""
        return "reject"

    @property
    def discovers(self) -> bool:
        """Whether there are heads for novel classes too, or for the seen ones only."""
        return self.novel in ("heads", "match")

    @property
    def predicts(self) -> bool:
        """Whether it can be asked for the class of an image: by its logits, or by clusters."""
        return self.classifies or self.novel in ("cluster", "anchor")

    @property
    def optimizer(self) -> Adam | None:
        """What the parameters of its memory learn by, where that is not the recipe's optimiser."""
        return None

    @property
    def replays(self) -> bool:
        """Whether it looks at a batch again with other weights (`Step.again`): an inner step."""
        return False

    @property
    def surveys(self) -> bool:
        """Whether `survey` wants to be called before each epoch."""
        return False

    @property
    def scores_by_survey(self) -> bool:
        """Whether `ood_score` reads what `survey` kept: then it is called before judging too."""
        return False

    @property
    def trusts(self) -> bool:
        """Whether images of the pool are taken for a class, so that their share is worth a look."""
        return self.classifies and bool(self.views.unlabeled)

    @property
    def begins(self) -> float:
        """The share of training after which a head that starts from the data (`head.init`) does."""
        return 0.0

    @property
    def averages(self) -> bool:
        """Whether it moves the prototypes of an averaged head itself (`Step.head`)."""
        return False

    @property
    def wants_cosines(self) -> bool:
        """Whether it computes with the similarities of the head as cosines."""
        return False

    def check(self, head: HeadSpec) -> None:
        """Refuse a head that does not fit the method or its options."""
        require(
            not self.wants_cosines or head.has_cosines,
            f"head.kind = {head.kind} does not fit: the method computes with cosines, so use a "
            "cosine head, or fission with head.similarity=cosine.",
        )
        require(
            self.averages == (head.kind == "averaged"),
            f"head.kind = {head.kind} does not fit: an averaged head is for methods that move its "
            "prototypes themselves, such as opencon, and for them alone.",
        )
        require(
            self.classifies == (head.kind != "projection"),
            f"head.kind = {head.kind} does not fit: a projection is for methods that make features "
            "and no classes, such as simclr, and for them alone.",
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """What the method keeps between steps: buffers, or parameters to be trained.

        Args:
            generator: for all that starts at random.
        """
        return nn.Module()

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """Before each epoch: look at the labeled images and the whole pool, and remember."""

    def decide(self, step: Step) -> T:
        """Fix, without gradient, what each row is charged with."""
        raise NotImplementedError

    def risk(self, step: Step, targets: T, logits: Tensor) -> Terms:
        """Charge (N, C) logits. Must be vectorisable: no shape may depend on a tensor's values."""
        raise NotImplementedError

    def slot_targets(self, targets: T) -> T:
        """What single slots are charged with; the same object where that is no other thing."""
        return targets

    def others(self, step: Step, targets: T) -> Terms:
        """Terms that are no function of the class logits, charged once whatever the head."""
        return ()

    def charge(self, step: Step, targets: T) -> Terms:
        """All terms of a step whose targets are fixed."""
        return (*self.risk(step, targets, step.logits), *self.others(step, targets))

    def terms(self, step: Step) -> Terms:
        """All terms of a step: decide, then charge."""
        return self.charge(step, self.decide(step))

    @torch.no_grad()
    def update(self, step: Step, targets: T) -> None:
        """After the optimiser's step: bring the memory up to date."""

    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor | None:
        """(N,), higher is more OOD: its own score, where it has one."""
        return None


def label_rows(step: Step) -> Tensor:
    """(N,): the labels on every view of the labeled images, NO_CLASS elsewhere."""
    classes = step.labels.new_full((step.layout.rows,), NO_CLASS)
    for view in range(step.layout.labeled_views):
        classes[step.layout.labeled_rows(view)] = step.labels
    return classes
