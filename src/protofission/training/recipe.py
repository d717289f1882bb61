"""The training recipe: length, batches, optimizer, schedule, and which stages are frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from protofission.core.checks import check_sizes
from protofission.core.errors import check_choices, require
from protofission.models.backbones import Statistics
from protofission.system.distributed import Precision


@dataclass(frozen=True)
class Recipe:
    """Length, batches, optimizer, schedule and frozen stages of a training run."""

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
    warmup_epochs: int | float = 0.0
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
