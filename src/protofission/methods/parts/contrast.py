"""Contrastive losses: of two views of an image, and of the images of a class."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from protofission.core.records import NO_CLASS


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """-log of the other view's softmax share among the 2U - 1 other vectors, averaged over all 2U.

    Args:
        first, second: (U, P), row by row two views of the same image.
    """
    unit = F.normalize(torch.cat([first, second]), dim=-1)
    images = len(first)
    itself = torch.eye(2 * images, dtype=torch.bool, device=unit.device)
    logits = (unit @ unit.T / temperature).masked_fill(itself, -torch.inf)
    other_view = torch.arange(2 * images, device=unit.device).roll(images)
    return F.cross_entropy(logits, other_view)


def class_contrast(vectors: Tensor, classes: Tensor, temperature: float) -> Tensor:
    """Supervised contrast: -log of a partner's softmax share among all others, averaged.

    For a vector the mean is over its partners, the other vectors of its class; then over all
    vectors that have one. Vectors without a class are neither partners nor others.

    Args:
        vectors: (M, P).
        classes: (M,), NO_CLASS where there is none.
        temperature: divides the cosines.
    """
    units, known = F.normalize(vectors, dim=-1), classes != NO_CLASS
    others = known.expand(len(known), -1) & ~torch.eye(len(known), device=known.device).bool()
    partners = (others & (classes[:, None] == classes)).to(vectors.dtype)
    lowest = torch.finfo(vectors.dtype).min  # finite, so that a vector without others has no NaN
    logits = (units @ units.T / temperature).masked_fill(~others, lowest)
    shares = logits.log_softmax(-1).masked_fill(partners == 0, 0.0)
    number = partners.sum(-1)
    contrast = -shares.sum(-1) / number.clamp_min(1)
    return contrast.sum() / (number > 0).sum().clamp_min(1)
