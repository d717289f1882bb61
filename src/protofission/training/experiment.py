"""An experiment is one frozen value: all that determines a run."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from protofission.core.errors import check_choices, require, unknown
from protofission.core.memory_limits import require_memory
from protofission.core.options import FIXED, NAMED
from protofission.core.rng import check_seed
from protofission.core.scores import SCORES
from protofission.data.datasets import DataSpec
from protofission.fission import check_sizes
from protofission.methods import Method, method_named
from protofission.models.backbones import BackboneSpec, Statistics
from protofission.models.bodies import BodySpec, body_named
from protofission.models.heads import HeadSpec
from protofission.system.distributed import Precision

WEIGHTS = 3
"""Numbers that are kept for each weight: itself, its gradient, its momentum."""
LAYERS, SIMILARITIES = 2, 10
"""Arrays of the size of a body's largest layer, and of all similarities, that a step has at once;
the second is measured, with fission, on CPUs."""


@dataclass(frozen=True)
class Recipe:
    """How the weights learn."""

    epochs: int | None = 200
    """How long training takes."""
    epoch: Literal["labeled", "pool"] = "labeled"
    """What one epoch passes over."""
    steps_per_epoch: int | None = None
    """The length of an epoch where it is not one pass."""
    steps: int | None = None
    """How long training takes, whatever `epochs` says."""
    labeled_batch: int = 128
    """Labeled images of a step, over all processes."""
    unlabeled_batch: int = 384
    """Unlabeled images of a step, over all processes."""
    optimizer: Literal["sgd", "lars"] = "sgd"
    """LARS scales the step of each tensor to the length of its weights: for large batches."""
    learning_rate: float = 0.1
    """At the start, or after the warm-up."""
    schedule: Literal["step", "cosine", "fixmatch", "constant"] = "step"
    """x 0.1 at each milestone; half a cosine to 0; 7/16 of one; or none."""
    milestones: tuple[float, ...] = (0.7, 0.9)
    """Of the step schedule, as shares of what follows the warm-up."""
    warmup_epochs: float = 0.0
    """In which the learning rate rises from 0."""
    momentum: float = 0.9
    """Of SGD and LARS."""
    nesterov: bool = False
    """Whether SGD's momentum looks ahead."""
    weight_decay: float = 5e-4
    """On all weights but delta."""
    decay_delta: bool = False
    """Whether weight decay pulls delta to 0, that is, lambda to 1/2."""
    decay_vectors: bool = True
    """Whether weight decay pulls biases and batch-norm factors too."""
    clip: float | None = None
    """The largest norm of the gradient of all weights; no limit where none is given."""
    ema: float = 0.0
    """Share that the moving average of the weights keeps at a step; it is then what is judged."""
    precision: Precision = "32"
    """Of the forward pass; the weights stay float32. Less than 32 wants an accelerator."""
    trainable_stages: int | None = 1
    """How many of the backbone's last stages learn, the rest is frozen; all where none is given."""
    frozen_statistics: Statistics = "frozen"
    """Batch-norm statistics of frozen stages: they stay, or follow the batches as ORCA's code has
    it."""
    trunk_cache: int = 0
    """Versions of each random view whose maps at the end of the frozen stages are computed once,
    kept on disk and trained on; with 0, every step makes views of its own."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_sizes(labeled_batch=self.labeled_batch, unlabeled_batch=self.unlabeled_batch)
        for name in ("epochs", "steps", "steps_per_epoch"):
            if getattr(self, name) is not None:
                check_sizes(**{name: getattr(self, name)})
        require(
            self.epochs is not None or self.steps is not None,
            "epochs = None and steps = None: say how long training takes by one of them.",
        )
        require(self.learning_rate > 0, f"learning_rate = {self.learning_rate} must be above 0.")
        require(
            0 <= self.momentum < 1, f"momentum = {self.momentum} must be at least 0 and below 1."
        )
        require(
            not self.nesterov or (self.momentum > 0 and self.optimizer == "sgd"),
            "nesterov = true wants recipe.optimizer=sgd and a momentum above 0.",
        )
        require(self.weight_decay >= 0, f"weight_decay = {self.weight_decay} must be at least 0.")
        require(
            all(0 < milestone <= 1 for milestone in self.milestones),
            f"milestones = {self.milestones} must be shares of training: above 0, at most 1.",
        )
        require(
            self.warmup_epochs >= 0, f"warmup_epochs = {self.warmup_epochs} must be at least 0."
        )
        require(self.clip is None or self.clip > 0, f"clip = {self.clip} must be above 0.")
        require(0 <= self.ema < 1, f"ema = {self.ema} must be at least 0 and below 1.")
        require(self.trunk_cache >= 0, f"trunk_cache = {self.trunk_cache} must be at least 0.")


@dataclass(frozen=True)
class Judging:
    """How predictions are judged."""

    ood_score: str = "own"
    """The method's own score, or a name of protofission.core.scores.SCORES; `max_probability` for a
    method that has none."""
    novel: Literal["own", "reject", "cluster"] = "own"
    """How novel classes are spoken of: as the method does, or by one of the two ways that any
    method can be made to: reject, then cluster the rejected; or cluster all images, then match the
    clusters to the seen classes through the labels."""
    auc_heads: Literal["seen", "all"] = "seen"
    """The heads that an ID score looks at: a novel cluster that is sure of itself is not ID."""
    keep: float = 0.95
    """Methods without novel heads reject: this share of the labeled images is kept."""
    select: Literal["last", "oracle"] = "last"
    """The reported epoch. "oracle" is the best one by the test set's own labels: a bound."""
    every: int = 1
    """Epochs from one look at the test set to the next; the last epoch always has one."""
    neighbours: int = 200
    """k of the k-nearest-neighbour accuracy, by which features without a classifier are judged."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.ood_score not in ("own", *SCORES):
            raise unknown("ood_score", self.ood_score, ("own", *SCORES))
        require(0 < self.keep < 1, f"keep = {self.keep} must lie between 0 and 1.")
        check_sizes(every=self.every, neighbours=self.neighbours)


@dataclass(frozen=True)
class Experiment:
    """All that determines a run."""

    name: str = field(metadata={FIXED: True})
    """The method's name."""
    method: Method[Any]
    head: HeadSpec
    data: DataSpec = field(default_factory=DataSpec)
    backbone: BodySpec = field(default_factory=BackboneSpec, metadata={NAMED: body_named})
    """A name of protofission.models.bodies.BODIES, with its options."""
    recipe: Recipe = field(default_factory=Recipe)
    judging: Judging = field(default_factory=Judging)
    seed: int = field(
        default=0,
        metadata={FIXED: "use --seed, or --first-seed and --seeds where there are several"},
    )
    """Of all that is random in training."""

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def rows(self, processes: int = 1) -> int:
        """Of a step, in each of so many processes: all views of its share of the batch."""
        views, recipe = self.method.traits.views, self.recipe
        labeled = len(views.labeled) * recipe.labeled_batch
        return (labeled + len(views.unlabeled) * recipe.unlabeled_batch) // processes

    def check_memory(self, shape: tuple[int, ...], num_classes: int, processes: int = 1) -> None:
        """Refuse a model, or a step on it, for which the memory of this machine is too small.

        Args:
            shape: of an image, or of its features.
            num_classes: that the head has.
        """
        rows, body = self.rows(processes), self.backbone.extent(shape)
        head = self.head.extent(body.out, num_classes)
        held = WEIGHTS * (body.weights + head.weights)
        step = rows * (math.prod(shape) + LAYERS * body.row + SIMILARITIES * head.row)
        require_memory(
            4 * (held + step),
            f"A step of {rows:,} rows on {num_classes:,} classes of {self.head.slots:,} prototypes "
            f"with {body.out:,} features",
        )

    def check(self, processes: int = 1) -> None:
        """Refuse parts that do not fit each other, or so many processes."""
        self.head.check()
        self.method.check(self.head)
        require(
            self.judging.novel != "reject" or self.method.traits.novel == "reject",
            f"judging.novel = reject does not fit {self.name}, which has a way of its own to speak "
            "of novel classes: leave it at own.",
        )
        require(
            self.judging.ood_score == "own" or self.method.traits.classifies,
            f"judging.ood_score = {self.judging.ood_score} looks at class logits, and {self.name} "
            "has none: leave it at own.",
        )
        require(
            processes == 1 or not self.method.traits.inner_step,
            f"{self.name} takes an inner step at every step, which processes cannot share: use 1.",
        )
        views = self.method.traits.views
        for name, wanted in (("labeled", views.labeled), ("unlabeled", views.unlabeled)):
            batch = getattr(self.recipe, f"{name}_batch") if wanted else 0
            require(
                batch % processes == 0,
                f"recipe.{name}_batch = {batch} cannot be shared by {processes} processes: "
                "choose a multiple.",
            )
        require(
            self.rows(processes) > 1,
            "A batch of one image cannot be standardised: raise recipe.labeled_batch.",
        )
        stages = self.recipe.trainable_stages
        require(
            stages is None or 0 <= stages <= self.backbone.stages,
            f"trainable_stages = {stages} must be between 0 and the backbone's "
            f"{self.backbone.stages} stages.",
        )
        if self.recipe.trunk_cache:
            self._check_trunk_cache(stages)

    def _check_trunk_cache(self, stages: int | None) -> None:
        """Refuse to keep what every step changes."""
        require(
            self.data.store is None,
            f"trunk_cache is for images, and data.store = {self.data.store} holds features: leave "
            "one of them out.",
        )
        frozen = 0 if stages is None else self.backbone.stages - stages
        require(
            frozen > 0,
            f"trunk_cache = {self.recipe.trunk_cache} wants frozen stages, and all "
            f"{self.backbone.stages} learn: set recipe.trainable_stages=1.",
        )
        require(
            self.recipe.frozen_statistics == "frozen",
            "trunk_cache wants maps that stay as they are: set recipe.frozen_statistics=frozen.",
        )
        views = self.method.traits.views
        wanted = (views.labeled, views.unlabeled)
        most = max(names.count(name) for names in wanted for name in names)
        require(
            most <= self.recipe.trunk_cache <= 1000,
            f"trunk_cache = {self.recipe.trunk_cache}: {self.name} wants {most} views of an image "
            f"that differ, and 1000 versions are the most: set recipe.trunk_cache={max(most, 4)}.",
        )


def experiment_of(name: str, **parts: Any) -> Experiment:
    """The experiment of a method by name, with the head that it wants where none is given."""
    method = method_named(name)
    return Experiment(name, **{"method": method, "head": method.traits.head, **parts})


def as_json(value: Any) -> str:
    """An experiment, or a part of one, as JSON with its keys in order."""
    return json.dumps(dataclasses.asdict(value), indent=2)
