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
    """Number of epochs."""
    epoch: Literal["labeled", "pool"] = "labeled"
    """The images of one epoch: labeled ones or the pool."""
    steps_per_epoch: int | None = None
    """Steps of an epoch; by default those of one pass over its images."""
    steps: int | None = None
    """Number of steps; overrides `epochs`."""
    labeled_batch: int = 128
    """Labeled images of a step, over all processes."""
    unlabeled_batch: int = 384
    """Unlabeled images of a step, over all processes."""
    optimizer: Literal["sgd", "lars"] = "sgd"
    """SGD, or for large batches LARS, which scales each step to the norm of its weights."""
    learning_rate: float = 0.1
    """Learning rate at the start, or after the warm-up."""
    schedule: Literal["step", "cosine", "fixmatch", "constant"] = "step"
    """Learning rate: x 0.1 at each milestone; half a cosine to 0; 7/16 of one; or constant."""
    milestones: tuple[float, ...] = (0.7, 0.9)
    """Milestones of the step schedule, as shares of the steps after warm-up."""
    warmup_epochs: int | float = 0.0
    """Epochs of linear warm-up."""
    momentum: float = 0.9
    """Momentum of SGD and LARS."""
    nesterov: bool = False
    """Whether SGD uses Nesterov momentum."""
    weight_decay: float = 5e-4
    """Weight decay of all weights but delta."""
    decay_delta: bool = False
    """Whether delta has weight decay, which pulls lambda to 1/2."""
    decay_vectors: bool = True
    """Whether biases and batch-norm factors have weight decay."""
    clip: float | None = None
    """Largest norm of the gradient of all weights; none means no limit."""
    ema: float = 0.0
    """Decay of the moving average; if above 0, the average is evaluated."""
    precision: Precision = "32"
    """Precision of the forward pass; below 32 bits needs an accelerator."""
    trainable_stages: int | None = 1
    """Number of last backbone stages that are trained; none means all."""
    frozen_statistics: Statistics = "frozen"
    """Batch-norm statistics of frozen stages: frozen, or updated as in ORCA's code."""
    trunk_cache: int = 0
    """Versions of each random view whose outputs of the frozen stages are cached on disk; with 0,
    every step computes new views."""

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
