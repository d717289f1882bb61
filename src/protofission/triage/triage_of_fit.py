"""The content of the triage of a fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protofission.core.array_types import Ints
from protofission.core.number_words import percent
from protofission.triage.calibrated_model import slot_use
from protofission.triage.fit_data import FitData
from protofission.triage.fit_model import FitResult, prototype_sentences
from protofission.triage.label_verdicts import NO_FOLD, LabelVerdicts, judge_labels
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
        labels=_label_verdicts(fitted, data),
        pool=PoolVerdicts(
            classes=found.classes.numpy(),
            probability=found.probs.amax(-1).numpy(),
            subclasses=found.subclasses.numpy(),
            id_scores=found.id_scores.numpy(),
            decisions=found.decisions.numpy(),
            clusters=found.clusters.numpy(),
            typicality=-found.id_scores.numpy(),
        ),
        duplicate_groups=same_pixels(data.images.pixel_digests()),
        class_names=names.classes,
        subclass_names=names.subclasses,
        cluster_names=names.clusters,
        known_scores=fitted.calibration_scores,
        threshold=float(model.threshold),
        guarantee=fitted.promise(),
        facts=_facts(fitted),
        findings=data.findings,
        kinds=prototype_sentences(slot_use(model, found).numpy(), names.classes),
    )


def same_pixels(digests: Sequence[str]) -> Ints:
    """(N,): the groups of images whose pixels are the same; NO_GROUP of an image that is unique."""
    _, groups, counts = np.unique(digests, return_inverse=True, return_counts=True)
    return np.where(counts[groups] > 1, groups, NO_GROUP)


def _label_verdicts(fitted: FitResult, data: FitData) -> LabelVerdicts:
    """Verdicts on the labels that set the threshold; the others were learned from."""
    held = fitted.held.calibrating
    folds = np.full(len(data.labels), NO_FOLD)
    folds[held] = 0
    probs = np.zeros((len(data.labels), fitted.held_probs.shape[1]))
    probs[held] = fitted.held_probs
    return judge_labels(data.labels, probs, folds)


def _facts(fitted: FitResult) -> list[tuple[str, str]]:
    before, after = fitted.calibration_errors
    facts = [
        ("Strangers", fitted.strangers.sentence()),
        ("The pool", fitted.choice.sentence()),
        (
            "Probabilities",
            f"Expected calibration error {before:.3f} before, {after:.3f} after a temperature of "
            f"{fitted.calibrated_model.temperature.item():.2f}; {percent(fitted.accuracy)} of "
            f"{len(fitted.held.calibrating):,} held-out images right.",
        ),
    ]
    if fitted.novel is not None:
        facts.append(
            (
                "How many new",
                f"{fitted.novel.number} by estimate, stability {fitted.novel.stability:.2f}.",
            )
        )
    return facts
