"""A reading of NACH: pairs for unseen classes, and a threshold that waits for them.

After the abstract of Guo et al., 2022; docs/methods.md names every choice of ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Sizes, Step, Targets, Term, Terms, Views
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.orca import nearest_partners, pair_loss
from protofission.methods.parts.entropy import negative_entropy
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class NachTargets(Targets):
    """Partners and pseudo-labels of the unlabeled images, by their weak views."""

    partners: Tensor
    """(U,): the index of each one's partner among all images, labeled first."""
    paired: Tensor
    """(U,): 1 where the partner is near enough, else 0."""
    pseudo_labels: Tensor
    """(U,) in [0, C)."""
    trusted: Tensor
    """(U,): 1 where the pseudo-label is learned, else 0."""


@dataclass(frozen=True)
class Nach(Method[NachTargets]):
    """Labels, near pairs, and aligned pseudo-labels whose threshold is lower for novel classes."""

    pair_weight: float = 1.0
    """Weight of the agreement of pairs."""
    unlabeled_weight: float = 1.0
    """Weight of the risk of trusted pseudo-labels, averaged over the pool's images."""
    entropy_weight: float = 1.0
    """Weight of the negative entropy of the mean probability."""
    threshold: float = 0.95
    """A pseudo-label of a seen class is trusted from this aligned probability on."""
    momentum: float = 0.99
    """The share that the running means keep at a step."""

    traits = Traits(
        views=Views(labeled=("weak",), unlabeled=("weak", "strong")),
        head=HeadSpec("cosine"),
        novel="heads",
        reading=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.threshold <= 1, f"threshold = {self.threshold} must be above 0, at most 1."
        )
        require(
            0 <= self.momentum < 1, f"momentum = {self.momentum} must be at least 0 and below 1."
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The running use of the heads by the pool, and how sure seen and novel heads are."""
        memory = nn.Module()
        even = torch.full((sizes.num_classes,), 1 / sizes.num_classes)
        memory.register_buffer("use", even)
        memory.register_buffer("confidence", torch.ones(2))
        return memory

    @torch.no_grad()
    def decide(self, step: Step) -> NachTargets:
        """Partners by features, pseudo-labels by aligned probabilities and their threshold."""
        features = step.both(step.output.features, 0)
        partners = nearest_partners(features, step.layout.labeled)
        units = F.normalize(features, dim=-1)
        near = (units[step.layout.labeled :] * units[partners]).sum(-1)
        paired = near >= likeness_of_classes(units[: step.layout.labeled], step.labels)
        confidence, pseudo_labels = self.aligned(step).max(-1)
        trusted = confidence >= self.thresholds(step)[(pseudo_labels >= step.num_seen).long()]
        classes = label_rows(step)
        classes[step.layout.unlabeled_rows(1)] = torch.where(trusted, pseudo_labels, NO_CLASS)
        return NachTargets(
            classes, partners, paired.to(confidence), pseudo_labels, trusted.to(confidence)
        )

    def aligned(self, step: Step) -> Tensor:
        """(U, C): the pool's probabilities over the running use of the heads, made to sum to 1."""
        use = step.memory.get_buffer("use")
        probs = self.sigma.probs(step.unlabeled(step.logits.detach()))
        return F.normalize(probs / use.clamp_min(torch.finfo(use.dtype).tiny), p=1, dim=-1)

    def thresholds(self, step: Step) -> Tensor:
        """(2,): of seen heads, and of novel ones, which is lower as these are less sure."""
        seen, novel = step.memory.get_buffer("confidence")
        return self.threshold * torch.stack([torch.ones_like(seen), (novel / seen).clamp_max(1)])

    def risk(self, step: Step, targets: NachTargets, logits: Tensor) -> Terms:
        """R of the labels, pairs (weak view against strong), R of pseudo-labels on strong views."""
        first = step.both(logits, 0)
        own = step.unlabeled(logits, 0).log_softmax(-1)
        others = torch.cat([step.labeled(step.logits), step.unlabeled(step.logits, 1)])
        pairs = pair_loss(own, others[targets.partners].log_softmax(-1)) * targets.paired
        pseudo = self.sigma.risk(step.unlabeled(logits, 1), targets.pseudo_labels)
        return (
            Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),
            Term("pairs", pairs.sum() / targets.paired.sum().clamp_min(1), self.pair_weight),
            Term("pseudo", (pseudo * targets.trusted).mean(), self.unlabeled_weight),
            Term("entropy", negative_entropy(self.sigma.probs(first).mean(0)), self.entropy_weight),
        )

    @torch.no_grad()
    def update(self, step: Step, targets: NachTargets) -> None:
        """Move the running means towards the batch's."""
        probs = self.sigma.probs(step.unlabeled(step.logits.detach()))
        use, confidence = step.memory.get_buffer("use"), step.memory.get_buffer("confidence")
        sure, taken = self.aligned(step).max(-1)
        groups = torch.stack([taken < step.num_seen, taken >= step.num_seen]).to(probs)
        number = groups.sum(1)
        share = (1 - self.momentum) * (number > 0)  # a group that nobody is taken for stays
        confidence.lerp_((groups @ sure / number.clamp_min(1)).to(confidence), share.to(confidence))
        use.lerp_(probs.mean(0).to(use), 1 - self.momentum)


def likeness_of_classes(units: Tensor, labels: Tensor) -> Tensor:
    """The mean cosine of two labeled images of one class; 1 where no class has two.

    Args:
        units: (L, D) of length 1.
    """
    pairs = (labels[:, None] == labels).to(units)
    pairs.fill_diagonal_(0)
    number = pairs.sum()
    return torch.where(number > 0, (units @ units.T * pairs).sum() / number.clamp_min(1), 1.0)
