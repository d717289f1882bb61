"""The projection on which contrasts act, beside the head: for the memory of a method."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.fission import random_directions


class Projection(nn.Module):
    """Linear layers with GELU between them.

    Args:
        sizes: numbers of units, from the features to the projected vector.
        generator: for the random start.
    """

    def __init__(self, sizes: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        layers = list(pairwise(sizes))
        self.weights = nn.ParameterList(
            random_directions(wide, narrow, generator=generator) for narrow, wide in layers
        )
        self.biases = nn.ParameterList(torch.zeros(wide) for _, wide in layers)

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) to (N, P)."""
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            features = F.linear(F.gelu(features) if place else features, weight, bias)
        return features
