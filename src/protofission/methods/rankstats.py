"""RankStats (AutoNovel): pairs of images are alike if the same features are largest in both."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from protofission.core.checks import check_sizes
from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Step, Targets, Term, Terms, Views
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.ramps import gaussian_ramp

TINY = 1e-7
"""Added to a probability under a logarithm."""


@dataclass(frozen=True)
class RankStatsTargets(Targets):
    """The pairs of unlabeled images that are taken for one class."""

    alike: Tensor
    """(U, U): 1 where they are, else 0."""
    begun: bool
    """Whether unlabeled images are looked at: before, labels alone shape the features."""
    ramp: float
    """Weight of the agreement of views, in (0, 1]."""


@dataclass(frozen=True)
class RankStats(Method[RankStatsTargets]):
    """Cross entropy on labels, pairs of unlabeled images by their largest features, and views.

    One head for all classes, which labels pin for the seen ones. Which unlabeled images are novel
    is not asked: all of them make pairs, over all heads.
    """

    top: int = 5
    """k: two images are alike if the k features of largest magnitude are the same, in any order."""
    pair_weight: float = 5.0
    """Weight of the binary cross entropy of pairs."""
    view_weight: float = 1.0
    """Weight of the squared distance of the two views' probabilities, after its ramp."""
    ramp: float = 0.25
    """Share t of the second stage in which that weight rises, by exp(-5 (1 - progress / t)^2)."""
    transfer_share: float = 0.3
    """The share of training in which the labels alone shape the features: the first stage."""
    hard_threshold: float = 0.95
    """Least probability for a hard class of an unlabeled image, which only L_div reads."""

    traits = Traits(
        views=Views(labeled=("weak", "weak"), unlabeled=("weak", "weak")), novel="heads"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(top=self.top)
        require(0 <= self.ramp <= 1, f"ramp = {self.ramp} must be between 0 and 1.")
        require(
            0 <= self.transfer_share < 1,
            f"transfer_share = {self.transfer_share} must be at least 0 and below 1.",
        )

    @torch.no_grad()
    def decide(self, step: Step) -> RankStatsTargets:
        """Pairs by the features of the first view, hard classes for L_div."""
        begun = step.progress >= self.transfer_share
        confidence, hard = self.sigma.probs(step.logits).max(-1)
        labels = label_rows(step)
        taken = (labels == NO_CLASS) & (confidence >= self.hard_threshold) & begun
        alike = same_top(step.unlabeled(step.output.features), self.top)
        progress = (step.progress - self.transfer_share) / (1 - self.transfer_share)
        return RankStatsTargets(
            torch.where(taken, hard, labels),
            alike.to(confidence),
            begun,
            gaussian_ramp(progress, self.ramp),
        )

    def risk(self, step: Step, targets: RankStatsTargets, logits: Tensor) -> Terms:
        """These logits of view 1 against the max-logits of view 2, in pairs and image by image."""
        pairs = gaps = logits.new_zeros(1)
        known = step.labeled(logits)
        if targets.begun:
            first = self.sigma.probs(step.both(logits, 0))
            second = self.sigma.probs(step.both(step.logits, 1))
            labeled = len(step.labels)
            pairs = pair_risk(first[labeled:], second[labeled:], targets.alike)
            gaps = (first - second).square().sum(-1)
        else:  # labels that say "not novel" would close the heads of novel classes for good
            known = known[:, : step.num_seen]
        return (
            Term("supervised", self.sigma.risk(known, step.labels).mean()),
            Term("pairs", pairs.mean(), self.pair_weight),
            Term("views", targets.ramp * gaps.mean(), self.view_weight),
        )


def same_top(features: Tensor, top: int) -> Tensor:
    """(N, N): whether the `top` features of largest magnitude of two rows are the same set."""
    number = min(top, features.shape[-1])
    largest = features.abs().topk(number, dim=-1).indices
    sets = torch.zeros_like(features).scatter_(-1, largest, 1.0)
    return sets @ sets.T == number


def pair_risk(probs: Tensor, other_probs: Tensor, alike: Tensor) -> Tensor:
    """(N, N): -log < p_i, p_j > of rows that are alike, -log(1 - < p_i, p_j >) of those not.

    Args:
        probs, other_probs: (N, C).
        alike: (N, N), 1 or 0.
    """
    agreed = probs @ other_probs.T
    apart = (1 - agreed).clamp_min(0)
    return -(alike * (agreed + TINY).log() + (1 - alike) * (apart + TINY).log())
