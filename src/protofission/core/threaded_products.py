"""Linear maps and cosines of many rows, on all threads, forward and backward.

Within `without_rounding`, the result for a row does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from protofission.core.exact_products import exact_lengths, exact_products, exact_sums
from protofission.core.threads import all_threads

LEAST = 1e-12
"""Lengths are clamped to at least this, so that no cosine divides by 0."""

_exact = ContextVar("_exact", default=False)


@contextmanager
def without_rounding() -> Iterator[None]:
    """Compute the products of this block exactly: float64, without gradients."""
    before = _exact.set(True)
    try:
        yield
    finally:
        _exact.reset(before)


def _rounds() -> bool:
    """Whether products are rounded as usual; always, while a graph is traced for export."""
    return torch.compiler.is_compiling() or not _exact.get()


def _without_gradients() -> bool:
    """Whether torch's machinery for gradients, half a millisecond a call, has nothing to do."""
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def _is_autocast(device: str) -> bool:
    """Whether autocast is on for a kind of device; never for one that has none, such as meta."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


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
            to_rows = grad @ weight if of_rows else None
            to_weight = grad.T @ rows if of_weight else None
        return to_rows, to_weight, grad.sum(0) if of_bias else None


def linear(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply a linear map to (N, D) rows; or K maps to (K, N, D) rows, without gradients."""
    if rows.ndim == 3:
        return _linear_side_by_side(rows, weight, bias)
    if not _rounds():
        return exact_products(rows, weight) + bias
    if _is_autocast(rows.device.type):  # which casts for torch's own operations
        return F.linear(rows, weight, bias)
    if _without_gradients():
        return _Linear.forward(rows, weight, bias)
    return cast(Tensor, _Linear.apply(rows, weight, bias))  # type: ignore[no-untyped-call]


def _linear_side_by_side(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if not _rounds():
        return exact_products(rows, weight) + bias[:, None]
    with all_threads():
        return torch.baddbmm(bias[:, None], rows, weight.mT)


def products(rows: Tensor, others: Tensor) -> Tensor:
    """(N, M) products of (N, D) rows with (M, D) others, or K times as many; no gradients."""
    if not _rounds():
        return exact_products(rows, others)
    product = torch.bmm if rows.ndim == 3 else torch.mm  # matmul would take four more steps
    with all_threads():
        return product(rows, others.mT)


class _Cosines(torch.autograd.Function):
    """One product, divided by the lengths: no normalized copies are made or kept for backward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, others: Tensor) -> Tensor:
        with all_threads():
            products = rows @ others.T
        return products / (_lengths(rows)[:, None] * _lengths(others))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, others, cosines = ctx.saved_tensors
        of_rows, of_others = ctx.needs_input_grad
        row_lengths, other_lengths = _lengths(rows)[:, None], _lengths(others)[:, None]
        pull, along = grad / (row_lengths * other_lengths.T), grad * cosines
        with all_threads():
            to_rows = pull @ others if of_rows else None
            to_others = pull.T @ rows if of_others else None
        if to_rows is not None:
            share = along.sum(1, keepdim=True) / row_lengths / row_lengths
            to_rows = torch.addcmul(to_rows, rows, share, value=-1)
        if to_others is not None:
            share = along.sum(0)[:, None] / other_lengths / other_lengths
            to_others = torch.addcmul(to_others, others, share, value=-1)
        return to_rows, to_others


def cosines(rows: Tensor, others: Tensor) -> Tensor:
    """(N, M) cosines of (N, D) rows with (M, D) others; 0 where one of the two is 0."""
    if not _rounds():
        lengths, other_lengths = (exact_lengths(each).clamp_min(LEAST) for each in (rows, others))
        return exact_products(rows, others) / (lengths[:, None] * other_lengths)
    if _is_autocast(rows.device.type):
        return F.normalize(rows, dim=-1) @ F.normalize(others, dim=-1).T
    if _without_gradients():
        return _Cosines.forward(rows, others)
    return cast(Tensor, _Cosines.apply(rows, others))  # type: ignore[no-untyped-call]


def unit_vectors(rows: Tensor) -> Tensor:
    """(N, D) rows divided by their lengths; 0 stays 0. There may be more leading dimensions."""
    lengths = _lengths(rows) if _rounds() else exact_lengths(rows).clamp_min(LEAST)
    return rows / lengths[..., None]


def row_sums(rows: Tensor) -> Tensor:
    """(N,) sums of the numbers of (N, D) rows; rows may have more than one leading dimension."""
    return rows.sum(-1) if _rounds() else exact_sums(rows)


def _lengths(vectors: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return lengths.clamp_min(LEAST)
