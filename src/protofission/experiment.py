"""An experiment is one frozen value: all that determines a run."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from protofission.data.datasets import DataSpec
from protofission.errors import check_choices, require, unknown
from protofission.fission import check_sizes
from protofission.methods import Method, method_named
from protofission.models.backbones import BackboneSpec
from protofission.models.heads import HeadSpec
from protofission.options import FIXED
from protofission.scores import SCORES


@dataclass(frozen=True)
class Recipe:
    """How the weights learn."""

    epochs: int = 200
    """How long training takes."""
    epoch: Literal["labeled", "pool"] = "labeled"
    """What one epoch passes over."""
    steps_per_epoch: int | None = None
    """The length of an epoch where it is not one pass."""
    labeled_batch: int = 128
    """Labeled images of a step."""
    unlabeled_batch: int = 384
    """Unlabeled images of a step."""
    learning_rate: float = 0.1
    """Of SGD, at the start."""
    schedule: Literal["step", "cosine"] = "step"
    """x 0.1 at 70 % and 90 % of training, or half a cosine to 0."""
    momentum: float = 0.9
    """Of SGD."""
    weight_decay: float = 5e-4
    """On all weights but delta."""
    decay_delta: bool = False
    """Whether weight decay pulls delta to 0, that is, lambda to 1/2."""
    trainable_stages: int | None = 1
    """How many of the backbone's last stages learn, the rest is frozen; all where none is given."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_sizes(
            epochs=self.epochs,
            labeled_batch=self.labeled_batch,
            unlabeled_batch=self.unlabeled_batch,
        )
        if self.steps_per_epoch is not None:
            check_sizes(steps_per_epoch=self.steps_per_epoch)
        require(self.learning_rate > 0, f"learning_rate = {self.learning_rate} must be above 0.")
        require(
            0 <= self.momentum < 1, f"momentum = {self.momentum} must be at least 0 and below 1."
        )
        require(self.weight_decay >= 0, f"weight_decay = {self.weight_decay} must be at least 0.")


@dataclass(frozen=True)
class Judging:
    """How predictions are judged."""

    ood_score: str = "max_probability"
    """A name of protofission.scores.SCORES."""
    auc_heads: Literal["seen", "all"] = "seen"
    """The heads that an ID score looks at: a novel cluster that is sure of itself is not ID."""
    keep: float = 0.95
    """Methods without novel heads reject: this share of the labeled images is kept."""
    select: Literal["last", "oracle"] = "last"
    """The reported epoch. "oracle" is the best one by the test set's own labels: a bound."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.ood_score not in SCORES:
            raise unknown("ood_score", self.ood_score, SCORES)
        require(0 < self.keep < 1, f"keep = {self.keep} must lie between 0 and 1.")


@dataclass(frozen=True)
class Experiment:
    """All that determines a run."""

    name: str = field(metadata={FIXED: True})
    """The method's name."""
    method: Method[Any]
    head: HeadSpec
    data: DataSpec = field(default_factory=DataSpec)
    backbone: BackboneSpec = field(default_factory=BackboneSpec)
    recipe: Recipe = field(default_factory=Recipe)
    judging: Judging = field(default_factory=Judging)
    seed: int = 0
    """Of all that is random in training."""

    def check(self) -> None:
        """Refuse parts that do not fit each other; each part has checked itself."""
        self.head.check()
        self.method.check(self.head)
        views = self.method.views
        rows = len(views.labeled) * self.recipe.labeled_batch
        rows += len(views.unlabeled) * self.recipe.unlabeled_batch
        require(
            rows > 1, "A batch of one image cannot be standardised: raise recipe.labeled_batch."
        )
        stages = self.recipe.trainable_stages
        require(
            stages is None or 0 <= stages <= self.backbone.stages,
            f"trainable_stages = {stages} must be between 0 and the backbone's "
            f"{self.backbone.stages} stages.",
        )


def experiment_of(name: str, **parts: Any) -> Experiment:
    """The experiment of a method by name, with the head that it wants where none is given."""
    method = method_named(name)
    return Experiment(name, **{"method": method, "head": method.head, **parts})


def as_json(value: Any) -> str:
    """An experiment, or a part of one, as JSON with its keys in order."""
    return json.dumps(dataclasses.asdict(value), indent=2)
