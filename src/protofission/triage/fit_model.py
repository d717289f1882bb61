"""Fit a model to labels and a pool: hold out, train, compare with a control, calibrate.

Of the labeled images some are held out. A third of these chooses between the model that learned
from the pool and a control that did not, and sets the temperature of probabilities; the others set
the threshold, and nothing else, so that its guarantee holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protofission.core.array_types import Ints
from protofission.core.checks import check_sizes
from protofission.core.cluster_count import Count
from protofission.core.conformal import Guarantee
from protofission.core.errors import require
from protofission.core.number_words import images, percent
from protofission.core.ood_share import ShareEstimate, ood_share
from protofission.core.progress import StageProgress
from protofission.core.rng import check_seed
from protofission.core.temperature import expected_calibration_error
from protofission.data.augment.views import Augmentations
from protofission.data.image_sets import Labels, TrainingData
from protofission.triage.calibrated_model import CalibratedModel, Verdicts
from protofission.triage.calibration import HeldOut, calibrate, hold_out
from protofission.triage.class_counts import count_novel_classes, count_subclasses
from protofission.triage.model_choice import Choice, choose, judge_rows
from protofission.triage.quick_training import QuickTraining, train_quickly

CONTROL, METHOD = "supervised+pf", "orca+pf"
"""Methods without the pool, and with it. ORCA's heads for novel classes make room for strangers
even if no novel classes are asked for: on small pools of CIFAR-10 that detects strangers better
than a threshold on the known classes alone, at the same accuracy (docs/guide.md)."""
MOST_ROOM = 50
"""Most heads that make room for strangers where no novel classes are asked for."""


@dataclass(frozen=True)
class FitOptions:
    """The options of a fit."""

    keep: float = 0.95
    """Share of known images to accept."""
    discover: int | Literal["auto"] = 0
    """Number of novel classes to tell apart; with 0, strangers are rejected."""
    prototypes: int | Literal["auto"] = 5
    """V, the prototypes of a class."""
    held_out: float = 0.3
    """The share of the labeled images that is held out; more, up to half, if `keep` wants more."""
    steps: int = 300
    """Training steps of each model."""
    width: int = 256
    """Output features of the adapter."""
    seed: int = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        require(0 < self.keep < 1, f"keep = {self.keep} must be between 0 and 1, such as 0.95.")
        require(
            0 < self.held_out < 1, f"held_out = {self.held_out} must be between 0 and 1, as 0.3."
        )
        require(
            self.discover == "auto" or 0 <= self.discover <= 1000,
            f"discover = {self.discover} must be a number of novel classes up to 1000, or auto.",
        )
        require(
            self.prototypes == "auto" or 1 <= self.prototypes <= 100,
            f"prototypes = {self.prototypes} must be between 1 and 100, or auto.",
        )
        check_sizes(steps=self.steps, width=self.width)
        check_seed(self.seed)


@dataclass(frozen=True)
class FitResult:
    """A fitted model, its calibration, and its verdicts on the pool."""

    calibrated_model: CalibratedModel
    method: str
    held: HeldOut
    choice: Choice
    guarantee: Guarantee
    calibration_scores: NDArray[np.float32]
    """ID scores of the images that set the threshold."""
    calibration_errors: tuple[float, float]
    """ECE before and after the temperature, on images that did not set it."""
    accuracy: float
    """Accuracy on the images that set the threshold."""
    held_probs: NDArray[np.float32]
    """(H, S): calibrated probabilities of the images that set the threshold."""
    novel: Count | None
    """The estimate of the number of novel classes, if it was asked for."""
    parts: tuple[Count, ...]
    """The estimate of the number of sub-classes of each class, if it was asked for."""
    pool: Verdicts
    strangers: ShareEstimate
    """The share of the pool that is of no known class."""

    def promise(self) -> str:
        """The guarantee of the threshold as a sentence."""
        if self.guarantee.rank or not self.calibrated_model.clusters:
            return self.guarantee.sentence()
        return (
            f"{images(self.guarantee.images)} held out cannot set a threshold that keeps "
            f"{percent(self.guarantee.keep, 6)} of known images, so an image is novel where it is "
            f"nearer to a novel cluster than to a class: {self.guarantee.remedy}."
        )


def fit_rows(
    views: Augmentations,
    labeled: Tensor,
    labels: Labels,
    pool: Tensor,
    width: int,
    options: FitOptions,
    *,
    learn_from: NDArray[np.bool_] | None = None,
    progress: StageProgress = lambda what, done, total: None,
) -> FitResult:
    """Fit a model to features.

    Args:
        views: makes views of rows: of a store, or `FeatureViews`.
        labeled: (L, ...) rows as `views` takes them, with their `labels`, all classes among them.
        pool: (U, ...) rows.
        width: D, features of a row.
        learn_from: (U,): mask of the pool rows to learn from; by default all.
    """
    held = hold_out(labels, options.held_out, options.keep, options.seed)
    known = int(labels.max()) + 1
    training = TrainingData(
        labeled=labeled[held.training],
        labels=torch.from_numpy(labels[held.training]),
        unlabeled=pool if learn_from is None else pool[torch.from_numpy(learn_from)],
        num_seen=known,
        num_classes=known,
        shape=(width,),
    )
    check_pool(len(training.unlabeled), options)
    parts: tuple[Count, ...] = ()
    slots, wanted = options.prototypes, options.discover
    novel: Count | None = None
    if slots == "auto":
        counting = partial(progress, "counting sub-classes")
        parts = count_subclasses(views, training, options.seed, counting)
        slots = int(max(part.number for part in parts))
    if wanted == "auto":
        counting = partial(progress, "counting novel classes")
        novel = count_novel_classes(views, training, options.seed, counting)
        wanted = novel.number
    settings = QuickTraining(CONTROL, slots, options.width, options.steps, options.seed)
    control = train_quickly(settings, training, views, partial(progress, "training the control"))
    settings = replace(settings, method=METHOD)
    open_world = replace(training, num_classes=known + (wanted or min(known, MOST_ROOM)))
    model = train_quickly(settings, open_world, views, partial(progress, "training the model"))
    choice = choose(views, control, model, labeled[held.choosing], labels[held.choosing], known)
    calibrated_model = CalibratedModel(
        control if choice.pool_hurts else model, known, clusters=wanted > 0
    )
    return _calibrate_and_judge(
        views, calibrated_model, labeled, labels, pool, held, choice, options, novel, parts
    )


def check_pool(others: int, options: FitOptions) -> None:
    """Refuse a pool with too few images beside the labeled ones.

    Args:
        others: the number of pool images that are not labeled ones.
    """
    require(
        others > 0,
        "Every image of the pool is a labeled one too, so nothing can be learned from it: add "
        "images to the pool.",
    )
    require(
        others > 1 or options.discover != "auto",
        "A pool of one image is too small for --discover auto: add images, or give a number.",
    )


def _calibrate_and_judge(
    views: Augmentations,
    calibrated_model: CalibratedModel,
    labeled: Tensor,
    labels: Labels,
    pool: Tensor,
    held: HeldOut,
    choice: Choice,
    options: FitOptions,
    novel: Count | None,
    parts: tuple[Count, ...],
) -> FitResult:
    """Calibrate the chosen model, and judge it and the pool."""
    choosing, calibrating = labels[held.choosing], labels[held.calibrating]
    logits = np.zeros((0, calibrated_model.num_seen))
    if len(choosing):
        probs = judge_rows(calibrated_model, views, labeled[held.choosing]).probs
        logits = probs.double().log().numpy()
    before = judge_rows(calibrated_model, views, labeled[held.calibrating])
    scores: NDArray[np.float32] = before.id_scores.float().numpy()
    promised = calibrate(calibrated_model, logits, choosing, scores, options.keep)
    after = judge_rows(calibrated_model, views, labeled[held.calibrating])
    verdicts = judge_rows(calibrated_model, views, pool)
    return FitResult(
        calibrated_model=calibrated_model,
        method=CONTROL if choice.pool_hurts else METHOD,
        held=held,
        choice=choice,
        guarantee=promised,
        calibration_scores=scores,
        calibration_errors=(
            expected_calibration_error(before.probs.numpy(), calibrating),
            expected_calibration_error(after.probs.numpy(), calibrating),
        ),
        accuracy=float((after.classes.numpy() == calibrating).mean()),
        held_probs=after.probs.float().numpy(),
        novel=novel,
        parts=parts,
        pool=verdicts,
        strangers=ood_share(scores, verdicts.id_scores.numpy(), seed=options.seed),
    )


def prototype_sentences(use: Ints, names: Sequence[str]) -> list[str]:
    """Say for each class how many of its prototypes are in use.

    Args:
        use: (S, V) accepted images of each prototype, as `slot_use` counts them.
    """
    slots = use.shape[1]
    lines = []
    for name, own in zip(names, use, strict=True):
        total = int(own.sum())
        if not total:
            lines.append(f"{name}: no image of the pool was accepted.")
            continue
        busy = int((own >= 0.05 * total).sum())
        if slots == 1 or busy == 1:
            lines.append(f"{name}: all of one kind.")
        else:
            lines.append(f"{name}: {busy} kinds, the largest with {own.max() / total:.0%}.")
    return lines
