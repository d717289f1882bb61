"""Self-distillation: what SimGCD and ProtoGCD share, all but the teachers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from protofission.core.checks import WIDEST, check_sizes
from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Sizes, Step, Targets, Term, Terms, Views
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.contrast import class_contrast, nt_xent
from protofission.methods.parts.entropy import negative_entropy
from protofission.methods.parts.projection import Projection
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class TeacherTargets(Targets):
    """Soft targets, by the other view of each image."""

    teachers: Tensor
    """(N, C): the target probabilities of each row, from its image's other view."""


@dataclass(frozen=True)
class SelfDistillation(Method[TeacherTargets]):
    """Two views teach each other over all heads; labels, an even use, and two contrasts beside."""

    supervised_weight: float = 0.35
    """s: weight of the supervised losses; the unsupervised ones have 1 - s."""
    entropy_weight: float = 2.0
    """Weight of the negative entropy of the mean probability, within the bracket of 1 - s."""
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
        share = self.supervised_weight
        require(0 <= share <= 1, f"supervised_weight = {share} must be between 0 and 1.")
        check_sizes(
            WIDEST, projection_width=self.projection_width, projection_size=self.projection_size
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The projection."""
        width, size = self.projection_width, self.projection_size
        memory = nn.Module()
        memory.projection = Projection((sizes.num_features, width, width, size), generator)
        return memory

    def teach(self, step: Step) -> Tensor:
        """(N, C): what each row teaches the other view of its image."""
        raise NotImplementedError

    @torch.no_grad()
    def decide(self, step: Step) -> TeacherTargets:
        """Teachers by the other view, hard classes for L_div."""
        teachers, classes = self.teach(step), label_rows(step)
        confidence, hard = self.sigma.probs(step.logits).max(-1)
        sure = torch.where(confidence >= self.hard_threshold, hard, NO_CLASS)
        for view in range(step.layout.unlabeled_views):
            classes[step.layout.unlabeled_rows(view)] = step.unlabeled(sure, view)
        return TeacherTargets(classes, torch.cat([step.both(teachers, 1), step.both(teachers, 0)]))

    def risk(self, step: Step, targets: TeacherTargets, logits: Tensor) -> Terms:
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

    def other_terms(self, step: Step, targets: TeacherTargets) -> Terms:
        """Contrasts of views and of classes, on projected features."""
        projected = step.memory.get_submodule("projection")(step.output.features)
        views = nt_xent(step.both(projected, 0), step.both(projected, 1), self.contrast_temperature)
        labeled = torch.cat([step.labeled(projected, 0), step.labeled(projected, 1)])
        classes = class_contrast(labeled, step.labels.repeat(2), self.class_temperature)
        return (
            Term("contrast", views, 1 - self.supervised_weight),
            Term("class_contrast", classes, self.supervised_weight),
        )
