"""Projection head: SimCLR's, for methods that make features and no classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from protofission.core.checks import check_features, check_sizes
from protofission.core.records import Output, Prototypes
from protofission.fission import random_directions
from protofission.models.heads.entry import HeadEntry, HeadSizes

if TYPE_CHECKING:
    from protofission.models.heads import HeadSpec


class ProjectionHead(nn.Module):
    """Two layers; its "logits" are the coordinates of the projected vector.

    Args:
        num_outputs: P.
        norm: whether there is a batch norm between the layers.
    """

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
        prototypes = Prototypes.one_per_class(self.weight)
        return Output(features, projected[..., None], projected, prototypes)


class ProjectionEntry(HeadEntry[ProjectionHead]):
    """Always starts at random; P = D, whatever the classes."""

    module = ProjectionHead

    def build(
        self,
        spec: HeadSpec,
        num_features: int,
        num_classes: int,
        num_seen: int,
        generator: torch.Generator,
    ) -> ProjectionHead:
        """The head with its random start."""
        return ProjectionHead(num_features, num_features, generator, norm=spec.norm)

    def sizes(self, head: ProjectionHead) -> HeadSizes:
        """P, 1 and D."""
        outputs, features = head.weight.shape
        return HeadSizes(outputs, 1, features)
