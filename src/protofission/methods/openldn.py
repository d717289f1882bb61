"""OpenLDN: novel classes from pairs that a net finds similar, then closed-world training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.checks import WIDEST, check_sizes
from protofission.core.errors import check_positive, require
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
    total,
)
from protofission.fission import unit
from protofission.methods.base import Adam, Method, Traits, label_rows
from protofission.methods.parts.entropy import negative_entropy
from protofission.methods.parts.inner_step import SmallNet, net_of, output_after_step

MOST_CHOSEN = 1000
"""Images of the pool that a novel class can choose for the second stage."""


class Discovery(nn.Module):
    """The net that compares pairs, and the images of the pool that novel classes have chosen."""

    places: Tensor
    """(K,), ascending: where the chosen images stand in the pool; beyond it where there are none.
    """
    classes: Tensor
    """(K,): their classes."""

    def __init__(self, sizes: Sizes, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.net = SmallNet(2 * sizes.num_features, width, generator)
        self.sizes = sizes
        room = max(1, MOST_CHOSEN * (sizes.num_classes - sizes.num_seen))
        self.register_buffer("places", torch.full((room,), _NOWHERE))
        self.register_buffer("classes", torch.full((room,), NO_CLASS))

    def choose(self, confidence: Tensor, heads: Tensor, most: int) -> None:
        """For each novel class, remember the images that are surest of it.

        Args:
            confidence: (pool,): the largest probability of each image.
            heads: (pool,): the class it is of.
        """
        order = confidence.argsort(descending=True, stable=True)
        order = order[heads[order].argsort(stable=True)]
        owners = heads[order]
        ranks = torch.arange(len(order), device=order.device) - torch.searchsorted(owners, owners)
        kept = (
            order[(owners >= self.sizes.num_seen) & (ranks < min(most, MOST_CHOSEN))].sort().values
        )
        self.places.fill_(_NOWHERE)[: len(kept)] = kept
        self.classes.fill_(NO_CLASS)[: len(kept)] = heads[kept]

    def labels_of(self, places: Tensor) -> Tensor:
        """(U,): the class of the chosen images among these places of the pool, else NO_CLASS."""
        found = torch.searchsorted(self.places, places).clamp_max(len(self.places) - 1)
        return torch.where(self.places[found] == places, self.classes[found], NO_CLASS)


_NOWHERE = torch.iinfo(torch.int64).max


@dataclass(frozen=True)
class OpenLDNTargets(Targets):
    """Pseudo-labels of a step, and which pairs are alike."""

    closed: bool
    """Whether the second stage has begun, in which all classes are taken for known."""
    chosen: Tensor
    """(U,): the class that an image has been chosen for, which counts as a label; else NO_CLASS."""
    pseudo: Tensor
    """(U, C): the probabilities that the strong view is to give."""
    trusted: Tensor
    """(U,): 1 where these are learned, else 0."""
    features: Tensor
    """(L + U, D): features of the first views, labeled images first."""
    likeness: Tensor
    """(L + U, L + U), first stage only: similarity of each pair by the net, in (0, 1)."""


@dataclass(frozen=True)
class OpenLDN(Method[OpenLDNTargets]):
    """Pairs, pseudo-labels and an even use of the heads; then closed-world training.

    The net compares the features of two images. It learns that a step of the model on the loss of
    the first stage, theta' = theta - rate grad loss, does well on the labels.
    """

    pair_weight: float = 1.0
    """Weight of the mean over pairs of (cos(p_i, p_j) - net(f_i, f_j))^2."""
    entropy_weight: float = 1.0
    """Weight of the negative entropy of the mean probability."""
    unlabeled_weight: float = 1.0
    """Weight of the risk of pseudo-labels on strong views, in both stages."""
    base_threshold: float = 0.5
    """First stage: a hard pseudo-label is learned from this probability on."""
    base_share: float = 0.6
    """The share of training after which the second stage begins; with 1 there is none."""
    chosen_share: float = 0.1
    """Second stage: images that each novel class labels, as a share of a class's mean size."""
    sharpen_temperature: float = 0.4
    """Second stage: temperature of the logits of the weak view that the strong view is to meet."""
    closed_threshold: float = 0.8
    """Second stage: a sharpened pseudo-label is learned from this probability on."""
    inner_rate: float = 0.001
    """The length of the inner step: its learning rate."""
    net_rate: float = 1e-4
    """The learning rate of the net, by Adam."""
    net_width: int = 100
    """Hidden units of the net."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(WIDEST, net_width=self.net_width)
        check_positive(inner_rate=self.inner_rate, net_rate=self.net_rate)
        for name in ("base_share", "chosen_share"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} = {value} must be between 0 and 1.")

    @property
    def traits(self) -> Traits:
        """The survey is for the second stage: novel classes choose images of the whole pool."""
        return Traits(
            views=Views(labeled=("weak",), unlabeled=("weak", "strong")),
            novel="heads",
            survey_before_epoch=self.base_share < 1,
            memory_optimizer=Adam(self.net_rate),
            inner_step=True,
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The net, and the chosen images: none at first."""
        return Discovery(sizes, self.net_width, generator)

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """Each novel class chooses the images that are surest of it, equally many a class."""
        found = [self.sigma.probs(output.logits).max(-1) for output in survey.pool]
        confidence, heads = (torch.cat(column) for column in zip(*found, strict=True))
        discovery = cast(Discovery, memory)
        images = len(survey.labels) + len(heads)
        most = int(self.chosen_share * images / discovery.sizes.num_classes)
        discovery.choose(confidence, heads, most)

    @torch.no_grad()
    def decide(self, step: Step) -> OpenLDNTargets:
        """Pseudo-labels by the weak view, likeness by the net; L_div divides what has a class."""
        closed = step.progress >= self.base_share
        weak = step.unlabeled(step.logits, 0)
        probs = self.sigma.probs(weak / self.sharpen_temperature if closed else weak)
        confidence, hard = probs.max(-1)
        trusted = confidence >= (self.closed_threshold if closed else self.base_threshold)
        chosen = torch.full_like(hard, NO_CLASS)
        if closed and step.places is not None:
            chosen = cast(Discovery, step.memory).labels_of(step.places.to(hard.device))
        trusted = trusted & (chosen == NO_CLASS)
        classes = label_rows(step)
        classes[step.layout.unlabeled_rows(0)] = chosen
        classes[step.layout.unlabeled_rows(1)] = torch.where(trusted, hard, NO_CLASS)
        features = step.both(step.output.features, 0).detach()
        return OpenLDNTargets(
            classes,
            closed,
            chosen,
            probs if closed else F.one_hot(hard, probs.shape[-1]).to(probs),
            trusted.to(probs),
            features,
            probs.new_zeros(()) if closed else net_of(step.memory).pairs(features),
        )

    def risk(self, step: Step, targets: OpenLDNTargets, logits: Tensor) -> Terms:
        """R of labels and of pseudo-labels, and in the first stage of pairs and of the mean."""
        weak, chosen = step.unlabeled(logits, 0), targets.chosen != NO_CLASS
        labeled = self.sigma.risk(step.labeled(logits), step.labels).sum()
        own = self.sigma.risk(weak, targets.chosen.clamp_min(0)) * chosen
        strong = step.unlabeled(logits, 1).log_softmax(-1)
        pseudo = -(targets.pseudo * strong).sum(-1) * targets.trusted
        pairs = entropy = logits.new_zeros(())
        if not targets.closed:
            probs = self.sigma.probs(step.both(logits, 0))
            directions = unit(probs)
            pairs = (directions @ directions.T - targets.likeness).square().mean()
            entropy = negative_entropy(probs.mean(0))
        return (
            Term("supervised", (labeled + own.sum()) / (len(step.labels) + chosen.sum())),
            Term("pseudo", pseudo.sum() / (~chosen).sum().clamp_min(1), self.unlabeled_weight),
            Term("pairs", pairs, self.pair_weight),
            Term("entropy", entropy, self.entropy_weight),
        )

    def other_terms(self, step: Step, targets: OpenLDNTargets) -> Terms:
        """First stage: R of the labels after the inner step, which teaches the net alone."""
        if targets.closed:
            return (Term("outer", step.logits.new_zeros(())),)
        compared = replace(targets, likeness=net_of(step.memory).pairs(targets.features))

        def inner(output: Output) -> Tensor:
            return total(self.risk(step, compared, output.logits))

        logits = output_after_step(step, inner, self.inner_rate).logits
        return (Term("outer", self.sigma.risk(step.labeled(logits), step.labels).mean()),)
