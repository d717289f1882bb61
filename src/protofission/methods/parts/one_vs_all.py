"""One-vs-all heads: for each seen class, whether a row is of it."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.fission import random_directions


class OneVsAllOutput(NamedTuple):
    """Log-probabilities of one-vs-all heads, for each row and class."""

    inside: Tensor
    """(N, S): log of the probability that the row is of the class."""
    outside: Tensor
    """(N, S): log of the probability that it is not."""


class OneVsAll(nn.Module):
    """Two logits a class, "of it" and "not of it", linear in the features and without a bias."""

    def __init__(self, num_features: int, num_seen: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            random_directions(num_seen, 2, num_features, generator=generator)
        )

    def forward(self, features: Tensor) -> OneVsAllOutput:
        """(N, D) features to the softmax over the two logits of each class."""
        logits = torch.einsum("nd,scd->nsc", features, self.weight)
        odds = logits[..., 0] - logits[..., 1]
        return OneVsAllOutput(F.logsigmoid(odds), F.logsigmoid(-odds))


def ova_loss(answers: OneVsAllOutput, labels: Tensor) -> Tensor:
    """(L,): -log p(of y) - min over c != y of log p(not of c), the hardest negative alone."""
    positive = -answers.inside.gather(1, labels[:, None])[:, 0]
    own = F.one_hot(labels, answers.outside.shape[1]).bool()
    return positive + (-answers.outside).masked_fill(own, 0).amax(1)
