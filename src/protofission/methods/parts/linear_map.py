"""A linear layer for the memory of a method."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.fission import random_directions


class LinearMap(nn.Module):
    """W x + b: the rows of W start as random directions, b at 0."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(random_directions(outputs, inputs, generator=generator))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, rows: Tensor) -> Tensor:
        """(N, inputs) to (N, outputs)."""
        return F.linear(rows, self.weight, self.bias)
