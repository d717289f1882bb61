"""Predictions of a trained model for the test images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from protofission.core.array_types import Ints
from protofission.core.records import Output, Prototypes
from protofission.core.scores import SCORES
from protofission.core.threads import one_library_thread
from protofission.data.image_sets import TestData, TrainingData, floats
from protofission.models.model import Model
from protofission.system.distributed import ALONE, Processes
from protofission.training.experiment import Experiment
from protofission.training.novel_classes import cluster_into_classes, match_clusters
from protofission.training.outputs import Plain, compute_features, outputs
from protofission.training.predictions import NO_SLOT, Predictions

KMEANS_ROWS = 50_000
"""Rows that k-means is fitted to; of more, evenly spaced ones."""


@torch.no_grad()
def predict(
    model: Model,
    memory: nn.Module,
    experiment: Experiment,
    training: TrainingData,
    test: TestData,
    plain: Plain = floats,
    processes: Processes = ALONE,
) -> Predictions:
    """Predict the test images, chunk by chunk; novel classes by the way of `Traits.novel`.

    Args:
        memory: the method's memory that belongs to the model.
        plain: turns inputs into what the backbone takes.
    """
    num_seen, num_novel = training.num_seen, training.num_classes - training.num_seen
    method, judging = experiment.method, experiment.judging
    way = method.traits.novel if judging.novel == "own" else judging.novel
    run_model = _ordered_outputs(model, method.traits.novel == "match", training, plain, processes)
    rows = []
    for chunk in run_model(test.inputs):
        claimed = chunk.nearest.argmax(-1)
        slot, similarity = _nearest_slots(chunk.similarities, claimed)
        scores = ood_scores(chunk, experiment, memory, num_seen)
        rows.append((claimed, slot, similarity, scores))
        prototypes = chunk.prototypes
    heads, slots, sims, scores = (torch.cat(column) for column in zip(*rows, strict=True))
    finer = {} if test.finer is None else _divide_classes(run_model, test, experiment.seed)
    if way in ("cluster", "anchor"):
        found = cluster_into_classes(
            compute_features(model, training.labeled, plain, processes),
            training.labels,
            compute_features(model, test.inputs, plain, processes),
            num_seen,
            training.num_classes,
            experiment.seed,
            anchored=way == "anchor",
        )
        heads, slots, sims = found.heads, torch.zeros_like(found.heads), found.similarities
        prototypes = Prototypes.one_per_class(found.centers)
        if not method.traits.classifies:
            scores = found.scores
    elif way == "reject" and num_novel:
        labeled = [
            ood_scores(chunk, experiment, memory, num_seen) for chunk in run_model(training.labeled)
        ]
        rejected = scores > torch.cat(labeled).quantile(judging.keep)
        heads[rejected] = num_seen + kmeans_clusters(
            lambda some: compute_features(
                model, test.inputs[rejected.cpu()][some], plain, processes
            ),
            int(rejected.sum()),
            num_novel,
            experiment.seed,
        ).to(heads.device)
        slots[rejected] = NO_SLOT
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
        **finer,
    )


RunModel = Callable[[Tensor], Iterator[Output]]
"""Gives the outputs for inputs, chunk by chunk, with the heads in the order of the classes."""


def _ordered_outputs(
    model: Model, match: bool, training: TrainingData, plain: Plain, processes: Processes
) -> RunModel:
    """A function that runs the model and puts its heads into the order of the classes.

    Args:
        match: whether the heads are clusters, to be matched to the seen classes through the labels;
            clusters without a match follow.
    """

    def run_model(inputs: Tensor) -> Iterator[Output]:
        return outputs(model, inputs, plain, processes)

    if not match:
        return run_model
    claimed = torch.cat([output.nearest.argmax(-1) for output in run_model(training.labeled)])
    names = match_clusters(claimed, training.labels, training.num_seen, training.num_classes)
    order = names.argsort().to(claimed.device)
    return lambda inputs: (_reorder_heads(output, order) for output in run_model(inputs))


def _reorder_heads(output: Output, order: Tensor) -> Output:
    """A copy of the output with its heads in another order."""
    return replace(
        output,
        similarities=output.similarities[:, order],
        nearest=output.nearest[:, order],
        prototypes=Prototypes(*(part[order] for part in output.prototypes)),
    )


def _divide_classes(run_model: RunModel, test: TestData, seed: int) -> dict[str, Ints]:
    """Finer true classes, and two divisions of each class: by its prototypes, and by k-means."""
    features, slots, start = [], [], 0
    for chunk in run_model(test.inputs):
        own = torch.from_numpy(test.labels[start : start + len(chunk.features)])
        own = own.clamp_max(chunk.similarities.shape[1] - 1)  # a class without a head: any slot
        slots.append(_nearest_slots(chunk.similarities, own.to(chunk.similarities.device))[0])
        features.append(nn.functional.normalize(chunk.features, dim=1))
        start, number = start + len(own), chunk.similarities.shape[2]
    points, parts = torch.cat(features).cpu(), np.empty(len(test.labels), np.int64)
    for label in np.unique(test.labels):
        places = np.flatnonzero(test.labels == label)
        own_points = points[places]
        parts[places] = kmeans_clusters(own_points.__getitem__, len(places), number, seed).numpy()
    assert test.finer is not None
    own_slots = torch.cat(slots).cpu().numpy()
    return {"finer": test.finer, "own_slots": own_slots, "own_clusters": parts}


def ood_scores(output: Output, experiment: Experiment, memory: nn.Module, num_seen: int) -> Tensor:
    """(N,): OOD scores, by the method's own score or by `judging.ood_score`."""
    name = experiment.judging.ood_score
    if name == "own":
        own = experiment.method.ood_score(output, memory, num_seen)
        if own is not None:
            return own
        name = "max_probability"
    heads = slice(num_seen if experiment.judging.auc_heads == "seen" else None)
    probs = experiment.method.sigma.probs(output.logits)
    return SCORES[name](output.logits[:, heads], probs[:, heads])


def kmeans_clusters(
    features: Callable[[slice], Tensor], rows: int, number: int, seed: int
) -> Tensor:
    """(rows,): the k-means cluster of each row, by the means of at most `KMEANS_ROWS` of them.

    Args:
        features: gives the features (n, D) of some rows.
    """
    from sklearn.cluster import KMeans

    if rows <= number:
        return torch.arange(rows)
    step = -(-rows // KMEANS_ROWS)
    means = KMeans(number, n_init=10, random_state=seed)
    with one_library_thread():
        means.fit(features(slice(None, None, step)).cpu().numpy())
    if step == 1:
        return torch.from_numpy(means.labels_).long()
    parts = [slice(start, start + KMEANS_ROWS) for start in range(0, rows, KMEANS_ROWS)]
    found = [means.predict(features(part).cpu().numpy()) for part in parts]
    return torch.from_numpy(np.concatenate(found)).long()


def _nearest_slots(similarities: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest slot of each row's head, and the similarity to it."""
    sims, slots = similarities[torch.arange(len(heads)), heads].max(-1)
    return slots, sims
