"""Metrics of a run on the test set."""

from __future__ import annotations

from dataclasses import dataclass, field

from protofission.core.array_types import Ints
from protofission.core.metrics import (
    Accuracy,
    PrototypeHealth,
    SubclassScore,
    accuracy,
    ari,
    aupr,
    auroc,
    fpr_at_tpr,
    nmi,
    prototype_health,
    subclass_score,
)
from protofission.training.predictions import Predictions


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of a model on the test set."""

    orca: Accuracy
    strict: Accuracy
    auc: float
    """AUROC of ID against OOD."""
    aupr: float
    fpr95: float
    nmi: float
    ari: float
    prototypes: PrototypeHealth
    subclasses: SubclassScore = field(default_factory=SubclassScore)
    """Score of the prototypes of each class against finer classes, if these are known."""
    subclusters: SubclassScore = field(default_factory=SubclassScore)
    """Score of as many k-means clusters within each class, on the same features."""


def compute_metrics(predictions: Predictions) -> RunMetrics:
    """Compute all metrics of a set of predictions, each over the whole set at once."""
    counts, seen = predictions.confusion, predictions.num_seen
    is_seen = predictions.labels < seen
    inside, outside = predictions.ood_scores[is_seen], predictions.ood_scores[~is_seen]
    return RunMetrics(
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
