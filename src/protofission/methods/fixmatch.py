"""FixMatch: pseudo-labels of weak views, learned on strong views; by softmax or by sigmoids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Step, Targets, Term, Terms, Views
from protofission.core.risks import Sigmoid
from protofission.methods.base import Method, Traits, label_rows
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class FixMatchTargets(Targets):
    """Pseudo-labels of the unlabeled images, by their weak views."""

    pseudo_labels: Tensor
    """(U,) in [0, C)."""
    trusted: Tensor
    """(U,): 1 where the pseudo-label is learned, else 0."""
    ood: Tensor
    """(U,): 1 where the image is taken for none of the classes, else 0."""


@dataclass(frozen=True)
class FixMatch(Method[FixMatchTargets]):
    """Pseudo-labels of confident weak views are learned on strong views; the rest is ignored."""

    threshold: float = 0.95
    """thr: an image is trusted from this probability on."""
    unlabeled_weight: float = 1.0
    """Weight of the risk of the trusted images, averaged over all unlabeled ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.threshold <= 1, f"threshold = {self.threshold} must be above 0, at most 1."
        )

    @property
    def traits(self) -> Traits:
        """A weak view of each labeled image, a weak and a strong one of each unlabeled."""
        return Traits(views=Views(labeled=("weak",), unlabeled=("weak", "strong")))

    @torch.no_grad()
    def decide(self, step: Step) -> FixMatchTargets:
        """Pseudo-label and trust by the weak view; L_div divides the strong view by them."""
        confidence, pseudo_labels = self.sigma.probs(step.unlabeled(step.logits, 0)).max(-1)
        trusted = confidence >= self.threshold
        classes = label_rows(step)
        strong = step.layout.unlabeled_rows(1)
        classes[strong] = torch.where(trusted, pseudo_labels, NO_CLASS)
        ood = self.ood_mask(step, confidence)
        return FixMatchTargets(classes, pseudo_labels, trusted.to(confidence), ood.to(confidence))

    def ood_mask(self, step: Step, confidence: Tensor) -> Tensor:
        """(U,): which images are taken for OOD; here none, a doubtful image is ignored."""
        return torch.zeros_like(confidence, dtype=torch.bool)

    def risk(self, step: Step, targets: FixMatchTargets, logits: Tensor) -> Terms:
        """R of the labels on the weak view, R of trusted pseudo-labels on the strong view."""
        unlabeled = self.sigma.risk(step.unlabeled(logits, 1), targets.pseudo_labels)
        return (
            Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),
            Term("pseudo", (unlabeled * targets.trusted).mean(), self.unlabeled_weight),
        )


@dataclass(frozen=True)
class FixMatchSigmoid(FixMatch):
    """FixMatch with one-vs-all sigmoids, which takes doubtful images for OOD (Eq. 9).

    Read literally, every image below the threshold is OOD from the first step on. At T = 10, b = 5
    that asks for a cosine of 0.794, so nearly the whole pool would be pushed away; hence a warm-up
    and a band of images that are neither trusted nor OOD.
    """

    ood_weight: float = 1.0
    """Weight of the risk of the images taken for OOD, averaged over all unlabeled ones."""
    ood_warmup: float = 0.25
    """The share of training before which no image is taken for OOD."""
    ood_below: float = 0.5
    """An image is taken for OOD below this probability; from there to the threshold, ignored."""
    literal: bool = False
    """The paper to the letter: no warm-up and no band; overrides the two options above."""
    ood_on: Literal["max", "slots"] = "max"
    """Whether Eq. 9 is charged to the max-logits alone, or with fission to each slot too."""
    bce_reduction: Literal["sum", "mean"] = "sum"
    """Reduction of the binary risks of a row's classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.literal:
            return
        require(
            0 <= self.ood_warmup <= 1, f"ood_warmup = {self.ood_warmup} must be between 0 and 1."
        )
        require(
            0 <= self.ood_below <= self.threshold,
            f"ood_below = {self.ood_below} must be between 0 and the threshold, {self.threshold}.",
        )

    @property
    def traits(self) -> Traits:
        """One-vs-all sigmoids; a cosine head in place of the linear one takes T and b of Eq. 10."""
        sigma, head = Sigmoid(self.bce_reduction), HeadSpec("linear", offset=5.0)
        return replace(super().traits, sigma=sigma, head=head)

    def ood_mask(self, step: Step, confidence: Tensor) -> Tensor:
        """(U,): images below the band, once the warm-up is over."""
        below = self.threshold if self.literal else self.ood_below
        begun = self.literal or step.progress >= self.ood_warmup
        return (confidence < below) & begun

    def slot_targets(self, targets: FixMatchTargets) -> FixMatchTargets:
        """Slots are charged with Eq. 9 only where `ood_on` says so."""
        if self.ood_on == "slots":
            return targets
        return replace(targets, ood=torch.zeros_like(targets.ood))

    def risk(self, step: Step, targets: FixMatchTargets, logits: Tensor) -> Terms:
        """FixMatch's, and Eq. 9 on the strong view of the images taken for OOD."""
        ood = Sigmoid(self.bce_reduction).none_risk(step.unlabeled(logits, 1)) * targets.ood
        return (*super().risk(step, targets, logits), Term("ood", ood.mean(), self.ood_weight))
