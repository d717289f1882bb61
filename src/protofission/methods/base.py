"""The protocol of a method: decide once, charge anywhere.

`decide` fixes the targets of a step without gradient. `risk` charges any (N, C) logits with them.
So whatever has several sets of logits, as prototype fission has, charges the same risk to each.

A method is a frozen dataclass: its fields are its hyper-parameters, its functions are pure. What it
remembers between steps lives in the module that `memory` makes and the training loop carries.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
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

OwnTargets = TypeVar("OwnTargets", bound=Targets)

Novel = Literal["heads", "match", "reject", "cluster", "anchor"]
"""The way in which a method predicts novel classes:
heads: by heads beyond those of the seen classes;
match: its heads are clusters without names, matched to the seen classes through the labels;
reject: not at all; what it rejects is clustered by k-means;
cluster: k-means on the features of all images, matched to the seen classes through the labels;
anchor: the same, where the labeled images keep to their classes."""


class Adam(NamedTuple):
    """Adam for the parameters of a method's memory, in place of the recipe's optimizer."""

    learning_rate: float
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Traits:
    """Properties of a method that the training loop, evaluation and presets read."""

    views: Views = field(default_factory=lambda: Views(labeled=("weak",)))
    """The views of each labeled and unlabeled image in a batch."""
    sigma: Sigma = field(default_factory=Softmax)
    """The activation of the logits, and its risk."""
    head: HeadSpec = field(default_factory=lambda: HeadSpec("linear"))
    """The head of an experiment that names none."""
    classifies: bool = True
    """Whether the logits are of classes; if not, the method makes features only."""
    novel: Novel = "reject"
    """The way in which novel classes are predicted."""
    pseudo_labels: bool = True
    """Whether images of the pool may be given a class in `Targets.classes`."""
    survey_before_epoch: bool = False
    """Whether `survey` is called before each epoch."""
    survey_before_scoring: bool = False
    """Whether `ood_score` reads what `survey` stored, so that a model is surveyed before it is
    evaluated too."""
    memory_optimizer: Adam | None = None
    """The optimizer of the memory's parameters; the recipe's where None."""
    inner_step: bool = False
    """Whether the method runs a batch again with other weights (`Step.again`)."""
    head_starts_at: float = 0.0
    """The share of training after which a head that starts from the data (`head.init`) does so."""
    needs_cosines: bool = False
    """Whether the method computes with the head's similarities as cosines."""
    reading: bool = False
    """Whether the method is a reading: its formulas are not public, and choices of ours fill them
    in. Its name carries a mark wherever it is shown (`title_of`)."""

    @property
    def has_novel_heads(self) -> bool:
        """Whether the model has heads for novel classes too, or for the seen ones only."""
        return self.novel in ("heads", "match")

    @property
    def predicts(self) -> bool:
        """Whether the class of an image can be predicted, by logits or by clusters."""
        return self.classifies or self.novel in ("cluster", "anchor")

    @property
    def reports_trusted(self) -> bool:
        """Whether the share of the pool that is given a class is reported with the losses."""
        return self.pseudo_labels and self.classifies and bool(self.views.unlabeled)


@dataclass(frozen=True)
class Method(Generic[OwnTargets]):
    """Base class of all methods; a new one states its traits and writes `decide` and `risk`."""

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
    def traits(self) -> Traits:
        """A class attribute in most methods; a property where it depends on options."""
        return Traits()

    @property
    def sigma(self) -> Sigma:
        """The activation of the logits, and its risk."""
        return self.traits.sigma

    def check(self, head: HeadSpec) -> None:
        """Refuse a head that does not fit the method or its options."""
        require(
            not self.traits.needs_cosines or head.has_cosines,
            f"head.kind = {head.kind} does not fit: the method computes with cosines, so use a "
            "cosine head, or fission with head.similarity=cosine.",
        )
        for kind, users in (
            ("averaged", "methods that move its prototypes themselves, such as opencon"),
            ("projection", "methods that make features and no classes, such as simclr"),
        ):
            wanted = self.traits.head.kind == kind
            require(
                wanted or head.kind != kind,
                f"head.kind = {head.kind} does not fit: it is for {users}: leave it at "
                f"{self.traits.head.kind}.",
            )
            require(
                not wanted or head.kind == kind,
                f"head.kind = {head.kind} does not fit: the method needs head.kind = {kind}, the "
                f"head of {users}.",
            )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The module that is kept between steps: buffers, or parameters to be trained.

        Args:
            generator: for all that starts at random.
        """
        return nn.Module()

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """Update the memory from outputs for all labeled images and the whole pool."""

    def decide(self, step: Step) -> OwnTargets:
        """Fix, without gradient, what each row is charged with."""
        raise NotImplementedError

    def risk(self, step: Step, targets: OwnTargets, logits: Tensor) -> Terms:
        """Charge (N, C) logits, under `torch.vmap`: no shape may depend on a tensor's values."""
        raise NotImplementedError

    def slot_targets(self, targets: OwnTargets) -> OwnTargets:
        """The targets of single slots; the same object where they do not differ."""
        return targets

    def other_terms(self, step: Step, targets: OwnTargets) -> Terms:
        """Terms that are no function of the class logits, charged once whatever the head."""
        return ()

    def charge(self, step: Step, targets: OwnTargets) -> Terms:
        """All terms of a step whose targets are fixed."""
        return (*self.risk(step, targets, step.logits), *self.other_terms(step, targets))

    def terms(self, step: Step) -> Terms:
        """All terms of a step: decide, then charge."""
        return self.charge(step, self.decide(step))

    @torch.no_grad()
    def update(self, step: Step, targets: OwnTargets) -> None:
        """Update the memory after the optimizer's step."""

    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor | None:
        """(N,): the method's own OOD score, higher is more OOD; None where it has none."""
        return None


def label_rows(step: Step) -> Tensor:
    """(N,): the labels on every view of the labeled images, NO_CLASS elsewhere."""
    classes = step.labels.new_full((step.layout.rows,), NO_CLASS)
    for view in range(step.layout.labeled_views):
        classes[step.layout.labeled_rows(view)] = step.labels
    return classes
