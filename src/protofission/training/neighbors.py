"""The nearest-neighbor accuracy of features that have no classes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from protofission.data.image_sets import TestData, TrainingData, floats
from protofission.models.model import Model
from protofission.system.distributed import ALONE, Processes
from protofission.training.outputs import Plain, embedded

Ints = NDArray[np.int64]

BANK = 50_000
"""Labeled images among which neighbors are looked for."""
QUERIED = 20_000
"""Test images whose neighbors are looked for."""
QUERIES = 1000
"""Images whose neighbors are looked for at once."""


def neighbor_accuracy(
    model: Model,
    training: TrainingData,
    test: TestData,
    neighbours: int,
    plain: Plain = floats,
    processes: Processes = ALONE,
) -> float:
    """k-nearest-neighbor accuracy on the test images of seen classes, by labeled images."""
    kept = _evenly(np.arange(len(training.labels)), BANK)
    asked = _evenly(np.flatnonzero(test.labels < training.num_seen), QUERIED)
    bank = embedded(model, training.labeled[kept], plain, processes)
    queries = embedded(model, test.inputs[asked], plain, processes)
    labels = training.labels[kept].to(bank.device)
    found = neighbor_classes(bank, labels, queries, neighbours)
    return float((found.cpu().numpy() == test.labels[asked]).mean())


def _evenly(places: Ints, most: int) -> Ints:
    """At most so many places, from the first to the last."""
    return places[:: -(-len(places) // most) or 1]


def neighbor_classes(
    bank: Tensor, labels: Tensor, queries: Tensor, neighbours: int, temperature: float = 0.1
) -> Tensor:
    """(Q,): the class with most weight among the nearest, by cosine c with the weight exp(c / T).

    Args:
        bank: (B, D) features, of the classes `labels`, (B,).
        queries: (Q, D).
    """
    unit, votes = nn.functional.normalize(bank, dim=1), []
    for chunk in torch.split(nn.functional.normalize(queries, dim=1), QUERIES):
        cosines, places = (chunk @ unit.T).topk(min(neighbours, len(bank)), dim=1)
        weights = (cosines / temperature).exp()
        empty = weights.new_zeros(len(chunk), int(labels.max()) + 1)
        votes.append(empty.scatter_add_(1, labels[places], weights).argmax(1))
    return torch.cat(votes)
