"""Threads where they pay: large products on all of them, a step's many small operations on one.

To wake a sleeping thread takes about as long as a small operation itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

_spared = 0
"""The threads that `one_thread` put aside; 0 outside of it."""


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Run what follows on one thread, but for what is in `all_threads`."""
    global _spared
    before = torch.get_num_threads()
    if not wanted or before == 1:
        yield
        return
    _spared = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _spared = 0
        torch.set_num_threads(before)


@contextmanager
def all_threads() -> Iterator[None]:
    """Within `one_thread`, run what follows on all of them after all."""
    if not _spared:
        yield
        return
    torch.set_num_threads(_spared)
    try:
        yield
    finally:
        torch.set_num_threads(1)


class _Linear(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with all_threads():
            return torch.addmm(bias, rows, weight.T)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        with all_threads():
            return (
                grad @ weight if of_rows else None,
                grad.T @ rows if of_weight else None,
                grad.sum(0) if of_bias else None,
            )


def linear(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(N, D) rows through a linear map, forward and backward on all threads."""
    return cast(Tensor, _Linear.apply(rows, weight, bias))  # type: ignore[no-untyped-call]
