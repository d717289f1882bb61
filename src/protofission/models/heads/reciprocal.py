"""Reciprocal points: RPL's head, and with a dot product ARPL's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from protofission.core.checks import check_features, check_sizes
from protofission.core.distances import squared_distances
from protofission.core.records import Output, Prototypes
from protofission.fission import random_directions
from protofission.models.heads.entry import HeadEntry, HeadSizes

if TYPE_CHECKING:
    from protofission.models.heads import HeadSpec


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
        prototypes = Prototypes.one_per_class(self.points)
        return Output(features, sims[..., None], sims, prototypes, self.temperature, self.offset)


class ReciprocalEntry(HeadEntry[ReciprocalHead]):
    """Always starts at random: reciprocal points lie where features of their class do not.

    Args:
        dot: whether it builds heads with a dot product.
    """

    module = ReciprocalHead
    can_bundle = True

    def __init__(self, *, dot: bool = False) -> None:
        self.dot = dot

    def fits(self, head: nn.Module) -> bool:
        """Whether it has reciprocal points, and a dot product where this entry has."""
        return isinstance(head, ReciprocalHead) and head.dot == self.dot

    def build(
        self,
        spec: HeadSpec,
        num_features: int,
        num_classes: int,
        num_seen: int,
        generator: torch.Generator,
    ) -> ReciprocalHead:
        """The head with its random start."""
        return ReciprocalHead(
            num_features,
            num_classes,
            dot=self.dot,
            temperature=spec.temperature,
            offset=spec.offset,
            generator=generator,
        )

    def sizes(self, head: ReciprocalHead) -> HeadSizes:
        """C, 1 and D."""
        classes, features = head.points.shape
        return HeadSizes(classes, 1, features)

    def options(self, head: ReciprocalHead) -> dict[str, Any]:
        """T and b."""
        return {"temperature": head.temperature, "offset": head.offset}

    def shapes(
        self, spec: HeadSpec, num_features: int, num_classes: int
    ) -> dict[str, tuple[int, ...]]:
        """The points."""
        return {"points": (num_classes, num_features)}
