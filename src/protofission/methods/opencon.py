"""OpenCon: three contrasts, and prototypes that are running means of what is taken for a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Output, Step, Targets, Term, Terms, Views
from protofission.fission import unit
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.contrast import class_contrast, nt_xent
from protofission.methods.parts.entropy import negative_entropy
from protofission.methods.parts.ramps import linear_ramp
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class OpenConTargets(Targets):
    """The novel class that each image of the pool is taken for, if any."""

    novel: Tensor
    """(U,) in [S, C), or NO_CLASS."""


@dataclass(frozen=True)
class OpenCon(Method[OpenConTargets]):
    """Contrasts of views, of labels and of novel pseudo-labels; prototypes are running means."""

    views_weight: float = 1.0
    """Weight of the contrast of views of the pool."""
    views_temperature: float = 0.4
    """Temperature of that contrast."""
    labels_weight: float = 0.2
    """Weight of the contrast of labeled images by class."""
    labels_temperature: float = 0.1
    """Temperature of that contrast."""
    novel_weight: float = 0.1
    """Weight of the contrast of images taken for novel, by the class each is taken for."""
    novel_temperature: float = 0.7
    """Temperature of that contrast."""
    novel_ramp: float = 0.5
    """The share of training over which that weight rises from 0."""
    novel_below: float = 0.3
    """An image is taken for novel where its cosine with the nearest seen prototype is below this
    quantile of the labeled images'."""
    novel_among: Literal["novel", "all"] = "novel"
    """Candidates for its class: the novel prototypes (the paper), or all, so that it has none
    where a seen one is nearest (after the paper's code)."""
    entropy_weight: float = 0.05
    """Weight of the negative entropy of the mean probability."""
    momentum: float = 0.9
    """The share that a prototype keeps with each image that it takes in."""

    traits = Traits(
        views=Views(labeled=("weak", "weak"), unlabeled=("weak", "weak")),
        head=HeadSpec("averaged"),  # a projection, and prototypes that no gradient moves
        novel="heads",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("novel_ramp", "novel_below", "momentum"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} = {value} must be between 0 and 1.")

    @torch.no_grad()
    def decide(self, step: Step) -> OpenConTargets:
        """Novel is what lies farther from the seen prototypes than most labeled images do."""
        cosines = step.output.nearest.detach()
        near = cosines[:, : step.num_seen].amax(-1)
        least = step.labeled(near).quantile(self.novel_below)
        offered = step.unlabeled(cosines).clone()
        if self.novel_among == "novel":
            offered[:, : step.num_seen] = -torch.inf
        taken = offered.argmax(-1)
        is_novel = (step.unlabeled(near) < least) & (taken >= step.num_seen)
        novel = torch.where(is_novel, taken, NO_CLASS)
        classes = label_rows(step)
        for view in range(step.layout.unlabeled_views):
            classes[step.layout.unlabeled_rows(view)] = novel
        return OpenConTargets(classes, novel)

    def risk(self, step: Step, targets: OpenConTargets, logits: Tensor) -> Terms:
        """The use of the prototypes, by the first views: the only term of the class logits."""
        probs = self.sigma.probs(step.both(logits, 0))
        return (Term("entropy", negative_entropy(probs.mean(0)), self.entropy_weight),)

    def other_terms(self, step: Step, targets: OpenConTargets) -> Terms:
        """Contrasts of views, of labels, and of what is taken for novel."""
        vectors = step.output.features
        first, second = step.unlabeled(vectors, 0), step.unlabeled(vectors, 1)
        labeled = torch.cat([step.labeled(vectors, view) for view in range(2)])
        ramp = linear_ramp(step.progress, self.novel_ramp)
        return (
            Term("views", nt_xent(first, second, self.views_temperature), self.views_weight),
            Term(
                "labels",
                class_contrast(labeled, step.labels.repeat(2), self.labels_temperature),
                self.labels_weight,
            ),
            Term(
                "novel",
                class_contrast(
                    torch.cat([first, second]), targets.novel.repeat(2), self.novel_temperature
                ),
                ramp * self.novel_weight,
            ),
        )

    @torch.no_grad()
    def update(self, step: Step, targets: OpenConTargets) -> None:
        """Move each prototype toward the first views of the images of its class.

        p = unit( m^n p + (1 - m^n) mean ), for the n images of its class in the batch.
        """
        assert step.head is not None
        prototypes = step.head.get_buffer("means")
        vectors = step.both(step.output.features, 0).detach().to(prototypes)
        classes = torch.cat([step.labels, targets.novel])
        heads = torch.arange(len(prototypes), device=classes.device)
        members = (classes == heads[:, None]).to(prototypes)  # (C, L + U)
        number = members.sum(1, keepdim=True)
        kept = self.momentum**number
        moved = kept * prototypes + (1 - kept) * (members @ vectors) / number.clamp_min(1)
        prototypes.copy_(torch.where(number > 0, unit(moved), prototypes))

    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """The negative cosine with the nearest seen prototype."""
        return -output.nearest[:, :num_seen].amax(-1)
