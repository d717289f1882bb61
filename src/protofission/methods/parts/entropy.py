"""The entropy by which methods keep all heads in use."""

from __future__ import annotations

import torch
from torch import Tensor


def negative_entropy(probs: Tensor) -> Tensor:
    """-H(p) = sum p log p, over the last dimension."""
    return (probs * probs.clamp_min(torch.finfo(probs.dtype).tiny).log()).sum(-1)


def unevenness(probs: Tensor, expected: Tensor | None = None) -> Tensor:
    """KL(p, expected) over the last dimension; without `expected`, -H(p), KL to even parts.

    They differ by a constant where the expected parts are even.
    """
    if expected is None:
        return negative_entropy(probs)
    return negative_entropy(probs) - (probs * expected.log()).sum(-1)
