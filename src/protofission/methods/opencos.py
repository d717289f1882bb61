"""OpenCoS: pseudo-labels for images of the pool near a class mean, soft labels for the rest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import (
    NO_CLASS,
    Output,
    Sizes,
    Step,
    Survey,
    Targets,
    Term,
    Terms,
    Views,
)
from protofission.fission import unit
from protofission.methods.base import Method, Traits, label_rows


@dataclass(frozen=True)
class OpenCosTargets(Targets):
    """Partition and pseudo-labels of the unlabeled images, by features and weak views."""

    pseudo_labels: Tensor
    """(U,) in [0, S)."""
    inside: Tensor
    """(U,): 1 where the image is of a seen class by its features, else 0."""
    trusted: Tensor
    """(U,): 1 where it is, and its pseudo-label is learned, else 0."""
    soft_labels: Tensor
    """(U, S): target probabilities of the images of no seen class."""


@dataclass(frozen=True)
class OpenCos(Method[OpenCosTargets]):
    """FixMatch on images near a class mean; soft labels by similarity for the rest."""

    threshold: float = 0.95
    """An image of a seen class is trusted from this probability on."""
    deviations: float = 2.0
    """An image is of no seen class below mean - so many deviations of the labeled cosines."""
    soft_temperature: float = 0.1
    """Temperature of the cosines of which soft labels are made."""
    unlabeled_weight: float = 1.0
    """Weight of FixMatch's risk, averaged over the images of seen classes."""
    auxiliary_weight: float = 0.5
    """Weight of the risk of the soft labels, averaged over the images of no seen class."""

    traits = Traits(
        views=Views(labeled=("weak",), unlabeled=("weak", "strong")),
        survey_before_epoch=True,  # the class means follow the features
        survey_before_scoring=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.threshold <= 1, f"threshold = {self.threshold} must be above 0, at most 1."
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """Class means, and mean and deviation of the labeled cosines: at first all are inside."""
        memory = nn.Module()
        memory.register_buffer("means", torch.zeros(sizes.num_seen, sizes.num_features))
        memory.register_buffer("usual", torch.zeros(()))
        memory.register_buffer("deviation", torch.zeros(()))
        return memory

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """Means of the labeled features, then the cosine of each image to the nearest of them."""
        means, start = memory.get_buffer("means"), 0
        sums = torch.zeros_like(means, dtype=torch.float64)
        for output in survey.labeled:
            own = survey.labels[start : start + len(output.features)]
            sums.index_add_(0, own, output.features.double())
            start += len(own)
        means.copy_(sums / survey.labels.bincount(minlength=len(means))[:, None].clamp_min(1))
        cosines = [class_cosines(output.features, means).amax(-1) for output in survey.labeled]
        deviation, usual = torch.std_mean(torch.cat(cosines), correction=0)
        memory.get_buffer("usual").copy_(usual)
        memory.get_buffer("deviation").copy_(deviation)

    @torch.no_grad()
    def decide(self, step: Step) -> OpenCosTargets:
        """Inside or outside by the features of the weak view, the pseudo-label by its logits."""
        means, usual, deviation = (
            step.memory.get_buffer(name) for name in ("means", "usual", "deviation")
        )
        cosines = class_cosines(step.unlabeled(step.output.features, 0), means)
        inside = cosines.amax(-1) >= usual - self.deviations * deviation
        confidence, pseudo_labels = self.sigma.probs(step.unlabeled(step.logits, 0)).max(-1)
        trusted = inside & (confidence >= self.threshold)
        classes = label_rows(step)
        classes[step.layout.unlabeled_rows(1)] = torch.where(trusted, pseudo_labels, NO_CLASS)
        soft_labels = (cosines / self.soft_temperature).softmax(-1)
        inside, trusted = inside.to(confidence), trusted.to(confidence)
        return OpenCosTargets(classes, pseudo_labels, inside, trusted, soft_labels)

    def risk(self, step: Step, targets: OpenCosTargets, logits: Tensor) -> Terms:
        """R of labels, R of trusted pseudo-labels (strong view), R of soft labels (weak view)."""
        pseudo = self.sigma.risk(step.unlabeled(logits, 1), targets.pseudo_labels)
        pseudo = (pseudo * targets.trusted).sum() / targets.inside.sum().clamp_min(1)
        outside = 1 - targets.inside
        weak = step.unlabeled(logits, 0)
        auxiliary = F.cross_entropy(weak, targets.soft_labels, reduction="none")
        auxiliary = (auxiliary * outside).sum() / outside.sum().clamp_min(1)
        return (
            Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),
            Term("pseudo", pseudo, self.unlabeled_weight),
            Term("auxiliary", auxiliary, self.auxiliary_weight),
        )

    @torch.no_grad()
    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """(N,): - the cosine to the nearest class mean."""
        return -class_cosines(output.features, memory.get_buffer("means")).amax(-1)


def class_cosines(features: Tensor, means: Tensor) -> Tensor:
    """(N, S): the cosine of each row to each class mean."""
    return unit(features) @ unit(means).T
