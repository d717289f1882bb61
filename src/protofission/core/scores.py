"""OOD scores, all with one sign: higher is more OOD.

Each maps the (N, C) logits and probabilities of the heads that stand for ID to (N,) scores.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Score = Callable[[Tensor, Tensor], Tensor]


def max_probability(logits: Tensor, probs: Tensor) -> Tensor:
    """1 - max_c p[c]: the paper's OOD probability."""
    return 1 - probs.amax(-1)


def max_logit(logits: Tensor, probs: Tensor) -> Tensor:
    """- max_c logit[c]: the other heads do not count. With cosines, the distance to a prototype."""
    return -logits.amax(-1)


def energy(logits: Tensor, probs: Tensor) -> Tensor:
    """- log sum_c exp logit[c]."""
    return -logits.logsumexp(-1)


def entropy(logits: Tensor, probs: Tensor) -> Tensor:
    """Entropy of the probabilities, scaled to sum to 1; maximal where all of them are 0."""
    mass = probs.sum(-1, keepdim=True)
    shares = torch.where(mass > 0, probs / mass, 1 / probs.shape[-1])
    per_class: Tensor = torch.special.entr(shares)
    return per_class.sum(-1)


def lack_of_mass(logits: Tensor, probs: Tensor) -> Tensor:
    """1 - sum_c p[c]: the mass that a softmax over all heads gives to the novel classes."""
    return 1 - probs.sum(-1)


SCORES: dict[str, Score] = {
    "max_probability": max_probability,
    "max_logit": max_logit,
    "energy": energy,
    "entropy": entropy,
    "lack_of_mass": lack_of_mass,
}
"""OOD scores by name: from (N, C) logits and probabilities to (N,) scores, higher is more OOD.

Examples:
    >>> import torch
    >>> from protofission import SCORES
    >>> logits = torch.tensor([[9.0, 0.0], [0.1, 0.0]])  # sure of a class, and of none
    >>> sure, unsure = SCORES["max_probability"](logits, logits.softmax(-1))
    >>> bool(sure < unsure)
    True
"""
