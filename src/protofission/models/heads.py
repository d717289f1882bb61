"""Heads: (N, D) features in, one `Output` out. No code asks which head it has.

`FissionHead` lives in fission.py, beside its equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from protofission.core.errors import check_choices, require
from protofission.core.memory_limits import Extent
from protofission.core.records import Output, Prototypes
from protofission.fission import (
    FissionHead,
    Similarity,
    check_features,
    check_novel_prototypes,
    check_sizes,
    max_logits,
    random_directions,
    similarity,
    unit,
)


class LinearHead(nn.Module):
    """logits = W f + b, without temperature."""

    def __init__(
        self, num_features: int, num_classes: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        check_sizes(num_features=num_features, num_classes=num_classes)
        self.weight = nn.Parameter(
            random_directions(num_classes, num_features, generator=generator)
        )
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, features: Tensor) -> Output:
        """(N, D) to an `Output` with V = 1."""
        check_features(features, self.weight.shape[-1])
        scores = nn.functional.linear(features, self.weight, self.bias)
        return Output(features, scores[..., None], scores, single(self.weight))


class CosineHead(nn.Module):
    """logits = T cos(f, w) - b: ORCA's head, and FissionHead's with one prototype a class."""

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        temperature: float = 10.0,
        offset: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(num_features=num_features, num_classes=num_classes)
        self.temperature, self.offset = temperature, offset
        self.weight = nn.Parameter(
            random_directions(num_classes, num_features, generator=generator)
        )

    def forward(self, features: Tensor) -> Output:
        """(N, D) to an `Output` with V = 1."""
        check_features(features, self.weight.shape[-1])
        prototypes = single(self.weight)
        sims = similarity(features, prototypes.combined)
        return Output(features, sims, max_logits(sims), prototypes, self.temperature, self.offset)


class DistanceHead(nn.Module):
    """sim = -|f - p|^2 / D to V free prototypes a class: the nearest one speaks for it.

    Divided by D, T means the same whatever the width of the features.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        num_slots: int = 1,
        *,
        temperature: float = 1.0,
        offset: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(num_features=num_features, num_classes=num_classes, prototypes=num_slots)
        self.temperature, self.offset = temperature, offset
        self.prototypes = nn.Parameter(
            random_directions(num_classes, num_slots, num_features, generator=generator)
        )

    def forward(self, features: Tensor) -> Output:
        """(N, D) to an `Output` with V slots."""
        check_features(features, self.prototypes.shape[-1])
        sims = -squared_distances(features, self.prototypes.flatten(0, 1)) / features.shape[-1]
        sims = sims.view(-1, *self.prototypes.shape[:2])
        parts = self.prototypes, self.prototypes, self.prototypes.new_ones(sims.shape[1:])
        prototypes = Prototypes(*parts)
        return Output(features, sims, max_logits(sims), prototypes, self.temperature, self.offset)


class ReciprocalHead(nn.Module):
    """sim = |f - r|^2 / D: the farther from a class's reciprocal point, the more of it.

    Args:
        dot: whether f r is taken from it, so that the angle counts too.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        dot: bool = False,
        temperature: float = 1.0,
        offset: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(num_features=num_features, num_classes=num_classes)
        self.dot, self.temperature, self.offset = dot, temperature, offset
        self.points = nn.Parameter(
            random_directions(num_classes, num_features, generator=generator)
        )

    def forward(self, features: Tensor) -> Output:
        """(N, D) to an `Output` with V = 1."""
        check_features(features, self.points.shape[-1])
        far = squared_distances(features, self.points) / features.shape[-1]
        sims = far - features @ self.points.T if self.dot else far
        prototypes = single(self.points)
        return Output(features, sims[..., None], sims, prototypes, self.temperature, self.offset)


class StudentHead(nn.Module):
    """sim = -log(1 + |A f - c|^2), whose softmax is Student's t about C centres: DTC's head.

    A maps the D features to as many dimensions as there are classes, at most D.
    """

    def __init__(
        self, num_features: int, num_classes: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        check_sizes(num_features=num_features, num_classes=num_classes)
        width = min(num_features, num_classes)
        self.axes = nn.Parameter(random_directions(width, num_features, generator=generator))
        self.centres = nn.Parameter(random_directions(num_classes, width, generator=generator))

    def forward(self, features: Tensor) -> Output:
        """(N, D) to an `Output` with V = 1; its prototypes are the centres among the features."""
        check_features(features, self.axes.shape[-1])
        sims = -squared_distances(features @ self.axes.T, self.centres).log1p()
        return Output(features, sims[..., None], sims, single(self.centres @ self.axes))


def squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    """(N, K): |row - other|^2 by one matrix product, never below 0.

    All are taken from the others' middle: far from it, differences of large squares are rough.
    """
    middle = others.mean(0)
    rows, others = rows - middle, others - middle
    squares = rows.square().sum(-1, keepdim=True) + others.square().sum(-1)
    return (squares - 2 * rows @ others.T).clamp_min(0)


class ProjectionHead(nn.Module):
    """SimCLR's two-layer projection; its "logits" are the coordinates of the projected vector."""

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        generator: torch.Generator | None = None,
        *,
        norm: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(num_features=num_features, num_outputs=num_outputs)
        self.norm: nn.Module = nn.BatchNorm1d(num_features) if norm else nn.Identity()
        self.hidden = nn.Parameter(
            random_directions(num_features, num_features, generator=generator)
        )
        self.hidden_bias = nn.Parameter(torch.zeros(num_features))
        self.weight = nn.Parameter(
            random_directions(num_outputs, num_features, generator=generator)
        )

    def forward(self, features: Tensor) -> Output:
        """(N, D) to an `Output` of (N, P) coordinates."""
        check_features(features, self.weight.shape[-1])
        hidden = self.norm(nn.functional.linear(features, self.hidden, self.hidden_bias)).relu()
        projected = hidden @ self.weight.T
        return Output(features, projected[..., None], projected, single(self.weight))


class AveragedHead(nn.Module):
    """T cos(z, m) - b, where z is the projection of f and m a mean that the method itself moves.

    No gradient reaches the means. The output's features are z, which the means are means of.
    """

    means: Tensor
    """(C, D), of length 1."""

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        temperature: float = 10.0,
        offset: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(num_features=num_features, num_classes=num_classes)
        self.temperature, self.offset = temperature, offset
        self.projection = ProjectionHead(num_features, num_features, generator)
        means = random_directions(num_classes, num_features, generator=generator)
        self.register_buffer("means", means)

    def forward(self, features: Tensor) -> Output:
        """(N, D) to an `Output` with V = 1."""
        projected = unit(self.projection(features).nearest)
        prototypes = single(self.means)
        sims = similarity(projected, prototypes.combined)
        return Output(projected, sims, max_logits(sims), prototypes, self.temperature, self.offset)


def single(weight: Tensor) -> Prototypes:
    """A (C, D) weight as one prototype a class, with no local part mixed in."""
    return Prototypes(weight[:, None], weight[:, None], weight.new_zeros(len(weight), 1))


def sizes_of(head: nn.Module) -> tuple[int, int]:
    """C and V of a head."""
    match head:
        case FissionHead():
            return len(head.l), head.l.shape[1]
        case DistanceHead():
            return len(head.prototypes), head.prototypes.shape[1]
        case ReciprocalHead():
            return len(head.points), 1
        case StudentHead():
            return len(head.centres), 1
        case AveragedHead():
            return len(head.means), 1
        case _:
            return len(head.get_parameter("weight")), 1


HeadKind = Literal[
    "linear",
    "cosine",
    "fission",
    "distance",
    "reciprocal",
    "reciprocal-dot",
    "student",
    "averaged",
    "projection",
]


STARTING: tuple[HeadKind, ...] = ("cosine", "fission", "distance", "student", "averaged")
"""The heads whose prototypes may start where features are."""
LARGEST_DELTA = 100
"""lambda of Eq. 2 is 0 or 1 to float32 from 10 on."""


@dataclass(frozen=True)
class HeadSpec:
    """A head by its name and options."""

    kind: HeadKind = "fission"
    """Which head; a method wants one of its own."""
    prototypes: int = 5
    """V, fission and distance only."""
    novel_prototypes: int | None = None
    """V of the novel classes, fission only; as many as the seen ones where none."""
    similarity: Similarity = "cosine"
    """How features and prototypes are compared, fission only."""
    temperature: float = 10.0
    """T of the logits; a linear or student head has none."""
    offset: float = 0.0
    """b of Eq. 10; a linear or student head has none. Softmax does not see it."""
    delta: float = 0.0
    """Start of delta (Eq. 2), fission only."""
    init: Literal["random", "data"] = "random"
    """How prototypes start: random directions (the paper), or from the data (ours); not for a
    linear head, a projection or reciprocal points."""
    norm: bool = False
    """Batch norm between the layers of a projection."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_sizes(prototypes=self.prototypes)
        require(self.temperature > 0, f"temperature = {self.temperature} must be above 0.")
        require(
            abs(self.delta) <= LARGEST_DELTA,
            f"delta = {self.delta} must lie between {-LARGEST_DELTA} and {LARGEST_DELTA}.",
        )

    def check(self) -> None:
        """Refuse options that do not fit each other."""
        check_novel_prototypes(self.novel_prototypes, self.prototypes)
        if self.init == "data":
            require(
                self.can_start_from_data,
                f"init = data is for {', '.join(STARTING)} heads, not for {self.kind}: leave it at "
                "random.",
            )
            require(
                self.kind != "fission" or self.similarity == "cosine",
                f"init = data wants similarity = cosine, not {self.similarity}: prototypes are "
                "at most of length 1, so the others cannot start where features of any length are.",
            )

    @property
    def has_cosines(self) -> bool:
        """Whether its similarities are cosines with prototypes that learn."""
        return self.kind == "cosine" or (self.kind == "fission" and self.similarity == "cosine")

    @property
    def can_start_from_data(self) -> bool:
        """Whether it has prototypes that may start where features are."""
        return self.kind in STARTING

    @property
    def slots(self) -> int:
        """V as the head has it: 1 for all but fission and distance."""
        return self.prototypes if self.kind in ("fission", "distance") else 1

    def extent(self, num_features: int, num_classes: int) -> Extent:
        """How many numbers it holds, at least."""
        rows = num_classes * (self.slots + (self.kind == "fission"))
        return Extent(rows * num_features, num_classes * self.slots, num_classes)

    def build(
        self, num_features: int, num_classes: int, num_seen: int, generator: torch.Generator
    ) -> nn.Module:
        """The head with its random start."""
        match self.kind:
            case "linear":
                return LinearHead(num_features, num_classes, generator)
            case "student":
                return StudentHead(num_features, num_classes, generator)
            case "projection":
                return ProjectionHead(num_features, num_features, generator, norm=self.norm)
            case "cosine":
                return CosineHead(
                    num_features,
                    num_classes,
                    temperature=self.temperature,
                    offset=self.offset,
                    generator=generator,
                )
            case "averaged":
                return AveragedHead(
                    num_features,
                    num_classes,
                    temperature=self.temperature,
                    offset=self.offset,
                    generator=generator,
                )
            case "distance":
                return DistanceHead(
                    num_features,
                    num_classes,
                    self.prototypes,
                    temperature=self.temperature,
                    offset=self.offset,
                    generator=generator,
                )
            case "reciprocal" | "reciprocal-dot":
                return ReciprocalHead(
                    num_features,
                    num_classes,
                    dot=self.kind == "reciprocal-dot",
                    temperature=self.temperature,
                    offset=self.offset,
                    generator=generator,
                )
            case "fission":
                return FissionHead(
                    num_features,
                    num_classes,
                    self.prototypes,
                    temperature=self.temperature,
                    offset=self.offset,
                    similarity=self.similarity,
                    num_seen=num_seen,
                    novel_prototypes=self.novel_prototypes,
                    delta=self.delta,
                    generator=generator,
                )
