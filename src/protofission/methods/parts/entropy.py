"""The entropy by which methods keep all heads in use."""

from __future__ import annotations

import torch
from torch import Tensor


def negative_entropy(probs: Tensor) -> Tensor:
    """-H(p) = sum p log p, over the last dimension."""
    return (probs * probs.clamp_min(torch.finfo(probs.dtype).tiny).log()).sum(-1)
