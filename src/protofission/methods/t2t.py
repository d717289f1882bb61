"""T2T, Trash to Treasure: pseudo-labels for images that a net matches with their class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.checks import WIDEST, check_sizes
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
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.contrast import nt_xent
from protofission.methods.parts.linear_map import LinearMap
from protofission.methods.parts.ramps import linear_ramp


@dataclass(frozen=True)
class T2TTargets(Targets):
    """Pseudo-labels and hard negatives, by the weak views."""

    hard: Tensor
    """(L,): the likeliest wrong class of each labeled image."""
    likeliest: Tensor
    """(U,): the likeliest class of each unlabeled image."""
    probs: Tensor
    """(U, C): sharpened probabilities of the weak views."""
    trusted: Tensor
    """(U,): 1 where the strong view learns them, else 0."""


class Matching(nn.Module):
    """The matching net: two layers over an image's features and a class's embedding.

    Beside it the projection in which the pretext task compares images, and the threshold.
    """

    threshold: Tensor

    def __init__(
        self, width: int, num_classes: int, hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.images = LinearMap(width, hidden, generator)
        self.classes = nn.Parameter(torch.randn(num_classes, hidden, generator=generator))
        self.score = LinearMap(hidden, 1, generator)
        self.projection = LinearMap(width, hidden, generator)
        self.register_buffer("threshold", torch.full((), 0.5))

    def forward(self, features: Tensor) -> Tensor:
        """(N, C): the logits of "this image matches this class", for all pairs."""
        hidden = (self.images(features)[:, None] + self.classes).relu()
        return cast(Tensor, self.score(hidden)).squeeze(-1)


@dataclass(frozen=True)
class T2T(Method[T2TTargets]):
    """A pretext task for the whole pool; pseudo-labels for images that match a class.

    matching: binary cross entropy of an image with its class (1), the likeliest wrong class (0) and
    any other class (0), a third each. doubt: the binary entropy of an unlabeled image's matches,
    with its likeliest class and with any other, a half each. agreement: KL of the strong view from
    the sharpened weak one, where that is sure and matches. "Any other" is the mean over classes.
    """

    threshold: float = 0.8
    """An unlabeled image is trusted from this probability of the weak view on, if it matches."""
    sharpen_temperature: float = 0.4
    """Temperature of the logits of the weak view before the softmax that the strong view learns."""
    matching_weight: float = 1.0
    """Weight of the matching loss of the labeled images."""
    doubt_weight: float = 1.0
    """Weight of the entropy of the pool's matches, after the warm-up."""
    agreement_weight: float = 1.0
    """Weight of the agreement of trusted images, after the warm-up."""
    pretext_weight: float = 1.0
    """Weight of the contrast of weak and strong views."""
    pretext_temperature: float = 0.5
    """Temperature of that contrast."""
    warmup: float = 0.2
    """The share of training in which the pool is for the pretext task alone."""
    ramp: float = 0.16
    """The share of training after it in which the pool's other losses come to their weights."""
    hidden: int = 128
    """The width of the matching net, and of the projection of the pretext task."""

    traits = Traits(
        views=Views(labeled=("weak",), unlabeled=("weak", "strong")),
        survey_before_epoch=True,  # the threshold of a match is read off the whole pool
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(WIDEST, hidden=self.hidden)
        require(0 <= self.threshold <= 1, f"threshold = {self.threshold} must be between 0 and 1.")
        for name in ("warmup", "ramp"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} = {value} must be between 0 and 1.")

    def memory(self, sizes: Sizes, generator: torch.Generator) -> Matching:
        """The matching net."""
        require(
            sizes.num_classes > 1,
            "t2t matches images with wrong classes too, and there is one class only: label "
            "images of two classes or more.",
        )
        return Matching(sizes.num_features, sizes.num_classes, self.hidden, generator)

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """The threshold that divides the pool's matches best in two, by Otsu."""
        matches = [own_match(output, memory).sigmoid() for output in survey.pool]
        memory.get_buffer("threshold").copy_(otsu(torch.cat(matches)))

    def strength(self, progress: float) -> float:
        """The share of their weights that the pool's losses have: 0, then rising to 1."""
        if progress < self.warmup:
            return 0.0
        return linear_ramp(progress - self.warmup, self.ramp)

    @torch.no_grad()
    def decide(self, step: Step) -> T2TTargets:
        """Trust by the weak view: sure of its class, and a match of it above the threshold."""
        weak = step.unlabeled(step.logits)
        confidence, likeliest = self.sigma.probs(weak).max(-1)
        matches = step.memory(step.unlabeled(step.output.features)).sigmoid()
        matches = matches.gather(1, likeliest[:, None])[:, 0]
        known = matches > step.memory.get_buffer("threshold")
        trusted = known & (confidence >= self.threshold) & (self.strength(step.progress) > 0)
        wrong = step.labeled(step.logits).scatter(1, step.labels[:, None], -torch.inf)
        classes = label_rows(step)
        classes[step.layout.unlabeled_rows(1)] = torch.where(trusted, likeliest, NO_CLASS)
        return T2TTargets(
            classes,
            hard=wrong.argmax(-1),
            likeliest=likeliest,
            probs=(weak / self.sharpen_temperature).softmax(-1),
            trusted=trusted.to(confidence),
        )

    def risk(self, step: Step, targets: T2TTargets, logits: Tensor) -> Terms:
        """R of the labels, and the agreement of strong views with what weak ones say."""
        strong = step.unlabeled(logits, 1).log_softmax(-1)
        apart = (torch.xlogy(targets.probs, targets.probs) - targets.probs * strong).sum(-1)
        agreement = (apart * targets.trusted).sum() / targets.trusted.sum().clamp_min(1)
        weight = self.agreement_weight * self.strength(step.progress)
        return (
            Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),
            Term("agreement", agreement, weight),
        )

    def other_terms(self, step: Step, targets: T2TTargets) -> Terms:
        """The matching net's losses, and the pretext task on the whole pool."""
        features = step.output.features
        labeled = step.memory(step.labeled(features))
        weak, strong = step.unlabeled(features), step.unlabeled(features, 1)
        project = cast(Matching, step.memory).projection
        doubt = doubt_loss(step.memory(weak), targets.likeliest)
        return (
            Term(
                "matching",
                matching_loss(labeled, step.labels, targets.hard),
                self.matching_weight,
            ),
            Term("doubt", doubt, self.doubt_weight * self.strength(step.progress)),
            Term(
                "pretext",
                nt_xent(project(weak), project(strong), self.pretext_temperature),
                self.pretext_weight,
            ),
        )

    @torch.no_grad()
    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """(N,): minus the logit of "this image matches its predicted class"."""
        return -own_match(output, memory)


def own_match(output: Output, memory: nn.Module) -> Tensor:
    """(N,): the matching logit of each image with its predicted class."""
    predicted = output.logits.argmax(-1, keepdim=True)
    return cast(Tensor, memory(output.features)).gather(1, predicted)[:, 0]


def matching_loss(scores: Tensor, labels: Tensor, hard: Tensor) -> Tensor:
    """-log of a match with the class, of none with the hard one, of none with any other.

    Args:
        scores: (L, C) logits.
        labels, hard: (L,), two different classes.
    """
    own, wrong = F.softplus(-scores), F.softplus(scores)
    picked = own.gather(1, labels[:, None]) + wrong.gather(1, hard[:, None])
    easy = wrong.scatter(1, torch.stack([labels, hard], 1), 0.0).sum(1, keepdim=True)
    return (picked + easy / max(scores.shape[1] - 2, 1)).mean() / 3


def doubt_loss(scores: Tensor, likeliest: Tensor) -> Tensor:
    """The binary entropy of the match with the likeliest class, and of that with any other.

    Args:
        scores: (U, C) logits.
        likeliest: (U,).
    """
    entropy = F.softplus(scores) - scores * scores.sigmoid()
    first = entropy.gather(1, likeliest[:, None])[:, 0]
    return (first + (entropy.sum(1) - first) / (scores.shape[1] - 1)).mean() / 2


def otsu(values: Tensor) -> Tensor:
    """The largest value of the lower one of two groups, where w0 w1 (m1 - m0)^2 is largest.

    w are the shares of the groups, m their means.
    """
    ordered = values.double().sort().values
    count = torch.arange(1, len(ordered), dtype=ordered.dtype, device=ordered.device)
    below = ordered.cumsum(0)
    above = below[-1] - below[:-1]
    gaps = above / (len(ordered) - count) - below[:-1] / count
    between = count * (len(ordered) - count) * gaps.square()
    return ordered[between.argmax()] if len(count) else ordered[0]
