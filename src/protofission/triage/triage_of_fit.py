"""The content of the triage of a fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protofission.core.array_types import Ints
from protofission.core.cluster_numbers import ClusterNumber
from protofission.core.number_words import percent
from protofission.triage.calibrated_model import ACCEPT, Verdicts, subclass_use
from protofission.triage.fit_data import FitData
from protofission.triage.fit_model import FitResult
from protofission.triage.label_verdicts import judge_labels
from protofission.triage.prediction_table import Names
from protofission.triage.triage_data import NO_GROUP, PoolVerdicts, TriageData


def triage_data_of(fitted: FitResult, data: FitData, names: Names) -> TriageData:
    """Collect the content of the triage of a fit."""
    found, model = fitted.pool, fitted.calibrated_model
    return TriageData(
        pixels=data.images.pixels,
        paths=data.images.paths,
        folders=data.folders,
        folder_of=data.folder_of,
        labels=judge_labels(data.labels, fitted.held_probs, fitted.folds),
        pool=PoolVerdicts(
            classes=found.classes.numpy(),
            probability=found.probs.amax(-1).numpy(),
            subclasses=found.subclasses.numpy(),
            id_scores=found.id_scores.numpy(),
            decisions=found.decisions.numpy(),
            clusters=found.clusters.numpy(),
            typicality=fitted.typicality,
        ),
        duplicate_groups=duplicate_groups(fitted.duplicates, data.images.pixel_digests()),
        class_names=names.classes,
        subclass_names=names.subclasses,
        cluster_names=names.clusters,
        known_scores=fitted.calibration_scores,
        threshold=float(model.threshold),
        guarantee=fitted.promise(),
        facts=_facts(fitted),
        findings=data.findings,
        kinds=subclass_sentences(subclass_use(model, found).numpy(), names.classes),
    )


def duplicate_groups(near: Ints, digests: Sequence[str]) -> Ints:
    """(N,): groups of near-duplicates, NO_GROUP of an image that is alone.

    Args:
        near: (n,) groups by features, of the first n images at least.
        digests: of the pixels of all N images; the others are grouped by these.
    """
    groups = near
    if len(near) < len(digests):
        groups = np.unique(digests, return_inverse=True)[1]
    counts = np.bincount(groups)
    return np.where(counts[groups] > 1, groups, NO_GROUP)


def subclass_sentences(use: Ints, names: Sequence[str]) -> list[str]:
    """Say for each class how many of its sub-classes the accepted images are of.

    Args:
        use: (S, V) accepted images of each sub-class, as `subclass_use` counts them.
    """
    lines = []
    for name, own in zip(names, use, strict=True):
        total = int(own.sum())
        if not total:
            lines.append(f"{name}: no image of the pool was accepted.")
            continue
        busy = int((own >= 0.05 * total).sum())
        if busy == 1:
            lines.append(f"{name}: all of one kind.")
        else:
            lines.append(f"{name}: {busy} kinds, the largest with {own.max() / total:.0%}.")
    return lines


def cluster_sentence(counted: ClusterNumber, pool: Verdicts) -> str:
    """The estimated number of clusters of the rejected images as a sentence."""
    if bool((pool.decisions == ACCEPT).all()):
        return "No image is rejected, so new classes were not looked for."
    if not counted.number:
        return "Nothing among the rejected images looks new."
    return (
        f"The rejected images fall into about {counted.number} "
        f"cluster{'s' * (counted.number != 1)} ({counted.low} to {counted.high})."
    )


def _facts(fitted: FitResult) -> list[tuple[str, str]]:
    before, after = fitted.calibration_errors
    facts = [
        ("Strangers", fitted.strangers.sentence()),
        ("The pool", fitted.guard.sentence()),
        (
            "Probabilities",
            f"Expected calibration error {before:.3f} before, {after:.3f} after a temperature of "
            f"{fitted.calibrated_model.temperature.item():.2f}; {percent(fitted.accuracy)} of "
            f"{fitted.guarantee.images:,} labels right, by models that did not see them.",
        ),
    ]
    if fitted.novel is not None:
        facts.append(("How many new", cluster_sentence(fitted.novel, fitted.pool)))
    return facts
