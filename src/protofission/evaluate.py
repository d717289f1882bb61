"""From a model to predictions, and from predictions to numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from protofission.data.images import TestData, TrainingData
from protofission.experiment import Experiment
from protofission.metrics import (
    Accuracy,
    Counts,
    PrototypeHealth,
    accuracy,
    ari,
    aupr,
    auroc,
    contingency,
    fpr_at_tpr,
    nmi,
    prototype_health,
)
from protofission.models.model import Model
from protofission.processes import ALONE, Processes
from protofission.records import Output
from protofission.scores import SCORES
from protofission.train import outputs

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

QUERIES = 1000
"""Images whose neighbours are looked for at once."""

NO_SLOT = -1
"""The slot of an image that no prototype claims."""


@dataclass(frozen=True)
class Predictions:
    """What a model says of the test images; true labels stand beside it to judge by."""

    labels: Ints
    """(N,): true classes, seen ones first."""
    heads: Ints
    """(N,): predicted heads; from S on, novel ones."""
    slots: Ints
    """(N,): the nearest prototype of the predicted head, or NO_SLOT."""
    similarities: Floats
    """(N,): the similarity to that prototype, or to the nearest one of all."""
    ood_scores: Floats
    """(N,): higher is more OOD."""
    prototypes: Floats
    """(C, V, D)."""
    mixing: Floats
    """(C, V): lambda."""
    num_seen: int
    num_classes: int

    @property
    def confusion(self) -> Counts:
        """(classes, heads): images by true class and predicted head."""
        return contingency(self.labels, self.heads, self.num_classes, self.num_classes)

    @property
    def slot_usage(self) -> Counts:
        """(C, V): images by predicted head and its nearest slot."""
        claimed = self.slots != NO_SLOT
        usage = np.zeros(self.prototypes.shape[:2], np.int64)
        np.add.at(usage, (self.heads[claimed], self.slots[claimed]), 1)
        return usage


@dataclass(frozen=True)
class Summary:
    """The numbers of a run."""

    orca: Accuracy
    strict: Accuracy
    auc: float
    """ID against OOD."""
    aupr: float
    fpr95: float
    nmi: float
    ari: float
    prototypes: PrototypeHealth


def summarize(predictions: Predictions) -> Summary:
    """All metrics of a set of predictions, each over the whole set at once."""
    counts, seen = predictions.confusion, predictions.num_seen
    is_seen = predictions.labels < seen
    inside, outside = predictions.ood_scores[is_seen], predictions.ood_scores[~is_seen]
    return Summary(
        orca=accuracy(counts, seen, "orca"),
        strict=accuracy(counts, seen, "strict"),
        auc=auroc(inside, outside),
        aupr=aupr(inside, outside),
        fpr95=fpr_at_tpr(inside, outside),
        nmi=nmi(counts),
        ari=ari(counts),
        prototypes=prototype_health(
            predictions.slot_usage, predictions.prototypes, predictions.mixing
        ),
    )


def predict(
    model: Model,
    experiment: Experiment,
    training: TrainingData,
    test: TestData,
    processes: Processes = ALONE,
) -> Predictions:
    """Predictions for the test images.

    A method that has no heads for novel classes speaks of them as ORCA made such methods do: it
    rejects, then clusters the features of what it rejected, by k-means for the novel classes.
    """
    chunks = list(outputs(model, test.inputs, processes))
    scores = torch.cat([ood_scores(chunk, experiment, training.num_seen) for chunk in chunks])
    heads = torch.cat([chunk.nearest.argmax(-1) for chunk in chunks])
    slots, sims = _nearest_slots(torch.cat([chunk.similarities for chunk in chunks]), heads)
    num_novel = training.num_classes - training.num_seen
    if not experiment.method.discovers and num_novel:
        labeled = [
            ood_scores(chunk, experiment, training.num_seen)
            for chunk in outputs(model, training.labeled, processes)
        ]
        rejected = scores > torch.cat(labeled).quantile(experiment.judging.keep)
        features = torch.cat([chunk.features for chunk in chunks])
        heads[rejected] = training.num_seen + clusters(
            features[rejected], num_novel, experiment.seed
        )
        slots[rejected] = NO_SLOT
    prototypes = chunks[0].prototypes
    return Predictions(
        labels=test.labels,
        heads=heads.cpu().numpy(),
        slots=slots.cpu().numpy(),
        similarities=sims.cpu().float().numpy(),
        ood_scores=scores.cpu().float().numpy(),
        prototypes=prototypes.combined.detach().cpu().float().numpy(),
        mixing=prototypes.mixing.detach().cpu().float().numpy(),
        num_seen=training.num_seen,
        num_classes=training.num_classes,
    )


def ood_scores(output: Output, experiment: Experiment, num_seen: int) -> Tensor:
    """(N,): the experiment's OOD score over the seen heads, or over all of them by option."""
    heads = slice(num_seen if experiment.judging.auc_heads == "seen" else None)
    probs = experiment.method.sigma.probs(output.logits)
    return SCORES[experiment.judging.ood_score](output.logits[:, heads], probs[:, heads])


def clusters(features: Tensor, number: int, seed: int) -> Tensor:
    """(N,): the k-means cluster of each row."""
    from sklearn.cluster import KMeans

    if len(features) <= number:
        return torch.arange(len(features), device=features.device)
    means = KMeans(number, n_init=10, random_state=seed)
    found = torch.from_numpy(means.fit_predict(features.cpu().numpy()))
    return found.long().to(features.device)


def neighbour_accuracy(
    model: Model,
    training: TrainingData,
    test: TestData,
    neighbours: int,
    processes: Processes = ALONE,
) -> float:
    """How often the labeled images nearest to a test image of a seen class tell its class."""
    seen = test.labels < training.num_seen
    bank, queries = (
        torch.cat([chunk.features for chunk in outputs(model, inputs, processes)])
        for inputs in (training.labeled, test.inputs[torch.from_numpy(seen)])
    )
    found = neighbour_classes(bank, training.labels.to(bank.device), queries, neighbours)
    return float((found.cpu().numpy() == test.labels[seen]).mean())


def neighbour_classes(
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


def _nearest_slots(similarities: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest slot of each row's head, and its similarity."""
    sims, slots = similarities[torch.arange(len(heads)), heads].max(-1)
    return slots, sims
