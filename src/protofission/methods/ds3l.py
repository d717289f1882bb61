"""DS3L: a small net weights unlabeled images, trained so that the weighted step helps on labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from protofission.core.checks import WIDEST, check_sizes
from protofission.core.errors import check_positive, require
from protofission.core.records import Output, Sizes, Step, Targets, Term, Terms, Views, total
from protofission.methods.base import Adam, Method, Traits, label_rows
from protofission.methods.parts.inner_step import SmallNet, net_of, output_after_step
from protofission.methods.parts.ramps import gaussian_ramp


@dataclass(frozen=True)
class DS3LTargets(Targets):
    """Probabilities and weights of the unlabeled images, by their first views."""

    probs: Tensor
    """(U, C): the probabilities of the first view, which those of the second are to meet."""
    weights: Tensor
    """(U,): the weight of each image."""
    ramp: float
    """Weight of the agreement of views, in (0, 1]."""


@dataclass(frozen=True)
class DS3L(Method[DS3LTargets]):
    """Labels, and agreement of two views of the unlabeled images, weighted by a net.

    The net w reads the probabilities of an image. It learns that a step of the model on the
    weighted loss, theta' = theta - rate grad (supervised + agreement), does well on the labels.
    """

    unlabeled_weight: float = 10.0
    """Weight of the agreement of the two views, after its ramp."""
    ramp: float = 1.0
    """Share t of training in which that weight rises, by exp(-5 (1 - progress / t)^2)."""
    inner_rate: float = 0.001
    """The length of the inner step: its learning rate."""
    net_rate: float = 6e-5
    """The learning rate of the net, by Adam."""
    net_width: int = 100
    """Hidden units of the net."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(WIDEST, net_width=self.net_width)
        check_positive(inner_rate=self.inner_rate, net_rate=self.net_rate)
        require(0 <= self.ramp <= 1, f"ramp = {self.ramp} must be between 0 and 1.")

    @property
    def traits(self) -> Traits:
        """Views of the pool agree, and none of its images is given a class."""
        return Traits(
            views=Views(labeled=("weak",), unlabeled=("weak", "weak")),
            pseudo_labels=False,
            memory_optimizer=Adam(self.net_rate),
            inner_step=True,
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The net, from C probabilities to a weight."""
        memory = nn.Module()
        memory.net = SmallNet(sizes.num_classes, self.net_width, generator)
        return memory

    @torch.no_grad()
    def decide(self, step: Step) -> DS3LTargets:
        """The first view's probabilities, and what the net makes of them."""
        probs = self.sigma.probs(step.unlabeled(step.logits, 0))
        weights = net_of(step.memory)(probs)
        return DS3LTargets(
            label_rows(step), probs, weights, gaussian_ramp(step.progress, self.ramp)
        )

    def risk(self, step: Step, targets: DS3LTargets, logits: Tensor) -> Terms:
        """R of the labels, and the weighted mean over images of mean_c (p2[c] - p1[c])^2."""
        gaps = self.sigma.probs(step.unlabeled(logits, 1)) - targets.probs
        tiny = torch.finfo(gaps.dtype).tiny
        shares = targets.weights / targets.weights.sum().clamp_min(tiny)
        agreement = targets.ramp * (shares * gaps.square().mean(-1)).sum()
        return (
            Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),
            Term("agreement", agreement, self.unlabeled_weight),
        )

    def other_terms(self, step: Step, targets: DS3LTargets) -> Terms:
        """R of the labels after the inner step: it teaches the net alone."""
        weighed = replace(targets, weights=net_of(step.memory)(targets.probs))

        def inner(output: Output) -> Tensor:
            return total(self.risk(step, weighed, output.logits))

        logits = output_after_step(step, inner, self.inner_rate).logits
        return (Term("outer", self.sigma.risk(step.labeled(logits), step.labels).mean()),)
