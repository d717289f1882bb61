"""DTC, deep transfer clustering: features learned from labels, then self-sharpening clusters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Sizes, Step, Targets, Term, Terms, Views
from protofission.methods.base import Method, Traits
from protofission.methods.parts.ramps import gaussian_ramp
from protofission.models.heads import HeadSpec
from protofission.models.heads.linear import LinearHead


@dataclass(frozen=True)
class DTCTargets(Targets):
    """Soft cluster targets of a step."""

    aims: Tensor
    """(L + U, C): the sharpened probabilities of each image, labeled first."""
    begun: bool
    """Whether there are clusters: before, labels alone shape the features."""
    ramp: float
    """Weight of the agreement of views, in (0, 1]."""


@dataclass(frozen=True)
class DTC(Method[DTCTargets]):
    """Deep transfer clustering with a cluster for each class, seen or novel.

    The labels shape the features first, through a classifier, and then k-means sets the clusters.
    q is Student's t about the centers. Its aim is p, q squared over the cluster's size f and made
    to sum to 1: sure images grow surer, and large clusters do not swallow small ones. The labels
    name clusters only afterwards.
    """

    view_weight: float = 10.0
    """Weight of the squared distance of the two views' probabilities, after its ramp."""
    ramp: float = 0.05
    """Share t of the second stage in which that weight rises, by exp(-5 (1 - progress / t)^2)."""
    transfer_share: float = 0.5
    """The share of training in which the labels alone shape the features: the first stage."""
    hard_threshold: float = 0.95
    """Least probability for a hard cluster of an image, which only L_div reads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.ramp <= 1, f"ramp = {self.ramp} must be between 0 and 1.")
        require(
            0 <= self.transfer_share < 1,
            f"transfer_share = {self.transfer_share} must be at least 0 and below 1.",
        )

    @property
    def traits(self) -> Traits:
        """All heads are clusters: the k-means centers of the features after the first stage."""
        return Traits(
            views=Views(labeled=("weak", "weak"), unlabeled=("weak", "weak")),
            head=HeadSpec("student", init="data"),
            novel="match",
            head_starts_at=self.transfer_share,
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The classifier."""
        memory = nn.Module()
        memory.classifier = LinearHead(sizes.num_features, sizes.num_seen, generator)
        return memory

    @torch.no_grad()
    def decide(self, step: Step) -> DTCTargets:
        """Aims by the first view; the labels are no clusters, so L_div divides hard clusters."""
        begun = step.progress >= self.transfer_share
        confidence, hard = self.sigma.probs(step.logits).max(-1)
        taken = (confidence >= self.hard_threshold) & begun
        aims = sharpen(self.sigma.probs(step.both(step.logits, 0)))
        progress = (step.progress - self.transfer_share) / (1 - self.transfer_share)
        return DTCTargets(
            torch.where(taken, hard, NO_CLASS), aims, begun, gaussian_ramp(progress, self.ramp)
        )

    def risk(self, step: Step, targets: DTCTargets, logits: Tensor) -> Terms:
        """KL(p || q) on view 1, and its distance from the max-logits' q on view 2.

        Both are means over images and clusters, as the weight is meant for, and 0 before there are
        clusters.
        """
        if not targets.begun:
            nothing = logits.new_zeros(())
            return Term("clusters", nothing), Term("views", nothing, self.view_weight)
        own = step.both(logits, 0).log_softmax(-1)
        tiny = torch.finfo(own.dtype).tiny
        divergence = targets.aims * (targets.aims.clamp_min(tiny).log() - own)
        gaps = (own.exp() - self.sigma.probs(step.both(step.logits, 1))).square()
        return (
            Term("clusters", divergence.mean()),
            Term("views", targets.ramp * gaps.mean(), self.view_weight),
        )

    def other_terms(self, step: Step, targets: DTCTargets) -> Terms:
        """The transfer, in the first stage: cross entropy of the labels on the classifier."""
        if targets.begun:
            return (Term("transfer", step.logits.new_zeros(())),)
        known = step.memory.get_submodule("classifier")(step.labeled(step.output.features))
        return (Term("transfer", self.sigma.risk(known.logits, step.labels).mean()),)


def sharpen(probs: Tensor) -> Tensor:
    """(N, C): p_nc = (q_nc^2 / f_c) / sum over c' of (q_nc'^2 / f_c'), f the mean of q.

    f is that of the batch: one that is renewed every epoch lets a cluster swallow others meanwhile.

    Args:
        probs: (N, C), q.
    """
    shares = probs.mean(0)
    weights = probs.square() / shares.clamp_min(torch.finfo(shares.dtype).tiny)
    return weights / weights.sum(-1, keepdim=True)
