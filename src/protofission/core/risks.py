"""Activations sigma with their risks R: softmax with cross entropy, sigmoid with one-vs-all BCE.

A risk is one value per row; a method averages it over the rows it chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch.nn.functional as F
from torch import Tensor


class Sigma(Protocol):
    """An activation and its risk."""

    def probs(self, logits: Tensor) -> Tensor:
        """(N, C) logits to (N, C) probabilities."""

    def risk(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(N,): R(sigma(logits), labels) of each row."""


@dataclass(frozen=True)
class Softmax:
    """One class is right: probabilities sum to 1 (Eq. 12), the risk is the cross entropy."""

    def probs(self, logits: Tensor) -> Tensor:
        """(N, C) logits to (N, C) probabilities."""
        return logits.softmax(-1)

    def risk(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(N,): -log p[y]."""
        return -logits.log_softmax(-1).gather(-1, labels[:, None]).squeeze(-1)


@dataclass(frozen=True)
class Sigmoid:
    """Each class by itself, or none (Eq. 10): the risk is one-vs-all binary cross entropy.

    `reduction` sums or averages the C binary risks of a row.
    """

    reduction: Literal["sum", "mean"] = "sum"

    def probs(self, logits: Tensor) -> Tensor:
        """(N, C) logits to (N, C) probabilities."""
        return logits.sigmoid()

    def risk(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(N,): -log p[y] - sum over c != y of log(1 - p[c])."""
        own = F.one_hot(labels, logits.shape[-1]).to(logits.dtype)
        return self._reduce(F.binary_cross_entropy_with_logits(logits, own, reduction="none"))

    def none_risk(self, logits: Tensor) -> Tensor:
        """(N,): Eq. 9, BCE(sigma(logits), 0), the risk of a row that belongs to no class."""
        return self._reduce(F.softplus(logits))

    def _reduce(self, per_class: Tensor) -> Tensor:
        return per_class.sum(-1) if self.reduction == "sum" else per_class.mean(-1)
