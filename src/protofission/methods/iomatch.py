"""IOMatch: an open-set head learns all outliers of the pool as one more class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.checks import WIDEST, check_sizes
from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Output, Sizes, Step, Targets, Term, Terms, Views
from protofission.fission import random_directions
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.one_vs_all import OneVsAll, OneVsAllOutput, ova_loss


class Opinions(NamedTuple):
    """Outputs of the heads on the projection."""

    binary: OneVsAllOutput
    open_logits: Tensor
    """(N, S + 1): the seen classes, then all outliers as one."""


class OpenHeads(nn.Module):
    """A projection of two layers; multi-binary heads and an open-set head of S + 1 on it.

    It also keeps the mean probabilities of the last batches, which alignment divides by.
    """

    recent: Tensor

    def __init__(self, sizes: Sizes, width: int, batches: int, generator: torch.Generator) -> None:
        super().__init__()
        features, seen = sizes.num_features, sizes.num_seen
        self.hidden = nn.Parameter(random_directions(features, features, generator=generator))
        self.hidden_bias = nn.Parameter(torch.zeros(features))
        self.projection = nn.Parameter(random_directions(width, features, generator=generator))
        self.projection_bias = nn.Parameter(torch.zeros(width))
        self.binary = OneVsAll(width, seen, generator)
        self.open = nn.Parameter(random_directions(seen + 1, width, generator=generator))
        self.open_bias = nn.Parameter(torch.zeros(seen + 1))
        self.register_buffer("recent", torch.zeros(batches, seen))

    def forward(self, features: Tensor) -> Opinions:
        """(N, D) features to both heads' answers."""
        hidden = F.linear(features, self.hidden, self.hidden_bias).relu()
        projected = F.linear(hidden, self.projection, self.projection_bias)
        return Opinions(self.binary(projected), F.linear(projected, self.open, self.open_bias))


@dataclass(frozen=True)
class IOMatchTargets(Targets):
    """Soft targets of the unlabeled images, by their weak views."""

    closed: Tensor
    """(U, S): aligned probabilities of the classifier, which the strong view is to give."""
    trusted: Tensor
    """(U,): 1 where they are learned, else 0."""
    opened: Tensor
    """(U, S + 1): the open-set target."""
    sure: Tensor
    """(U,): 1 where it is learned, else 0; all 0 in the warm-up."""
    recent: Tensor
    """(batches, S): mean probabilities of the last batches, with this one's."""


@dataclass(frozen=True)
class IOMatch(Method[IOMatchTargets]):
    """The classifier learns from sure inliers, the open-set head from inliers and outliers."""

    p_cut: float = 0.95
    """The classifier learns an image from this aligned probability of a class on."""
    q_cut: float = 0.5
    """The open-set head learns an image from this probability of a class, or of none, on."""
    outlier_below: float = 0.5
    """The classifier learns an image only where its outlier probability is below this."""
    align: bool = True
    """Whether probabilities are divided by their recent mean, so that classes are used evenly."""
    align_batches: int = 128
    """Number of batches in that mean."""
    width: int = 128
    """Features of the projection."""
    open_warmup: float = 0.05
    """The share of training before which the open-set head does not learn: its first epoch."""
    unlabeled_weight: float = 1.0
    """Weight of the classifier's loss on the pool, averaged over all unlabeled images."""
    binary_weight: float = 1.0
    """Weight of the multi-binary loss of the labeled images."""
    open_weight: float = 1.0
    """Weight of the open-set loss, averaged over all unlabeled images."""

    traits = Traits(views=Views(labeled=("weak",), unlabeled=("weak", "strong")))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("p_cut", "q_cut", "outlier_below", "open_warmup"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} = {value} must be between 0 and 1.")
        check_sizes(WIDEST, width=self.width, align_batches=self.align_batches)

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The heads on the projection, which learn by the recipe."""
        return OpenHeads(sizes, self.width, self.align_batches, generator)

    @torch.no_grad()
    def decide(self, step: Step) -> IOMatchTargets:
        """Classifier and multi-binary heads make the open-set target together."""
        probs = self.sigma.probs(step.unlabeled(step.logits, 0))
        recent = torch.cat([step.memory.get_buffer("recent")[1:], probs.mean(0, keepdim=True)])
        closed = align(probs, recent.mean(0)) if self.align else probs
        binary = _opinions(step.memory, step.unlabeled(step.output.features, 0)).binary
        opened = open_targets(closed, binary)
        confidence, likeliest = closed.max(-1)
        trusted = (confidence >= self.p_cut) & (opened[:, -1] < self.outlier_below)
        sure = (opened.amax(-1) >= self.q_cut) & (step.progress >= self.open_warmup)
        classes = label_rows(step)
        classes[step.layout.unlabeled_rows(1)] = torch.where(trusted, likeliest, NO_CLASS)
        return IOMatchTargets(classes, closed, trusted.to(probs), opened, sure.to(probs), recent)

    def risk(self, step: Step, targets: IOMatchTargets, logits: Tensor) -> Terms:
        """R of the labels on the weak view, soft labels of sure inliers on the strong view."""
        inliers = F.cross_entropy(step.unlabeled(logits, 1), targets.closed, reduction="none")
        return (
            Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),
            Term("pseudo", (inliers * targets.trusted).mean(), self.unlabeled_weight),
        )

    def other_terms(self, step: Step, targets: IOMatchTargets) -> Terms:
        """The losses of the heads on the projection."""
        opinions = _opinions(step.memory, step.output.features)
        labeled = OneVsAllOutput(*(step.labeled(v) for v in opinions.binary))
        strong = step.unlabeled(opinions.open_logits, 1)
        opened = F.cross_entropy(strong, targets.opened, reduction="none")
        return (
            Term("binary", ova_loss(labeled, step.labels).mean(), self.binary_weight),
            Term("open", (opened * targets.sure).mean(), self.open_weight),
        )

    @torch.no_grad()
    def update(self, step: Step, targets: IOMatchTargets) -> None:
        """Remember the mean probabilities of this batch."""
        step.memory.get_buffer("recent").copy_(targets.recent)

    @torch.no_grad()
    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """(N,): the log-odds of the open-set head's last class, that of the outliers."""
        logits = _opinions(memory, output.features).open_logits
        return logits[:, -1] - logits[:, :-1].logsumexp(-1)


def _opinions(memory: nn.Module, features: Tensor) -> Opinions:
    return cast(Opinions, memory(features))


def align(probs: Tensor, usual: Tensor) -> Tensor:
    """(U, S): p / usual, scaled to sum to 1; the scale of (S,) `usual` means nothing."""
    divided = probs / usual.clamp_min(torch.finfo(probs.dtype).tiny)
    return divided / divided.sum(-1, keepdim=True)


def open_targets(closed: Tensor, binary: OneVsAllOutput) -> Tensor:
    """(U, S + 1): q[c] = p[c] p(of c), and the rest, sum p[c] p(not of c), for the outliers."""
    outside = (closed * binary.outside.exp()).sum(-1, keepdim=True)
    return torch.cat([closed * binary.inside.exp(), outside], 1)
