"""Distance head: free prototypes, the nearest of which counts. CPL's head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from protofission.core.checks import check_features, check_sizes
from protofission.core.distances import squared_distances
from protofission.core.kmeans import BALL
from protofission.core.records import Output, Prototypes
from protofission.fission import max_logits, random_directions
from protofission.models.class_clusters import FeatureSample, class_rows, prototype_centers
from protofission.models.heads.entry import HeadEntry, HeadSizes

if TYPE_CHECKING:
    from protofission.models.heads import HeadSpec


class DistanceHead(nn.Module):
    """sim = -|f - p|^2 / D to V free prototypes a class.

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


class DistanceEntry(HeadEntry[DistanceHead]):
    """Prototypes may start at k-means centers of features as they are."""

    module = DistanceHead
    can_start = True
    can_bundle = True

    def build(
        self,
        spec: HeadSpec,
        num_features: int,
        num_classes: int,
        num_seen: int,
        generator: torch.Generator,
    ) -> DistanceHead:
        """The head with its random start."""
        return DistanceHead(
            num_features,
            num_classes,
            spec.prototypes,
            temperature=spec.temperature,
            offset=spec.offset,
            generator=generator,
        )

    def sizes(self, head: DistanceHead) -> HeadSizes:
        """C, V and D."""
        return HeadSizes(*head.prototypes.shape)

    def slots(self, spec: HeadSpec) -> int:
        """V."""
        return spec.prototypes

    def start(self, head: DistanceHead, sample: FeatureSample, generator: torch.Generator) -> None:
        """Set the V prototypes of a class to k-means centers of its features.

        K-means runs on features that are moved and scaled into the unit ball.
        """
        sample = sample.doubles()
        rows = torch.cat([sample.labeled, sample.pool])
        middle = rows.mean(0)
        radius = (rows - middle).norm(dim=-1).max()
        radius = radius if radius > 0 else torch.ones_like(radius)
        seen, free = ((part - middle) / radius for part in (sample.labeled, sample.pool))
        classes, slots, _ = head.prototypes.shape
        inside = sample._replace(labeled=seen, pool=free)
        for c, own in class_rows(inside, classes, generator, BALL).items():
            centers = middle + radius * prototype_centers(own, slots, generator, BALL)
            head.prototypes[c] = centers.to(head.prototypes)

    def options(self, head: DistanceHead) -> dict[str, Any]:
        """V, T and b."""
        slots = head.prototypes.shape[1]
        return {"prototypes": slots, "temperature": head.temperature, "offset": head.offset}

    def shapes(
        self, spec: HeadSpec, num_features: int, num_classes: int
    ) -> dict[str, tuple[int, ...]]:
        """The prototypes."""
        return {"prototypes": (num_classes, spec.prototypes, num_features)}
