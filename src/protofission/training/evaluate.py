"""Predict the test images, and summarize predictions by the metrics of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from protofission.core.metrics import (
    Accuracy,
    Counts,
    PrototypeHealth,
    SubclassScore,
    accuracy,
    ari,
    aupr,
    auroc,
    contingency,
    fpr_at_tpr,
    nmi,
    prototype_health,
    subclass_score,
)
from protofission.core.records import Output, Prototypes
from protofission.core.scores import SCORES
from protofission.core.threads import one_library_thread
from protofission.data.image_sets import TestData, TrainingData, floats
from protofission.models.model import Model
from protofission.system.distributed import ALONE, Processes
from protofission.training.experiment import Experiment
from protofission.training.novel_classes import clustered, names_of
from protofission.training.outputs import Plain, embedded, outputs

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

CLUSTERED = 50_000
"""Rejected images that k-means looks at."""

NO_SLOT = -1
"""The slot of an image that no prototype claims."""


@dataclass(frozen=True)
class Predictions:
    """A model's predictions for N test images, with their true labels."""

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
    """(C, V, D); where heads are clusters of features, V = 1 and these are their centres."""
    mixing: Floats
    """(C, V): lambda."""
    num_seen: int
    num_classes: int
    finer: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """(N,): true finer classes where there are any, else (0,); so for the two that follow."""
    own_slots: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """(N,): the nearest prototype of the true class."""
    own_clusters: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """(N,): what k-means for V clusters makes of the features of each true class."""

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
    subclasses: SubclassScore = field(default_factory=SubclassScore)
    """Of the prototypes of each class, where finer classes are known."""
    subclusters: SubclassScore = field(default_factory=SubclassScore)
    """Of k-means within each class, on the same features, for as many clusters."""


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
        subclasses=_subclasses(predictions, predictions.own_slots),
        subclusters=_subclasses(predictions, predictions.own_clusters),
    )


def _subclasses(predictions: Predictions, parts: Ints) -> SubclassScore:
    finer = predictions.finer
    return subclass_score(predictions.labels, finer, parts) if len(finer) else SubclassScore()


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
    """Predictions for the test images, chunk by chunk; of novel classes as `Traits.novel` says.

    Args:
        memory: what the method has kept in training.
        plain: makes of inputs what the backbone takes.
    """
    num_seen, num_novel = training.num_seen, training.num_classes - training.num_seen
    method, judging = experiment.method, experiment.judging
    way = method.traits.novel if judging.novel == "own" else judging.novel
    look = _look(model, method.traits.novel == "match", training, plain, processes)
    rows = []
    for chunk in look(test.inputs):
        claimed = chunk.nearest.argmax(-1)
        slot, similarity = _nearest_slots(chunk.similarities, claimed)
        scores = ood_scores(chunk, experiment, memory, num_seen)
        rows.append((claimed, slot, similarity, scores))
        prototypes = chunk.prototypes
    heads, slots, sims, scores = (torch.cat(column) for column in zip(*rows, strict=True))
    divided = {} if test.finer is None else _divided(look, test, experiment.seed)
    if way in ("cluster", "anchor"):
        found = clustered(
            embedded(model, training.labeled, plain, processes),
            training.labels,
            embedded(model, test.inputs, plain, processes),
            num_seen,
            training.num_classes,
            experiment.seed,
            anchored=way == "anchor",
        )
        heads, slots, sims = found.heads, torch.zeros_like(found.heads), found.similarities
        prototypes = Prototypes.one_per_class(found.centres)
        if not method.traits.classifies:
            scores = found.scores
    elif way == "reject" and num_novel:
        labeled = [
            ood_scores(chunk, experiment, memory, num_seen) for chunk in look(training.labeled)
        ]
        rejected = scores > torch.cat(labeled).quantile(judging.keep)
        heads[rejected] = num_seen + clusters(
            lambda some: embedded(model, test.inputs[rejected.cpu()][some], plain, processes),
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
        **divided,
    )


Look = Callable[[Tensor], Iterator[Output]]
"""The outputs for inputs, chunk by chunk, heads in the order of the classes."""


def _look(
    model: Model, nameless: bool, training: TrainingData, plain: Plain, processes: Processes
) -> Look:
    """Make a function of inputs that yields a model's outputs, chunk by chunk.

    Args:
        nameless: whether its heads are clusters, to be put into the order of the seen classes that
            the labels match them with; the others follow.
    """

    def look(inputs: Tensor) -> Iterator[Output]:
        return outputs(model, inputs, plain, processes)

    if not nameless:
        return look
    claimed = torch.cat([output.nearest.argmax(-1) for output in look(training.labeled)])
    names = names_of(claimed, training.labels, training.num_seen, training.num_classes)
    order = names.argsort().to(claimed.device)
    return lambda inputs: (_ordered(output, order) for output in look(inputs))


def _ordered(output: Output, order: Tensor) -> Output:
    """The output with its heads in another order."""
    return replace(
        output,
        similarities=output.similarities[:, order],
        nearest=output.nearest[:, order],
        prototypes=Prototypes(*(part[order] for part in output.prototypes)),
    )


def _divided(look: Look, test: TestData, seed: int) -> dict[str, Ints]:
    """Finer classes, and two divisions of each class: by its prototypes, and by k-means."""
    features, slots, start = [], [], 0
    for chunk in look(test.inputs):
        own = torch.from_numpy(test.labels[start : start + len(chunk.features)])
        own = own.clamp_max(chunk.similarities.shape[1] - 1)  # of a class without a head, any slot
        slots.append(_nearest_slots(chunk.similarities, own.to(chunk.similarities.device))[0])
        features.append(nn.functional.normalize(chunk.features, dim=1))
        start, number = start + len(own), chunk.similarities.shape[2]
    points, parts = torch.cat(features).cpu(), np.empty(len(test.labels), np.int64)
    for label in np.unique(test.labels):
        places = np.flatnonzero(test.labels == label)
        own_points = points[places]
        parts[places] = clusters(own_points.__getitem__, len(places), number, seed).numpy()
    assert test.finer is not None
    own_slots = torch.cat(slots).cpu().numpy()
    return {"finer": test.finer, "own_slots": own_slots, "own_clusters": parts}


def ood_scores(output: Output, experiment: Experiment, memory: nn.Module, num_seen: int) -> Tensor:
    """(N,): the method's own OOD score, or the experiment's over the seen heads, or all heads."""
    name = experiment.judging.ood_score
    if name == "own":
        own = experiment.method.ood_score(output, memory, num_seen)
        if own is not None:
            return own
        name = "max_probability"
    heads = slice(num_seen if experiment.judging.auc_heads == "seen" else None)
    probs = experiment.method.sigma.probs(output.logits)
    return SCORES[name](output.logits[:, heads], probs[:, heads])


def clusters(features: Callable[[slice], Tensor], rows: int, number: int, seed: int) -> Tensor:
    """(rows,): the k-means cluster of each row, by the means of at most `CLUSTERED` of them.

    Args:
        features: of some rows, (n, D).
    """
    from sklearn.cluster import KMeans

    if rows <= number:
        return torch.arange(rows)
    step = -(-rows // CLUSTERED)
    means = KMeans(number, n_init=10, random_state=seed)
    with one_library_thread():
        means.fit(features(slice(None, None, step)).cpu().numpy())
    if step == 1:
        return torch.from_numpy(means.labels_).long()
    parts = [slice(start, start + CLUSTERED) for start in range(0, rows, CLUSTERED)]
    found = [means.predict(features(part).cpu().numpy()) for part in parts]
    return torch.from_numpy(np.concatenate(found)).long()


def _nearest_slots(similarities: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest slot of each row's head, and its similarity."""
    sims, slots = similarities[torch.arange(len(heads)), heads].max(-1)
    return slots, sims
