"""SimGCD: self-distillation between two views, with an entropy that keeps all heads in use."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.checks import WIDEST, check_sizes
from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Sizes, Step, Targets, Term, Terms, Views
from protofission.fission import random_directions
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.contrast import class_contrast, nt_xent
from protofission.methods.parts.entropy import negative_entropy
from protofission.methods.parts.ramps import linear_ramp
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class SimGCDTargets(Targets):
    """Soft targets, by the other view of each image."""

    teachers: Tensor
    """(N, C): the sharpened probabilities of each row's other view."""


@dataclass(frozen=True)
class SimGCD(Method[SimGCDTargets]):
    """Self-distillation across views, an even use of the heads, labels, and two contrasts."""

    supervised_weight: float = 0.35
    """s: weight of the supervised losses; the unsupervised ones have 1 - s."""
    entropy_weight: float = 2.0
    """Weight of the negative entropy of the mean probability, within the bracket of 1 - s."""
    start_temperature: float = 0.07
    """The teacher's temperature, which divides its cosines, at the start."""
    teacher_temperature: float = 0.04
    """The teacher's temperature after the warm-up."""
    teacher_warmup: float = 0.15
    """Share of training in which it goes from the first temperature to the second."""
    contrast_temperature: float = 1.0
    """Temperature of the contrast of views."""
    class_temperature: float = 0.07
    """Temperature of the contrast of classes."""
    projection_width: int = 2048
    """Hidden units of the projection on which both contrasts act."""
    projection_size: int = 256
    """Coordinates of a projected vector."""
    hard_threshold: float = 0.95
    """Least probability for a hard class of an unlabeled image, which only L_div reads."""

    traits = Traits(
        views=Views(labeled=("weak", "weak"), unlabeled=("weak", "weak")),
        head=HeadSpec("cosine"),  # 10 cos: a student's temperature of 0.1
        novel="heads",
        needs_cosines=True,  # the teacher's temperature divides them
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("supervised_weight", "teacher_warmup"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} = {value} must be between 0 and 1.")
        check_sizes(
            WIDEST, projection_width=self.projection_width, projection_size=self.projection_size
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The projection."""
        width, size = self.projection_width, self.projection_size
        memory = nn.Module()
        memory.projection = Projection((sizes.num_features, width, width, size), generator)
        return memory

    @torch.no_grad()
    def decide(self, step: Step) -> SimGCDTargets:
        """Teachers by the other view, hard classes for L_div."""
        teachers = (step.output.nearest / self.temperature_at(step.progress)).softmax(-1)
        classes = label_rows(step)
        confidence, hard = self.sigma.probs(step.logits).max(-1)
        sure = torch.where(confidence >= self.hard_threshold, hard, NO_CLASS)
        for view in range(step.layout.unlabeled_views):
            classes[step.layout.unlabeled_rows(view)] = step.unlabeled(sure, view)
        return SimGCDTargets(classes, torch.cat([step.both(teachers, 1), step.both(teachers, 0)]))

    def temperature_at(self, progress: float) -> float:
        """The teacher's temperature: a line over the warm-up, then constant."""
        done = linear_ramp(progress, self.teacher_warmup)
        return self.start_temperature + done * (self.teacher_temperature - self.start_temperature)

    def risk(self, step: Step, targets: SimGCDTargets, logits: Tensor) -> Terms:
        """Cross entropy with the labels and with the other view, and the use of the heads."""
        log_probs = logits.log_softmax(-1)
        labeled = torch.cat([step.labeled(logits, 0), step.labeled(logits, 1)])
        distilled = -(targets.teachers * log_probs).sum(-1)
        own, others = self.supervised_weight, 1 - self.supervised_weight
        return (
            Term("supervised", self.sigma.risk(labeled, step.labels.repeat(2)).mean(), own),
            Term("distillation", distilled.mean(), others),
            Term(
                "entropy",
                negative_entropy(log_probs.exp().mean(0)),
                others * self.entropy_weight,
            ),
        )

    def other_terms(self, step: Step, targets: SimGCDTargets) -> Terms:
        """Contrasts of views and of classes, on projected features."""
        projected = step.memory.get_submodule("projection")(step.output.features)
        views = nt_xent(step.both(projected, 0), step.both(projected, 1), self.contrast_temperature)
        labeled = torch.cat([step.labeled(projected, 0), step.labeled(projected, 1)])
        classes = class_contrast(labeled, step.labels.repeat(2), self.class_temperature)
        return (
            Term("contrast", views, 1 - self.supervised_weight),
            Term("class_contrast", classes, self.supervised_weight),
        )


class Projection(nn.Module):
    """Linear layers with GELU between them.

    Args:
        sizes: numbers of units, from the features to the projected vector.
        generator: for the random start.
    """

    def __init__(self, sizes: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        layers = list(pairwise(sizes))
        self.weights = nn.ParameterList(
            random_directions(wide, narrow, generator=generator) for narrow, wide in layers
        )
        self.biases = nn.ParameterList(torch.zeros(wide) for _, wide in layers)

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) to (N, P)."""
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            features = F.linear(F.gelu(features) if place else features, weight, bias)
        return features
