"""The k-nearest-neighbor accuracy of features: for methods that train no classifier."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from protofission.core.array_types import Ints
from protofission.data.image_sets import TestData, TrainingData, floats
from protofission.models.model import Model
from protofission.system.distributed import ALONE, Processes
from protofission.training.outputs import Plain, compute_features

MOST_LABELED = 50_000
"""Labeled images among which neighbors are looked for; of more, evenly spaced ones."""
MOST_QUERIES = 20_000
"""Test images whose neighbors are looked for; of more, evenly spaced ones."""
QUERY_ROWS = 1000
"""Images whose neighbors are looked for at once."""


def neighbor_accuracy(
    model: Model,
    training: TrainingData,
    test: TestData,
    neighbors: int,
    plain: Plain = floats,
    processes: Processes = ALONE,
) -> float:
    """The share of test images of seen classes that get their class by the nearest labeled ones."""
    kept = _evenly(np.arange(len(training.labels)), MOST_LABELED)
    asked = _evenly(np.flatnonzero(test.labels < training.num_seen), MOST_QUERIES)
    bank = compute_features(model, training.labeled[kept], plain, processes)
    queries = compute_features(model, test.inputs[asked], plain, processes)
    labels = training.labels[kept].to(bank.device)
    found = neighbor_classes(bank, labels, queries, neighbors)
    return float((found.cpu().numpy() == test.labels[asked]).mean())


def _evenly(places: Ints, most: int) -> Ints:
    """Select at most `most` of the places, evenly spaced."""
    return places[:: -(-len(places) // most) or 1]


def neighbor_classes(
    bank: Tensor, labels: Tensor, queries: Tensor, neighbors: int, temperature: float = 0.1
) -> Tensor:
    """(Q,): the class with most weight among the nearest, by cosine c with the weight exp(c / T).

    Args:
        bank: (B, D) features, of the classes `labels`, (B,).
        queries: (Q, D).
    """
    unit, votes = nn.functional.normalize(bank, dim=1), []
    for chunk in torch.split(nn.functional.normalize(queries, dim=1), QUERY_ROWS):
        cosines, places = (chunk @ unit.T).topk(min(neighbors, len(bank)), dim=1)
        weights = (cosines / temperature).exp()
        empty = weights.new_zeros(len(chunk), int(labels.max()) + 1)
        votes.append(empty.scatter_add_(1, labels[places], weights).argmax(1))
    return torch.cat(votes)
