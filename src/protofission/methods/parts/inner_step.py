"""The inner step of bilevel methods, and the small net that learns through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.records import Again, Output, Step


class SmallNet(nn.Module):
    """x to sigmoid(v relu(W x + a) + b): one number in (0, 1) for each row."""

    def __init__(self, inputs: int, width: int, generator: torch.Generator) -> None:
        super().__init__()

        def even(fan: int, *shape: int) -> nn.Parameter:
            return nn.Parameter((2 * torch.rand(*shape, generator=generator) - 1) / fan**0.5)

        self.hidden = even(inputs, width, inputs)
        self.hidden_bias = even(inputs, width)
        self.weight = even(width, width)
        self.bias = even(width, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """(..., inputs) to (...)."""
        return self.last(F.linear(rows, self.hidden, self.hidden_bias))

    def last(self, hidden: Tensor) -> Tensor:
        """(..., width), the first layer's answers, to (...)."""
        return (hidden.relu() @ self.weight + self.bias).sigmoid()

    def pairs(self, rows: Tensor) -> Tensor:
        """(N, N): the net on every ordered pair of (N, inputs / 2) rows, one behind the other.

        The first layer of a pair is a sum of one part of each row, so no pair is written down.
        """
        first, second = self.hidden.chunk(2, dim=1)
        return self.last((rows @ first.T)[:, None] + F.linear(rows, second, self.hidden_bias))


def net_of(memory: nn.Module) -> SmallNet:
    """The small net of a method's memory."""
    return cast(SmallNet, memory.get_submodule("net"))


def output_after_step(step: Step, loss: Callable[[Output], Tensor], rate: float) -> Output:
    """The output on the same batch with theta' = theta - rate grad_theta loss(theta).

    theta is the model's weights as they are, without a gradient. So what is computed from the
    output teaches whatever else the loss depends on, and not the model.
    """
    again = cast(Again, step.again)
    theta = {name: weight.detach().requires_grad_() for name, weight in again.weights.items()}
    with torch.enable_grad():  # also where the outcome is only evaluated
        slopes = torch.autograd.grad(
            loss(again(theta)), list(theta.values()), create_graph=True, materialize_grads=True
        )
    moved = zip(theta.items(), slopes, strict=True)
    return again({name: weight.detach() - rate * slope for (name, weight), slope in moved})
