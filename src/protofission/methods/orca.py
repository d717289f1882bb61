"""ORCA: cross entropy with an adaptive margin for seen classes, pairs for novel ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.devices import send
from protofission.core.errors import require
from protofission.core.records import NO_CLASS, Sizes, Step, Survey, Targets, Term, Terms, Views
from protofission.core.threads import all_threads
from protofission.methods.base import Method, Traits
from protofission.methods.parts.entropy import unevenness
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class OrcaTargets(Targets):
    """Partners and margin of a step."""

    partners: Tensor
    """(L + U,): the index of each image's partner among all images, labeled first."""
    margin: Tensor
    """A scalar, added to the true logit of a labeled image."""
    entropy_weight: float
    use: Tensor | None
    """(C,): the expected mean probability of each head, if the share of novel images is known."""


@dataclass(frozen=True)
class Orca(Method[OrcaTargets]):
    """Margin cross entropy on labels, agreement of pairs, and an even use of the heads."""

    margin_cap: float = 0.5
    """The margin is T min(u, cap), u the mean uncertainty of the pool before the epoch."""
    margin_on: Literal["max", "both"] = "both"
    """Logits with the margin: the max-logits alone, or with fission each slot's too."""
    pair_weight: float = 1.0
    """Weight of the pairwise loss, Eq. 11."""
    pair_space: Literal["feature", "logit", "prob"] = "feature"
    """The space in which an unlabeled image's nearest neighbor is searched, by cosine."""
    pair_among: Literal["batch", "unlabeled"] = "batch"
    """The images among which it is searched: all of the batch, or the unlabeled ones."""
    pair_labeled: bool = True
    """Whether labeled images have partners too, or unlabeled ones only."""
    pair_detach: bool = False
    """Whether the partner's side is kept from the gradient."""
    entropy_weight: float = 1.0
    """Weight of the negative entropy of the mean probability."""
    entropy_on: Literal["max", "both"] = "both"
    """Logits with that entropy: the max-logits alone, or with fission each slot's too."""
    novel_share: float | None = None
    """Share of the pool that is novel, by which heads are kept in use; if None, all are alike."""
    hard_threshold: float = 0.95
    """Least probability for a hard class of an unlabeled image, which only L_div reads."""

    traits = Traits(
        views=Views(labeled=("weak", "weak"), unlabeled=("weak", "weak")),
        head=HeadSpec("cosine"),
        novel="heads",
        survey_before_epoch=True,  # the margin follows the pool's uncertainty
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.margin_cap >= 0, f"margin_cap = {self.margin_cap} must be at least 0.")
        require(
            self.novel_share is None or 0 < self.novel_share < 1,
            f"novel_share = {self.novel_share} must be between 0 and 1, or none.",
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The uncertainty of the pool."""
        memory = nn.Module()
        memory.register_buffer("uncertainty", torch.ones(()))
        return memory

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """u = 1 - mean over the pool of the largest probability."""
        certainty, images = 0.0, 0
        for output in survey.pool:
            certainty += float(self.sigma.probs(output.logits).amax(-1).double().sum())
            images += len(output.logits)
        memory.get_buffer("uncertainty").fill_(1 - certainty / images)

    @torch.no_grad()
    def decide(self, step: Step) -> OrcaTargets:
        """Partners by view 1, the margin by the last survey, hard classes for L_div."""
        confidence, hard = self.sigma.probs(step.logits).max(-1)
        classes = torch.where(confidence >= self.hard_threshold, hard, NO_CLASS)
        for view in range(step.layout.labeled_views):
            classes[step.layout.labeled_rows(view)] = step.labels
        uncertainty = step.memory.get_buffer("uncertainty")
        margin = step.output.temperature * uncertainty.clamp_max(self.margin_cap)
        return OrcaTargets(
            classes, self.partners(step), margin, self.entropy_weight, self.expected_use(step)
        )

    def expected_use(self, step: Step) -> Tensor | None:
        """(C,): the mean probability of each head in a batch, if a share of the pool is novel.

        Labeled images belong to their classes; of the others, known classes have even parts of
        1 - novel_share, and novel heads of novel_share.
        """
        if self.novel_share is None:
            return None
        heads, seen = step.logits.shape[-1], step.num_seen
        parts = step.logits.new_full((heads,), self.novel_share / max(heads - seen, 1))
        parts[:seen] = (1 - self.novel_share) / seen
        labeled, unlabeled = torch.bincount(step.labels, minlength=heads), step.layout.unlabeled
        return (labeled + unlabeled * parts) / (len(step.labels) + unlabeled)

    def partners(self, step: Step) -> Tensor:
        """(L + U,): of a labeled image, a random one of its class; otherwise the nearest image."""
        match self.pair_space:
            case "feature":
                space = step.output.features
            case "logit":
                space = step.logits
            case "prob":
                space = self.sigma.probs(step.logits)
        return torch.cat(
            [
                class_partners(step.labels, step.generator),
                self._nearest(step.both(space, 0).detach(), len(step.labels)),
            ]
        )

    def _nearest(self, space: Tensor, labeled: int) -> Tensor:
        """(U,): the index among all images of each unlabeled one's nearest."""
        if self.pair_among == "unlabeled":
            return labeled + nearest_partners(space[labeled:])
        return nearest_partners(space, labeled)

    def slot_targets(self, targets: OrcaTargets) -> OrcaTargets:
        """Slots go without the margin or the entropy where the options say "max"."""
        if self.margin_on == self.entropy_on == "both":
            return targets
        return replace(
            targets,
            margin=targets.margin if self.margin_on == "both" else targets.margin * 0,
            entropy_weight=targets.entropy_weight if self.entropy_on == "both" else 0.0,
        )

    def risk(self, step: Step, targets: OrcaTargets, logits: Tensor) -> Terms:
        """Eq. 13: these logits of x_i (view 1) against the max-logits of its partner (view 2)."""
        first = step.both(logits, 0)
        margins = targets.margin.to(logits.dtype).expand(len(step.labels), 1)
        raised = step.labeled(first).scatter_add(-1, step.labels[:, None], margins)
        own = first.log_softmax(-1)
        other = step.both(step.logits, 1)[targets.partners].log_softmax(-1)
        if self.pair_detach:
            other = other.detach()
        pairs = pair_loss(own, other)
        if not self.pair_labeled:
            pairs = pairs[len(step.labels) :]
        return (
            Term("supervised", self.sigma.risk(raised, step.labels).mean()),
            Term("pairs", pairs.mean(), self.pair_weight),
            Term("entropy", unevenness(own.exp().mean(0), targets.use), targets.entropy_weight),
        )


def pair_loss(log_probs: Tensor, partner_log_probs: Tensor) -> Tensor:
    """Eq. 11, per row: -log < p_i, p_j >, from log-probabilities so that nothing underflows."""
    return -(log_probs + partner_log_probs).logsumexp(-1)


def class_partners(labels: Tensor, generator: torch.Generator) -> Tensor:
    """(L,): for each image another one of its class, drawn evenly; itself where it is alone."""
    draw = send(torch.rand(len(labels), len(labels), generator=generator), labels.device)
    draw = draw.masked_fill(labels[:, None] != labels, -1.0)
    draw.fill_diagonal_(-0.5)
    return _argmax(draw)


def nearest_partners(space: Tensor, first: int = 0) -> Tensor:
    """(N - first,): for each row from `first` on, the other row of all of the highest cosine."""
    units = F.normalize(space, dim=-1)
    with all_threads():
        cosines = units[first:] @ units.T
    cosines[:, first:].fill_diagonal_(-torch.inf)
    return _argmax(cosines)


def _argmax(rows: Tensor) -> Tensor:
    """(N,): the index of the largest value of each row."""
    if rows.device.type == "cpu" and rows.dtype == torch.float32:
        return torch.from_numpy(rows.numpy().argmax(1))  # torch compares one number after another
    return rows.argmax(1)
