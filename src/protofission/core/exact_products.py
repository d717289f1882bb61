"""Matrix products without rounding: the same bits for any number and order of rows.

A matrix product rounds in an order that depends on the sizes of the matrices, so the last bits of a
row change with the rows beside it. Here each factor is split into two parts of so few bits that any
sum of their products fits into a double (Ozaki et al., Numerical Algorithms 59, 2012): nothing is
rounded, whatever the order. About 45 bits of each factor count.
"""

from __future__ import annotations

import torch
from torch import Tensor

from protofission.core.threads import all_threads

MANTISSA = 53
"""Bits of a double."""
SMALLEST = -400
"""Numbers far below 2 to this power count as 0: their products would underflow."""


def exact_products(rows: Tensor, others: Tensor) -> Tensor:
    """(N, M) inner products of (N, D) rows with (M, D) others, float64.

    Both may have the same leading dimensions.
    """
    high, low = _parts(rows)
    other_high, other_low = _parts(others)
    with all_threads():
        products = high @ other_high.mT, high @ other_low.mT, low @ other_high.mT
    return products[0] + (products[1] + products[2])


def exact_lengths(vectors: Tensor) -> Tensor:
    """(N,) lengths of (N, D) vectors, float64."""
    high, low = _parts(vectors)
    return ((high * high).sum(-1) + 2 * (high * low).sum(-1)).clamp_min(0).sqrt()


def exact_sums(vectors: Tensor) -> Tensor:
    """(N,) sums of the numbers of (N, D) vectors, float64."""
    high, low = _parts(vectors)
    return high.sum(-1) + low.sum(-1)


def _parts(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Split (N, D) vectors into high + low, each a whole multiple of one power of 2 per row.

    The multiples are at most 2 ** bits, so that a sum of D products stays below 2 ** MANTISSA.
    """
    bits = (MANTISSA - (vectors.shape[-1] - 1).bit_length()) // 2
    largest = vectors.abs().amax(-1, keepdim=True)
    exponents = torch.frexp(largest).exponent.clamp_min(SMALLEST)
    unit = torch.ldexp(torch.ones_like(largest), exponents - bits)
    finer = unit * 2.0**-bits
    high = (vectors / unit).round() * unit
    return high, ((vectors - high) / finer).round() * finer
