"""OwMatch: balanced self-labels conditioned on the labels, and thresholds for each class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from protofission.core.checks import check_sizes
from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Sizes, Step, Targets, Term, Terms, Views
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.balance import balance
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class OwMatchTargets(Targets):
    """Self-labels and pseudo-labels of all images, labeled first."""

    codes: Tensor
    """(2 (L + U), C): self-labels of each weak view, from the other one; rows sum to 1."""
    pseudo_labels: Tensor
    """(L + U,) in [0, C)."""
    trusted: Tensor
    """(L + U,): 1 where the pseudo-label is learned, else 0."""


@dataclass(frozen=True)
class OwMatch(Method[OwMatchTargets]):
    """Labels, conditional self-labels, and pseudo-labels under hierarchical thresholds."""

    self_label_weight: float = 1.0
    """Weight of the cross entropy with the self-labels."""
    pseudo_weight: float = 1.0
    """Weight of the risk of the trusted images, averaged over all images."""
    sharpness: float = 0.05
    """epsilon: divides the cosines before they are balanced; the less, the harder a self-label."""
    rounds: int = 10
    """Iterations of Sinkhorn-Knopp."""
    queue: int = 1024
    """Rows that are balanced together: the batch's, and as many earlier ones as there is room."""
    conditional: bool = True
    """Whether the cosine of a labeled image with its class counts as 1 in the balance."""
    momentum: float = 0.99
    """The share that the running means behind the thresholds keep at a step."""
    lowest: float = 0.3
    """Lower bound of all thresholds."""

    traits = Traits(
        views=Views(labeled=("weak", "weak", "strong"), unlabeled=("weak", "weak", "strong")),
        head=HeadSpec("cosine"),
        novel="heads",
        needs_cosines=True,  # self-labels are made of them
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(10**6, rounds=self.rounds, queue=self.queue)
        require(self.sharpness > 0, f"sharpness = {self.sharpness} must be above 0.")
        require(
            0 <= self.momentum < 1, f"momentum = {self.momentum} must be at least 0 and below 1."
        )
        require(0 <= self.lowest <= 1, f"lowest = {self.lowest} must be between 0 and 1.")

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """Earlier cosines of both views, and how sure the model is of groups and classes."""
        memory, groups = nn.Module(), _groups(sizes.num_classes, sizes.num_seen)
        even = 1 / groups.bincount(minlength=2).clamp_min(1)
        memory.register_buffer("earlier", torch.zeros(2, self.queue, sizes.num_classes))
        memory.register_buffer("queued", torch.zeros((), dtype=torch.long))
        memory.register_buffer("confidence", even)
        memory.register_buffer("shares", even[groups])
        return memory

    @torch.no_grad()
    def decide(self, step: Step) -> OwMatchTargets:
        """Self-labels by balance, pseudo-labels and trust by the second weak view."""
        images = step.layout.labeled + step.layout.unlabeled
        earlier = min(int(step.memory.get_buffer("queued")), max(self.queue - images, 0))
        codes = [
            balance(torch.cat([old[self.queue - earlier :], new]) / self.sharpness, self.rounds)
            for old, new in zip(step.memory.get_buffer("earlier"), self.scores(step), strict=True)
        ]
        confidence, pseudo_labels = self.sigma.probs(step.both(step.logits, 1)).max(-1)
        trusted = confidence > self.thresholds(step)[pseudo_labels]
        classes, strong = label_rows(step), step.layout.unlabeled_rows(2)
        pseudo_classes = torch.where(trusted, pseudo_labels, NO_CLASS)
        classes[strong] = pseudo_classes[step.layout.labeled :]
        return OwMatchTargets(
            classes,
            torch.cat([codes[1][-images:], codes[0][-images:]]),
            pseudo_labels,
            trusted.to(confidence),
        )

    def scores(self, step: Step) -> Tensor:
        """(2, L + U, C): the cosines of the weak views, those of labels with their class at 1."""
        cosines = step.output.nearest.detach()
        scores = torch.stack([step.both(cosines, 0), step.both(cosines, 1)])
        if self.conditional:
            images = torch.arange(step.layout.labeled, device=scores.device)
            scores[:, images, step.labels] = 1.0
        return scores

    def thresholds(self, step: Step) -> Tensor:
        """(C,): the mean confidence of a group, seen or novel, times a class's share in it.

        The share is that of the mean probability, relative to the largest of the group.
        """
        shares = step.memory.get_buffer("shares")
        groups = _groups(len(shares), step.num_seen, shares.device)
        largest = shares.new_zeros(2).scatter_reduce(0, groups, shares, "amax")
        found = step.memory.get_buffer("confidence")[groups] * shares / largest[groups]
        return found.clamp_min(self.lowest)

    def risk(self, step: Step, targets: OwMatchTargets, logits: Tensor) -> Terms:
        """Cross entropy with labels, with self-labels, and with trusted pseudo-labels."""
        weak = torch.cat([step.both(logits, 0), step.both(logits, 1)]).log_softmax(-1)
        pseudo = self.sigma.risk(step.both(logits, 2), targets.pseudo_labels)
        labeled = step.labeled(logits)
        return (
            Term("supervised", self.sigma.risk(labeled, step.labels).mean()),
            Term("self_labels", -(targets.codes * weak).sum(-1).mean(), self.self_label_weight),
            Term("pseudo", (pseudo * targets.trusted).mean(), self.pseudo_weight),
        )

    @torch.no_grad()
    def update(self, step: Step, targets: OwMatchTargets) -> None:
        """Queue the batch, and move the running means towards it."""
        queue, queued = step.memory.get_buffer("earlier"), step.memory.get_buffer("queued")
        scores = self.scores(step)
        queue.copy_(torch.cat([queue, scores.to(queue)], 1)[:, -self.queue :])
        queued.copy_((queued + scores.shape[1]).clamp_max(self.queue))
        probs = self.sigma.probs(step.both(step.logits.detach(), 1))
        sure, taken = probs.max(-1)
        rows = torch.stack([taken < step.num_seen, taken >= step.num_seen]).to(probs)  # (2, L + U)
        number = rows.sum(1)
        means = rows @ torch.cat([sure[:, None], probs], 1) / number.clamp_min(1)[:, None]
        groups = _groups(probs.shape[1], step.num_seen, probs.device)
        heads = torch.arange(len(groups), device=probs.device)
        share = (1 - self.momentum) * (number > 0)  # a group that nobody is taken for stays
        confidence, shares = step.memory.get_buffer("confidence"), step.memory.get_buffer("shares")
        confidence.lerp_(means[:, 0].to(confidence), share.to(confidence))
        shares.lerp_(means[:, 1:][groups, heads].to(shares), share[groups].to(shares))


def _groups(num_classes: int, num_seen: int, device: torch.device | None = None) -> Tensor:
    """(C,): 0 for the heads of seen classes, 1 for those of novel ones."""
    return (torch.arange(num_classes, device=device) >= num_seen).long()
