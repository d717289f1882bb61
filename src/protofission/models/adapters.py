"""Adapters: what stands in a backbone's place where an encoder has made the features already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

import torch
from torch import Tensor, nn

from protofission.core.checks import check_sizes
from protofission.core.errors import check_choices, require
from protofission.core.memory_limits import Extent
from protofission.core.threaded_products import linear
from protofission.models.backbones import Statistics

LEAST = 0.03
"""The least deviation that a feature is divided by, as a share of the largest."""


@dataclass(frozen=True)
class AdapterSpec:
    """Standardised features, then nothing, a linear map, or two with a rectifier between."""

    kind: Literal["none", "linear", "rectified", "mlp"] = "linear"
    """What learns below the head; `rectified` is a linear map whose features are not negative."""
    width: int = 512
    """Features that come out; without an adapter, as many as go in."""
    hidden: int = 1024
    """Between the two maps of an MLP."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_sizes(width=self.width, hidden=self.hidden)

    @property
    def stages(self) -> int:
        """It learns as a whole, or not at all."""
        return 1

    @property
    def widths(self) -> tuple[int, ...]:
        """What comes out of each map."""
        if self.kind == "none":
            return ()
        return (self.hidden, self.width) if self.kind == "mlp" else (self.width,)

    def extent(self, shape: tuple[int, ...]) -> Extent:
        """How many numbers it holds, for inputs of that shape."""
        widths = (shape[0], *self.widths)
        weights = sum((narrow + 1) * wide for narrow, wide in pairwise(widths))
        return Extent(weights, max(widths), widths[-1])

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs that are no vectors."""
        require(
            len(shape) == 1,
            "An adapter wants features, and these are images: make a store with `protofission "
            "embed` and set data.store, or set backbone=compact.",
        )

    def build(self, inputs: int, generator: torch.Generator) -> Adapter:
        """The adapter for vectors of so many features, with its random start."""
        with torch.random.fork_rng(devices=[]):  # torch's own start moves the global generator
            return Adapter(self, inputs, generator)


ADAPTERS: dict[str, AdapterSpec] = {
    "adapter-none": AdapterSpec("none"),
    "adapter-linear": AdapterSpec("linear"),
    "adapter-rectified": AdapterSpec("rectified"),
    "adapter-mlp": AdapterSpec("mlp"),
}


class _Linear(nn.Linear):
    """A map whose products are the large ones of a step."""

    def forward(self, rows: Tensor) -> Tensor:
        return linear(rows, self.weight, self.bias)


class Adapter(nn.Module):
    """(x - mean) / deviation, then the maps. Mean and deviation are saved with the weights."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, spec: AdapterSpec, inputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.spec = spec
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("deviation", torch.ones(inputs))
        widths = (inputs, *spec.widths)
        self.num_features = widths[-1]
        self.layers = nn.Sequential()
        for narrow, wide in pairwise(widths):
            if len(self.layers):
                self.layers.append(nn.ReLU(inplace=True))
            layer = _Linear(narrow, wide)
            nn.init.orthogonal_(layer.weight, generator=generator)  # directions keep their angles
            nn.init.zeros_(layer.bias)
            self.layers.append(layer)
        if spec.kind == "rectified":
            self.layers.append(nn.ReLU(inplace=True))

    @torch.no_grad()
    def standardise_by(self, chunks: Iterable[Tensor]) -> None:
        """Take mean and deviation from (n, inputs) features.

        One that hardly varies in these may do so in other views of them: it is divided by `LEAST`
        of the largest deviation, so that it does not drown the others.
        """
        count, mean = 0, torch.zeros_like(self.mean, dtype=torch.float64)
        squares = torch.zeros_like(mean)  # of the distances from the mean, as chunks come in
        for chunk in chunks:
            rows = chunk.to(mean)
            own = rows.mean(0)
            gap, both = own - mean, count + len(rows)
            squares += (rows - own).square().sum(0) + gap.square() * (count * len(rows) / both)
            mean += gap * (len(rows) / both)
            count = both
        deviation = (squares / count).sqrt()
        self.mean.copy_(mean)
        deviation = deviation.clamp_min(LEAST * deviation.max())
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def learn_last(
        self, stages: int | None, statistics: Statistics = "frozen", *, cached: bool = False
    ) -> None:
        """Learn, or with 0 stages stay as it is; there are no batch-norm statistics."""
        self.requires_grad_(stages != 0)

    def forward(self, features: Tensor) -> Tensor:
        """(N, inputs) to (N, D)."""
        scale = 1 / self.deviation
        return cast(Tensor, self.layers(torch.addcmul(-self.mean * scale, features, scale)))
