"""Cosine head: ORCA's, and FissionHead's with one prototype a class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from protofission.core.checks import check_features, check_sizes
from protofission.core.records import Output, Prototypes
from protofission.fission import max_logits, random_directions, similarity
from protofission.models.class_clusters import FeatureSample, start_at_directions
from protofission.models.heads.entry import HeadEntry, HeadSizes

if TYPE_CHECKING:
    from protofission.models.heads import HeadSpec


class CosineHead(nn.Module):
    """logits = T cos(f, w) - b."""

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
        prototypes = Prototypes.one_per_class(self.weight)
        sims = similarity(features, prototypes.combined)
        return Output(features, sims, max_logits(sims), prototypes, self.temperature, self.offset)


class CosineEntry(HeadEntry[CosineHead]):
    """Weights may start at the mean directions of classes and clusters."""

    module = CosineHead
    can_start = True
    can_bundle = True

    def build(
        self,
        spec: HeadSpec,
        num_features: int,
        num_classes: int,
        num_seen: int,
        generator: torch.Generator,
    ) -> CosineHead:
        """The head with its random start."""
        return CosineHead(
            num_features,
            num_classes,
            temperature=spec.temperature,
            offset=spec.offset,
            generator=generator,
        )

    def sizes(self, head: CosineHead) -> HeadSizes:
        """C, 1 and D."""
        classes, features = head.weight.shape
        return HeadSizes(classes, 1, features)

    def has_cosines(self, spec: HeadSpec) -> bool:
        """Always."""
        return True

    def start(self, head: CosineHead, sample: FeatureSample, generator: torch.Generator) -> None:
        """Set the weights to the mean directions of classes and clusters."""
        start_at_directions(head.weight, sample, generator)

    def options(self, head: CosineHead) -> dict[str, Any]:
        """T and b."""
        return {"temperature": head.temperature, "offset": head.offset}

    def shapes(
        self, spec: HeadSpec, num_features: int, num_classes: int
    ) -> dict[str, tuple[int, ...]]:
        """The weights."""
        return {"weight": (num_classes, num_features)}
