"""Labels and a pool in, a model out: hold out, train, compare with a control, calibrate.

Of the labeled images some are held out. A third of these chooses between the model that learned
from the pool and a control that did not, and sets the temperature of probabilities; the others set
the threshold, and nothing else, so that its guarantee holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protofission.core.calibration import (
    Guarantee,
    ShareEstimate,
    best_temperature,
    expected_calibration_error,
    guarantee,
    images,
    images_needed,
    ood_share,
    percent,
)
from protofission.core.checks import check_sizes
from protofission.core.cluster_count import Count, count_novel, count_parts
from protofission.core.errors import require
from protofission.core.rng import check_seed, step_rng
from protofission.data.augment.views import Augmentations
from protofission.data.image_sets import Labels, TrainingData
from protofission.models.model import Model
from protofission.triage.calibrated_model import CHUNK, Recognizer, Verdicts, judge, unpromised
from protofission.triage.quick_training import Learning, held_out, learned

Ints = NDArray[np.int64]
Progress = Callable[[str, int, int], None]
"""Called with what is under way, the steps that are done, and all."""

CONTROL, METHOD = "supervised+pf", "orca+pf"
"""Without the pool, and with it. ORCA's heads for novel classes make room for strangers also where
nobody asks what they are: on small pools of CIFAR-10 that tells strangers better than a threshold
on the known classes alone does, at the same accuracy (docs/guide.md)."""
COUNTED = 4000
"""Images of the pool, and labeled ones, that are looked at to count."""
MOST_PARTS = 10
"""Sub-classes that a class may be found to have."""
MOST_ROOM = 50
"""Heads that make room for strangers where nobody asks what they are."""


@dataclass(frozen=True)
class FitOptions:
    """What a user may want otherwise."""

    keep: float = 0.95
    """The share of known images that is to be accepted."""
    discover: int | Literal["auto"] = 0
    """How many novel classes to tell apart; with 0, what is of no known class is rejected."""
    prototypes: int | Literal["auto"] = 5
    """V, the prototypes of a class."""
    held_out: float = 0.3
    """The share of the labeled images that is held out; more, up to half, if `keep` wants more."""
    steps: int = 300
    """Of the training of each model."""
    width: int = 256
    """Features of the adapter."""
    seed: int = 0
    """Of all that is random."""

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


class Held(NamedTuple):
    """Places among the labeled images."""

    training: Ints
    choosing: Ints
    calibrating: Ints


@dataclass(frozen=True)
class Choice:
    """The model that learned from the pool against the control, on images that neither saw."""

    images: int
    control: float
    """Accuracy."""
    fitted: float
    """Accuracy."""
    pool_hurts: bool
    """Whether the control is kept."""

    def sentence(self) -> str:
        """In plain words."""
        if not self.images:
            return "Too few labels to compare with a control that did not learn from the pool."
        found = (
            f"On {self.images} held-out image{'s' * (self.images > 1)} the model that learned from "
            f"the pool is right in {self.fitted:.1%}, the control that did not in "
            f"{self.control:.1%}"
        )
        if self.pool_hurts:
            return f"{found}: the pool hurts, and the control, which knows of nothing new, is kept."
        if self.fitted < self.control:
            return f"{found}: too little to tell that the pool hurts, and the model is kept."
        return f"{found}: the pool does not hurt."


@dataclass(frozen=True)
class Fitted:
    """A model, and what is known about it."""

    recognizer: Recognizer
    method: str
    held: Held
    choice: Choice
    guarantee: Guarantee
    calibration_scores: NDArray[np.float32]
    """ID scores of the images that set the threshold."""
    calibration_errors: tuple[float, float]
    """ECE before and after the temperature, on images that did not set it."""
    accuracy: float
    """Among the images that set the threshold."""
    novel: Count | None
    """The estimate of the number of novel classes, if it was asked for."""
    parts: tuple[Count, ...]
    """The estimate of the number of sub-classes of each class, if it was asked for."""
    pool: Verdicts
    strangers: ShareEstimate
    """The share of the pool that is of no known class."""

    def promise(self) -> str:
        """What the threshold promises, in plain words."""
        if self.guarantee.rank or not self.recognizer.clusters:
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
    progress: Progress = lambda what, done, total: None,
) -> Fitted:
    """A model from features.

    Args:
        views: makes views of rows: of a store, or `FeatureViews`.
        labeled: (L, ...) rows as `views` takes them, with their `labels`, all classes among them.
        pool: (U, ...) rows.
        width: D, features of a row.
        learn_from: (U,): which rows of the pool may be learned from.
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
    parts = _parts(views, training, options, progress)
    novel = _novel(views, training, options, partial(progress, "counting novel classes"))
    wanted = options.discover if novel is None else novel.number
    slots = max(part.number for part in parts) if parts else options.prototypes
    assert wanted != "auto"
    assert slots != "auto"
    learning = Learning(CONTROL, slots, options.width, options.steps, options.seed)
    control = learned(learning, training, views, partial(progress, "training the control"))
    learning = replace(learning, method=METHOD)
    open_world = replace(training, num_classes=known + (wanted or min(known, MOST_ROOM)))
    model = learned(learning, open_world, views, partial(progress, "training the model"))
    choice = choose(views, control, model, labeled[held.choosing], labels[held.choosing], known)
    chosen = Recognizer(control if choice.pool_hurts else model, known, clusters=wanted > 0)
    return _calibrated(views, chosen, labeled, labels, pool, held, choice, options, novel, parts)


def check_pool(others: int, options: FitOptions) -> None:
    """Refuse a pool with too few images that are no labeled ones."""
    require(
        others > 0,
        "Every image of the pool is a labeled one too, so nothing can be learned from it: add "
        "images to the pool.",
    )
    require(
        others > 1 or options.discover != "auto",
        "A pool of one image is too small for --discover auto: add images, or give a number.",
    )


def hold_out(labels: Labels, share: float, keep: float, seed: int) -> Held:
    """Hold out a share of the labels, or what `keep` wants; a third of them chooses."""
    wanted = max(math.ceil(share * len(labels)), math.ceil(1.5 * images_needed(keep)))
    held = held_out(labels, wanted, seed)
    generator = step_rng(seed, 0, "labels that choose")
    out = np.flatnonzero(held)[torch.randperm(int(held.sum()), generator=generator).numpy()]
    first = len(out) // 3
    return Held(np.flatnonzero(~held), np.sort(out[:first]), np.sort(out[first:]))


def verdicts_on(recognizer: Recognizer, views: Augmentations, rows: Tensor) -> Verdicts:
    """The verdicts on rows, chunk by chunk."""
    return judge(recognizer, (views.plain(some).float() for some in torch.split(rows, CHUNK)))


def _features(views: Augmentations, rows: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = views.plain(rows).float().numpy()
    return found


def _novel(
    views: Augmentations,
    data: TrainingData,
    options: FitOptions,
    progress: Callable[[int, int], None],
) -> Count | None:
    if options.discover != "auto":
        return None
    generator = step_rng(options.seed, 0, "images that are counted")
    some = torch.randperm(len(data.unlabeled), generator=generator)[:COUNTED]
    own = torch.randperm(len(data.labeled), generator=generator)[:COUNTED]
    return count_novel(
        _features(views, data.labeled[own]),
        data.labels[own].numpy(),
        _features(views, data.unlabeled[some]),
        seed=options.seed,
        progress=progress,
    )


def _parts(
    views: Augmentations, data: TrainingData, options: FitOptions, progress: Progress
) -> tuple[Count, ...]:
    if options.prototypes != "auto":
        return ()
    found: list[Count] = []
    for own in range(data.num_seen):
        progress("counting sub-classes", own, data.num_seen)
        some = data.labeled[data.labels == own][:COUNTED]
        count = Count(1, 1.0, ())
        if len(some) > 1:
            count = count_parts(_features(views, some), most=MOST_PARTS, seed=options.seed)
        found.append(count)
    progress("counting sub-classes", data.num_seen, data.num_seen)
    return tuple(found)


def choose(
    views: Augmentations, control: Model, model: Model, rows: Tensor, labels: Labels, known: int
) -> Choice:
    """Keep the control where the other errs more often, by over a standard error."""
    right = [
        verdicts_on(Recognizer(each, known), views, rows).classes.numpy() == labels
        if len(labels)
        else np.zeros(0, bool)
        for each in (control, model)
    ]
    lost, won = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    without, with_pool = (float(each.mean()) if len(each) else math.nan for each in right)
    return Choice(len(labels), without, with_pool, lost - won > (lost + won) ** 0.5)


def _calibrated(
    views: Augmentations,
    bare: Recognizer,
    labeled: Tensor,
    labels: Labels,
    pool: Tensor,
    held: Held,
    choice: Choice,
    options: FitOptions,
    novel: Count | None,
    parts: tuple[Count, ...],
) -> Fitted:
    known = bare.num_seen
    choosing, calibrating = labels[held.choosing], labels[held.calibrating]
    logits = np.zeros((0, known))
    if len(choosing):
        logits = verdicts_on(bare, views, labeled[held.choosing]).probs.double().log().numpy()
    temperature = best_temperature(logits, choosing)
    before = verdicts_on(bare, views, labeled[held.calibrating])
    scores: NDArray[np.float32] = before.id_scores.float().numpy()
    promised = guarantee(scores, options.keep)
    threshold = promised.threshold if promised.rank else unpromised(bare.clusters)
    recognizer = bare.calibrated(temperature, threshold)
    after = verdicts_on(recognizer, views, labeled[held.calibrating])
    verdicts = verdicts_on(recognizer, views, pool)
    return Fitted(
        recognizer=recognizer,
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
        novel=novel,
        parts=parts,
        pool=verdicts,
        strangers=ood_share(scores, verdicts.id_scores.numpy(), seed=options.seed),
    )


def health(use: Ints, names: Sequence[str]) -> list[str]:
    """How well the prototypes of each class are used, in plain words."""
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
