"""Linear head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from protofission.core.checks import check_features, check_sizes
from protofission.core.records import Output, Prototypes
from protofission.fission import random_directions
from protofission.models.heads.entry import HeadEntry, HeadSizes

if TYPE_CHECKING:
    from protofission.models.heads import HeadSpec


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
        prototypes = Prototypes.one_per_class(self.weight)
        return Output(features, scores[..., None], scores, prototypes)


class LinearEntry(HeadEntry[LinearHead]):
    """Always starts at random."""

    module = LinearHead
    can_bundle = True

    def build(
        self,
        spec: HeadSpec,
        num_features: int,
        num_classes: int,
        num_seen: int,
        generator: torch.Generator,
    ) -> LinearHead:
        """The head with its random start."""
        return LinearHead(num_features, num_classes, generator)

    def sizes(self, head: LinearHead) -> HeadSizes:
        """C, 1 and D."""
        classes, features = head.weight.shape
        return HeadSizes(classes, 1, features)

    def options(self, head: LinearHead) -> dict[str, Any]:
        """None."""
        return {}

    def shapes(
        self, spec: HeadSpec, num_features: int, num_classes: int
    ) -> dict[str, tuple[int, ...]]:
        """W and b."""
        return {"weight": (num_classes, num_features), "bias": (num_classes,)}
