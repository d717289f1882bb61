"""TIDA: prototypes of sub-classes and super-classes beside those of the classes.

After Wang et al., 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.checks import WIDEST, check_sizes
from protofission.core.errors import check_positive
from protofission.core.records import NO_CLASS, Sizes, Step, Targets, Term, Terms, Views
from protofission.fission import random_directions, unit
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.balance import balance
from protofission.methods.parts.projection import Projection
from protofission.models.heads import HeadSpec

TEMPERATURE = 10.0
"""The factor of the cosines at all levels, as of the head."""


class Level(nn.Module):
    """Prototypes of one level of the taxonomy, on a projection of their own."""

    def __init__(self, sizes: Sizes, number: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        layers = (sizes.num_features, width, sizes.num_features)
        self.projection = Projection(layers, generator)
        self.prototypes = nn.Parameter(
            random_directions(number, sizes.num_features, generator=generator)
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) to (N, K), the cosines."""
        projected = self.projection(unit(features))
        return unit(projected) @ unit(self.prototypes).T

    def by_class(self, cosines: Tensor, prototypes: Tensor) -> Tensor:
        """(N, K) cosines to (N, C): through the likeness of this level's prototypes to a class's.

        Args:
            prototypes: (C, V, D), of the classes; the likest of the V counts.
        """
        likeness = torch.einsum("kd,cvd->kcv", unit(self.prototypes), unit(prototypes))
        return cosines @ likeness.amax(-1)


class LevelTargets(NamedTuple):
    """Self-labels at one level."""

    hard: Tensor
    """(L + 2U,): the prototype of each labeled row, and of each weak unlabeled row by the other
    view."""
    soft: Tensor
    """(U, K): the mean of both weak views' balanced assignments, for the strong view."""


@dataclass(frozen=True)
class TidaTargets(Targets):
    """Self-labels of the classes, and of the levels below and above them."""

    codes: Tensor
    """(2U, C): of each weak view by the other one."""
    strong: Tensor
    """(U, C): the mean of both, for the strong view."""
    sub_hard: Tensor
    sub_soft: Tensor
    """`LevelTargets` of the sub-classes."""
    super_hard: Tensor
    super_soft: Tensor
    """`LevelTargets` of the super-classes."""


@dataclass(frozen=True)
class Tida(Method[TidaTargets]):
    """Balanced self-labels at three levels, whose predictions agree about the class."""

    sub_per_class: int = 5
    """Prototypes of sub-classes for each class."""
    classes_per_super: int = 5
    """Classes for each prototype of a super-class, of which there are two at least."""
    sharpness: float = 0.05
    """Divides the cosines before they are balanced; the less, the harder a self-label."""
    rounds: int = 3
    """Iterations of Sinkhorn-Knopp."""
    balance_over: Literal["all", "pool"] = "pool"
    """The rows of a batch that use all prototypes alike: all images, or those of the pool."""
    novel_threshold: float = 0.5
    """From this on, a self-label of a novel class is hard."""
    level_weight: float = 1.0
    """Weight of the self-labels of sub-classes and super-classes on the weak views."""
    align_weight: float = 1.0
    """Weight of the classes as sub-classes and super-classes predict them."""
    strong_weight: float = 0.33
    """Weight of the self-labels of each level on the strong view."""
    width: int = 256
    """Hidden units of the projection of a level."""

    traits = Traits(
        views=Views(labeled=("weak",), unlabeled=("weak", "weak", "strong")),
        head=HeadSpec("cosine", temperature=TEMPERATURE),
        novel="heads",
        needs_cosines=True,  # self-labels are made of them
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(sub_per_class=self.sub_per_class, classes_per_super=self.classes_per_super)
        check_sizes(10**6, rounds=self.rounds)
        check_sizes(WIDEST, width=self.width)
        check_positive(sharpness=self.sharpness)

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The levels of sub-classes and of super-classes."""
        memory = nn.Module()
        above = max(2, sizes.num_classes // self.classes_per_super)
        below = self.sub_per_class * sizes.num_classes
        memory.sub = Level(sizes, below, self.width, generator)
        memory.super = Level(sizes, above, self.width, generator)
        return memory

    @torch.no_grad()
    def decide(self, step: Step) -> TidaTargets:
        """Self-labels by balance: of a view by the other one, at each level."""
        codes = self.swapped(step, step.output.nearest)
        novel = codes[:, step.num_seen :]
        hard = (novel >= self.novel_threshold).any(-1, keepdim=True)
        codes = torch.where(hard, (codes >= self.novel_threshold).to(codes), codes)
        classes, one_class = label_rows(step), codes.amax(-1) >= self.novel_threshold
        taken = torch.where(one_class, codes.argmax(-1), NO_CLASS)
        for view, own in enumerate(taken.chunk(2)):
            classes[step.layout.unlabeled_rows(view)] = own
        strong = torch.stack(codes.chunk(2)).mean(0)
        below, above = (
            self.level_targets(step, level(step.output.features)) for level in levels_of(step)
        )
        return TidaTargets(classes, codes, strong, *below, *above)

    def swapped(self, step: Step, cosines: Tensor) -> Tensor:
        """(2U, K): each weak view's balanced assignment by the other one."""
        codes = []
        for view in (1, 0):
            rows = step.unlabeled(cosines, view)
            if self.balance_over == "all":
                rows = torch.cat([step.labeled(cosines), rows])
            codes.append(balance(rows / self.sharpness, self.rounds)[-step.layout.unlabeled :])
        return torch.cat(codes)

    def level_targets(self, step: Step, cosines: Tensor) -> LevelTargets:
        """The self-labels of a level."""
        codes = self.swapped(step, cosines)
        hard = torch.cat([step.labeled(cosines).argmax(-1), codes.argmax(-1)])
        return LevelTargets(hard, torch.stack(codes.chunk(2)).mean(0))

    def risk(self, step: Step, targets: TidaTargets, logits: Tensor) -> Terms:
        """Cross entropy with labels and self-labels on weak views, self-labels on the strong."""
        own, codes = weak_rows(step, logits.log_softmax(-1)), targets_of(step, targets)
        strong = -(targets.strong * step.unlabeled(logits, 2).log_softmax(-1)).sum(-1)
        return (
            Term("classes", mean_of_views(step, -(codes * own).sum(-1))),
            Term("strong", strong.mean(), self.strong_weight),
        )

    def other_terms(self, step: Step, targets: TidaTargets) -> Terms:
        """The levels: their self-labels, and the classes that they predict."""
        terms: list[Term] = []
        codes = targets_of(step, targets)
        levels = (
            LevelTargets(targets.sub_hard, targets.sub_soft),
            LevelTargets(targets.super_hard, targets.super_soft),
        )
        for name, level, own in zip(("sub", "super"), levels_of(step), levels, strict=True):
            cosines = level(step.output.features)
            logs = (TEMPERATURE * cosines).log_softmax(-1)
            clusters = F.nll_loss(weak_rows(step, logs), own.hard, reduction="none")
            by_class = level.by_class(cosines, step.output.prototypes.combined)
            agreed = weak_rows(step, (TEMPERATURE * by_class).log_softmax(-1))
            classes = -(codes * agreed).sum(-1)
            strong = -(own.soft * step.unlabeled(logs, 2)).sum(-1).mean()
            terms += [
                Term(f"{name}_clusters", mean_of_views(step, clusters), self.level_weight),
                Term(f"{name}_classes", mean_of_views(step, classes), self.align_weight),
                Term(f"{name}_strong", strong, self.strong_weight),
            ]
        return tuple(terms)


def levels_of(step: Step) -> tuple[Level, Level]:
    """Sub-classes, super-classes."""
    memory = step.memory
    return cast(Level, memory.get_submodule("sub")), cast(Level, memory.get_submodule("super"))


def weak_rows(step: Step, rows: Tensor) -> Tensor:
    """(L + 2U, ...): labeled images, then both weak views of the pool."""
    return torch.cat([step.labeled(rows), step.unlabeled(rows, 0), step.unlabeled(rows, 1)])


def mean_of_views(step: Step, values: Tensor) -> Tensor:
    """The mean of the labeled rows, of the first and of the second weak view weigh a third each.

    Args:
        values: (L + 2U,), in the order of `weak_rows`.
    """
    labeled = step.layout.labeled
    return (values[:labeled].mean() + 2 * values[labeled:].mean()) / 3


def targets_of(step: Step, targets: TidaTargets) -> Tensor:
    """(L + 2U, C): labels, then the self-labels of the classes."""
    labels = F.one_hot(step.labels, targets.codes.shape[-1]).to(targets.codes)
    return torch.cat([labels, targets.codes])
