"""Optimizers, and the moving average of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from protofission.methods import Adam
from protofission.training.recipe import Recipe


class Lars(torch.optim.Optimizer):
    """SGD with momentum whose steps are scaled, tensor by tensor, to the length of the weights.

    For w with the gradient g: g' = g + decay w; v = momentum v + lr r g'; w = w - v, where
    r = trust |w| / |g'|, and 1 for tensors of one dimension or none, and where w or g' is 0.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step; a closure is not called."""
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                change = param.grad.add(param, alpha=group["weight_decay"])
                if param.ndim > 1:
                    own, wanted = param.norm(), change.norm()
                    ratio = group["trust"] * own / wanted
                    change *= torch.where((own > 0) & (wanted > 0), ratio, 1.0)
                state = self.state[param]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(param)
                buffer = state["momentum_buffer"]
                buffer.mul_(group["momentum"]).add_(change, alpha=group["lr"])
                param.sub_(buffer)


def optimizer_of(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimizer; parameters without weight decay are a group of their own."""
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    free = [p for name, p in named if _is_free(name, p, recipe)]
    rest = [p for name, p in named if not _is_free(name, p, recipe)]
    groups = [
        {"params": rest, "weight_decay": recipe.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    used = [group for group in groups if group["params"]]
    if recipe.optimizer == "lars":
        return Lars(used, lr=recipe.learning_rate, momentum=recipe.momentum)
    sgd = torch.optim.SGD(
        used,
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        fused=True,  # one pass over the weights instead of four
    )
    if recipe.momentum:
        for _, param in named:  # torch's fused step fails if only some have one
            sgd.state[param]["momentum_buffer"] = torch.zeros_like(param)
    return sgd


def own_optimizer(memory: nn.Module, wanted: Adam | None) -> torch.optim.Optimizer | None:
    """Adam for the memory's own parameters, or None if the method wants none."""
    if wanted is None:
        return None
    return torch.optim.Adam(
        memory.parameters(), lr=wanted.learning_rate, weight_decay=wanted.weight_decay
    )


def _is_free(name: str, param: Tensor, recipe: Recipe) -> bool:
    """Whether a parameter is free of weight decay."""
    if name.rpartition(".")[2] == "delta":
        return not recipe.decay_delta
    return param.ndim <= 1 and not recipe.decay_vectors


@torch.no_grad()
def move_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """average = decay average + (1 - decay) model for parameters; buffers are the model's."""
    for kept, new in zip(average.parameters(), model.parameters(), strict=True):
        kept.lerp_(new, 1 - decay)
    for buffer, copied in zip(average.buffers(), model.buffers(), strict=True):
        buffer.copy_(copied)
