"""OpenMatch: a one-vs-all head beside the classifier selects the images for FixMatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Output, Sizes, Step, Targets, Term, Terms, Views
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.one_vs_all import OneVsAll, OneVsAllOutput, ova_loss


@dataclass(frozen=True)
class OpenMatchTargets(Targets):
    """Pseudo-labels and inliers among the unlabeled images, by their first weak views."""

    pseudo_labels: Tensor
    """(U,) in [0, S)."""
    inliers: Tensor
    """(U,): 1 where the image is taken for one of a seen class, else 0; all 0 in the warm-up."""
    trusted: Tensor
    """(U,): 1 where it is an inlier whose pseudo-label is learned, else 0."""


@dataclass(frozen=True)
class OpenMatch(Method[OpenMatchTargets]):
    """Classifier and one-vs-all heads on the same features; FixMatch on the inliers alone."""

    threshold: float = 0.0
    """An inlier's pseudo-label is learned from this probability on: from 0, always."""
    unknown_below: float = 0.5
    """An image is an inlier where the outlier probability of its likeliest class is below this."""
    fix_warmup: float = 0.02
    """The share of training before which there are no inliers: 10 of the authors' 512 epochs."""
    unlabeled_weight: float = 1.0
    """Weight of FixMatch's risk, averaged over the inliers."""
    ova_weight: float = 1.0
    """Weight of the one-vs-all loss of the labeled images."""
    entropy_weight: float = 0.1
    """Weight of the entropy of the one-vs-all heads on the pool."""
    socr_weight: float = 0.5
    """Weight of the soft consistency of the one-vs-all heads between two weak views."""

    traits = Traits(views=Views(labeled=("weak",), unlabeled=("weak", "weak", "strong")))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("threshold", "unknown_below", "fix_warmup"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} = {value} must be between 0 and 1.")

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The one-vs-all heads, which learn by the recipe."""
        return OneVsAll(sizes.num_features, sizes.num_seen, generator)

    @torch.no_grad()
    def decide(self, step: Step) -> OpenMatchTargets:
        """Pseudo-label by the classifier, inlier by the one-vs-all head of that class."""
        confidence, pseudo_labels = self.sigma.probs(step.unlabeled(step.logits, 0)).max(-1)
        outside = _answers(step.memory, step.unlabeled(step.output.features, 0)).outside
        unknown = outside.gather(1, pseudo_labels[:, None])[:, 0].exp()
        inliers = (unknown < self.unknown_below) & (step.progress >= self.fix_warmup)
        trusted = inliers & (confidence >= self.threshold)
        classes = label_rows(step)
        classes[step.layout.unlabeled_rows(2)] = torch.where(trusted, pseudo_labels, NO_CLASS)
        return OpenMatchTargets(
            classes, pseudo_labels, inliers.to(confidence), trusted.to(confidence)
        )

    def risk(self, step: Step, targets: OpenMatchTargets, logits: Tensor) -> Terms:
        """R of the labels on the weak view, R of the inliers' pseudo-labels on the strong view."""
        pseudo = self.sigma.risk(step.unlabeled(logits, 2), targets.pseudo_labels)
        pseudo = (pseudo * targets.trusted).sum() / targets.inliers.sum().clamp_min(1)
        return (
            Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),
            Term("pseudo", pseudo, self.unlabeled_weight),
        )

    def other_terms(self, step: Step, targets: OpenMatchTargets) -> Terms:
        """The losses of the one-vs-all heads."""
        answers = _answers(step.memory, step.output.features)
        first, second = (OneVsAllOutput(*(step.unlabeled(v, n) for v in answers)) for n in (0, 1))
        labeled = OneVsAllOutput(*(step.labeled(v) for v in answers))
        entropy = (ova_entropy(first) + ova_entropy(second)) / 2
        return (
            Term("ova", ova_loss(labeled, step.labels).mean(), self.ova_weight),
            Term("ova_entropy", entropy.mean(), self.entropy_weight),
            Term("socr", soft_consistency(first, second).mean(), self.socr_weight),
        )

    @torch.no_grad()
    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """(N,): the log-odds of the outlier probability of the predicted class."""
        answers = _answers(memory, output.features)
        predicted = output.logits.argmax(-1, keepdim=True)
        return (answers.outside - answers.inside).gather(1, predicted)[:, 0]


def _answers(memory: nn.Module, features: Tensor) -> OneVsAllOutput:
    return cast(OneVsAllOutput, memory(features))


def ova_entropy(answers: OneVsAllOutput) -> Tensor:
    """(N,): the entropy of the two-way answers, averaged over the classes."""
    inside, outside = answers
    return -(inside.exp() * inside + outside.exp() * outside).mean(1)


def soft_consistency(first: OneVsAllOutput, second: OneVsAllOutput) -> Tensor:
    """(N,): |p - p'|^2 of two views' two-way answers (p, 1 - p), summed over the classes."""
    return 2 * (first.inside.exp() - second.inside.exp()).square().sum(1)
