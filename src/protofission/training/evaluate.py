"""Predictions of a trained model for the test images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from protofission.core.array_types import Ints
from protofission.core.distance_scores import DISTANCE_SCORES, held_out_scores
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
DISTANCE_LABELS, DISTANCE_POOL = 50_000, 10_000
"""Labeled and pool images that distances are fitted to; of more, evenly spaced ones."""


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
    scored = (
        _scored_by_distance(model, judging.ood_score, training, plain, processes)
        if judging.ood_score in DISTANCE_SCORES
        else _scored_by_output(run_model, experiment, memory, training)
    )
    rows = []
    for chunk in run_model(test.inputs):
        claimed = chunk.nearest.argmax(-1)
        slot, similarity = _nearest_slots(chunk.similarities, claimed)
        rows.append((claimed, slot, similarity, scored.score(chunk)))
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
        if not method.traits.classifies and judging.ood_score == "own":
            scores = found.scores
    elif way == "reject" and num_novel:
        rejected = scores > scored.labeled_scores().quantile(judging.keep)
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


class Scored(NamedTuple):
    """An OOD score that is ready for use."""

    score: Callable[[Output], Tensor]
    """(N,): the scores of N images, from their output."""
    labeled_scores: Callable[[], Tensor]
    """Computes the scores of labeled images, to set a threshold by."""


def _scored_by_output(
    run_model: RunModel, experiment: Experiment, memory: nn.Module, training: TrainingData
) -> Scored:
    """The score of `ood_scores`."""

    def score(output: Output) -> Tensor:
        return ood_scores(output, experiment, memory, training.num_seen)

    return Scored(score, lambda: torch.cat([score(out) for out in run_model(training.labeled)]))


def _scored_by_distance(
    model: Model, name: str, training: TrainingData, plain: Plain, processes: Processes
) -> Scored:
    """A score of `DISTANCE_SCORES`, fitted to the features of labeled images and of the pool.

    Labeled images are scored by fits that did not see them: their own fit would call them more ID
    than new images.
    """
    by_class = training.labels.argsort(stable=True)
    kept = by_class[:: -(-len(by_class) // DISTANCE_LABELS) or 1].sort().values
    some = slice(None, None, -(-len(training.unlabeled) // DISTANCE_POOL) or 1)
    fitted_to = (
        compute_features(model, training.labeled[kept], plain, processes).cpu(),
        training.labels[kept].cpu(),
        compute_features(model, training.unlabeled[some], plain, processes).cpu(),
        training.num_seen,
    )
    score = DISTANCE_SCORES[name](*fitted_to)
    return Scored(
        lambda output: score(output.features.cpu()).float().to(output.features.device),
        lambda: held_out_scores(DISTANCE_SCORES[name], *fitted_to).float(),
    )


def ood_scores(output: Output, experiment: Experiment, memory: nn.Module, num_seen: int) -> Tensor:
    """(N,): OOD scores, by the method's own score or by a name of `SCORES`."""
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
