"""Averaged head: class means that the method itself moves. OpenCon's head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from protofission.core.checks import check_sizes
from protofission.core.records import Output, Prototypes
from protofission.fission import max_logits, random_directions, similarity, unit
from protofission.models.class_clusters import FeatureSample, start_at_directions
from protofission.models.heads.entry import HeadEntry, HeadSizes
from protofission.models.heads.projection import ProjectionHead

if TYPE_CHECKING:
    from protofission.models.heads import HeadSpec


class AveragedHead(nn.Module):
    """logits = T cos(z, m) - b, where z is the projection of f and m a mean of such z.

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
        prototypes = Prototypes.one_per_class(self.means)
        sims = similarity(projected, prototypes.combined)
        return Output(projected, sims, max_logits(sims), prototypes, self.temperature, self.offset)


class AveragedEntry(HeadEntry[AveragedHead]):
    """Means may start at the mean directions of classes and clusters."""

    module = AveragedHead
    can_start = True

    def build(
        self,
        spec: HeadSpec,
        num_features: int,
        num_classes: int,
        num_seen: int,
        generator: torch.Generator,
    ) -> AveragedHead:
        """The head with its random start."""
        return AveragedHead(
            num_features,
            num_classes,
            temperature=spec.temperature,
            offset=spec.offset,
            generator=generator,
        )

    def sizes(self, head: AveragedHead) -> HeadSizes:
        """C, 1 and D."""
        classes, features = head.means.shape
        return HeadSizes(classes, 1, features)

    def start(self, head: AveragedHead, sample: FeatureSample, generator: torch.Generator) -> None:
        """Set the means to the mean directions of classes and clusters."""
        start_at_directions(head.means, sample, generator)
