"""Adapters: they take a backbone's place where the inputs are an encoder's features."""

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
"""The smallest standard deviation to divide a feature by, as a share of the largest."""


@dataclass(frozen=True)
class AdapterSpec:
    """Standardized features, then nothing, a linear map, or two with a ReLU between."""

    kind: Literal["none", "linear", "rectified", "mlp"] = "linear"
    """Layers between features and head; `rectified` is a linear map followed by a ReLU."""
    width: int = 512
    """Output features; with the kind `none`, as many as input features."""
    hidden: int = 1024
    """Hidden features of an MLP."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_sizes(width=self.width, hidden=self.hidden)

    @property
    def stages(self) -> int:
        """1: it learns as a whole, or not at all."""
        return 1

    @property
    def widths(self) -> tuple[int, ...]:
        """The output features of each linear map."""
        if self.kind == "none":
            return ()
        return (self.hidden, self.width) if self.kind == "mlp" else (self.width,)

    def extent(self, shape: tuple[int, ...]) -> Extent:
        """Weights, activations and outputs, for inputs of that shape."""
        widths = (shape[0], *self.widths)
        weights = sum((narrow + 1) * wide for narrow, wide in pairwise(widths))
        return Extent(weights, max(widths), widths[-1])

    def shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the adapter's tensors by name, without allocating them."""
        found: dict[str, tuple[int, ...]] = dict.fromkeys(("mean", "deviation"), (inputs,))
        for place, (narrow, wide) in enumerate(pairwise((inputs, *self.widths))):
            found[f"layers.{2 * place}.weight"] = (wide, narrow)
            found[f"layers.{2 * place}.bias"] = (wide,)
        return found

    def outputs(self, inputs: int) -> int:
        """Output features, for so many inputs."""
        return (inputs, *self.widths)[-1]

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs that are not vectors."""
        require(
            len(shape) == 1,
            "An adapter wants features, and these are images: make a store with `protofission "
            "embed` and set data.store, or set backbone=compact.",
        )

    def build(self, inputs: int, generator: torch.Generator) -> Adapter:
        """Build the adapter for vectors of `inputs` features, with random weights."""
        with torch.random.fork_rng(devices=[]):  # torch's own initialization uses the global one
            return Adapter(self, inputs, generator)


ADAPTERS: dict[str, AdapterSpec] = {
    "adapter-none": AdapterSpec("none"),
    "adapter-linear": AdapterSpec("linear"),
    "adapter-rectified": AdapterSpec("rectified"),
    "adapter-mlp": AdapterSpec("mlp"),
}


class _Linear(nn.Linear):
    """A linear layer that computes on all threads."""

    def forward(self, rows: Tensor) -> Tensor:
        return linear(rows, self.weight, self.bias)


class Adapter(nn.Module):
    """(x - mean) / deviation, then linear maps; mean and deviation are saved with the weights."""

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
    def standardize_by(self, chunks: Iterable[Tensor]) -> None:
        """Set mean and deviation to those of all rows of the (n, inputs) chunks.

        A feature that hardly varies here may vary in other views of the images: it is divided by
        `LEAST` of the largest deviation, so that it does not drown the others.
        """
        count, mean = 0, torch.zeros_like(self.mean, dtype=torch.float64)
        squares = torch.zeros_like(mean)  # squared distances from the mean so far, summed
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
        """Learn, or with 0 stages stay frozen; there are no batch-norm statistics."""
        self.requires_grad_(stages != 0)

    def forward(self, features: Tensor) -> Tensor:
        """(N, inputs) to (N, D)."""
        scale = 1 / self.deviation
        return cast(Tensor, self.layers(torch.addcmul(-self.mean * scale, features, scale)))
