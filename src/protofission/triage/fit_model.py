"""Fit a model to features: folds, a control, calibration, sub-classes, clusters of strangers.

The labels are divided into folds. Each of K models learns from the labels of the other folds and
from the pool, and judges its own fold: so every label trains, and every label calibrates. New
images are judged by all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protofission.core.array_types import Floats, Ints
from protofission.core.cluster_numbers import ClusterNumber
from protofission.core.conformal import Guarantee
from protofission.core.cross_conformal import (
    FoldScores,
    cross_guarantee,
    fold_scores,
    model_agreement,
)
from protofission.core.errors import require
from protofission.core.near_duplicates import near_duplicates
from protofission.core.ood_share import ShareEstimate, ood_share
from protofission.core.progress import StageProgress
from protofission.core.rng import step_rng
from protofission.core.temperature import best_temperature, expected_calibration_error
from protofission.data.image_sets import Labels
from protofission.system.launch.launcher import Launcher
from protofission.triage.calibrated_model import JUDGED_AT_ONCE, REJECT, Verdicts, judge
from protofission.triage.divisions import cluster_strangers, divide_classes
from protofission.triage.fit_options import FitOptions
from protofission.triage.fold_ensemble import FoldEnsemble
from protofission.triage.fold_model import FoldModel
from protofission.triage.fold_models import (
    FoldData,
    fold_verdicts,
    held_out_outputs,
    pool_parts,
    pool_scores,
    set_shares,
    train_models,
)
from protofission.triage.fold_training import CONTROL, METHOD, FoldTraining, Rows
from protofission.triage.folds import (
    NO_FOLD,
    Mask,
    assign_folds,
    hold_out,
    join_nearest,
    nearest_rows,
)
from protofission.triage.nearest_points import join_points
from protofission.triage.pool_guard import Guard, compare

MOST_LEARNED = 50_000
"""Most images of the pool that are learned from; of more, a sample."""
MOST_DUPLICATES = 100_000
"""Most images among which near-duplicates are looked for; the pool of more is not."""
PoolRows = Callable[[Ints], Rows]
"""Gives the (n, D) features of images of the pool by their numbers."""


@dataclass(frozen=True)
class FitResult:
    """A fitted model, its calibration, and its verdicts on the pool."""

    calibrated_model: FoldEnsemble
    method: str
    folds: Ints
    """(L,): the fold of each label that judged; NO_FOLD of one that did not."""
    guard: Guard
    guarantee: Guarantee
    calibration_scores: NDArray[np.float32]
    """ID scores of the labels that set the threshold."""
    held_probs: Floats
    """(L, S): calibrated probabilities of the labels, by models that did not learn from them; 0 for
    labels without a fold."""
    calibration_errors: tuple[float, float]
    """ECE before and after the temperature, on labels that did not set it."""
    accuracy: float
    """Accuracy on the labels, by models that did not learn from them."""
    novel: ClusterNumber | None
    """The estimate of the number of clusters, if none was given."""
    parts: tuple[ClusterNumber, ...]
    """The estimate of the number of sub-classes of each class, if it was asked for."""
    pool: Verdicts
    typicality: Floats
    """(U,): the cosine of each image to the nearest center of a cluster."""
    strangers: ShareEstimate
    """The share of the pool that is of no known class."""
    duplicates: Ints
    """(L,) or (L + U,): groups of near-duplicates, of labels alone where the pool is large."""
    about_labels: str = ""
    """Sentences on the labels that set the threshold, where not all of them do."""

    def promise(self) -> str:
        """The guarantee of the threshold as a sentence, and what it counts."""
        return f"{self.guarantee.sentence()} {self.about_labels}".strip()


def fit_features(
    labeled: Rows,
    labels: Labels,
    pool: PoolRows,
    pool_size: int,
    options: FitOptions,
    *,
    learn_from: Mask | None = None,
    calibrates: Mask | None = None,
    strangers: Mask | None = None,
    parts: Mapping[int, int] | None = None,
    duplicates: Ints | None = None,
    processes: int = 1,
    launcher: Launcher | None = None,
    progress: StageProgress = lambda what, done, total: None,
) -> FitResult:
    """Fit a model to features.

    Args:
        labeled: (L, D), with their `labels`, all classes among them.
        pool: gives rows of the pool, which has `pool_size`; a pool of 0 is none.
        learn_from: (U,): mask of the pool rows to learn from; by default all.
        calibrates: (L,): mask of the labels that may be held out: these set temperature and
            threshold, and choose between model and control; by default all. From the others models
            only learn: labels that somebody chose are not drawn like new images. A model that
            judges a label does not learn from those that are most like it (`join_nearest`).
        strangers: (U,): mask of the pool rows that somebody found to be of no class. Models are
            told so (`fold_training`), and no class is divided by them.
        parts: the number of sub-classes of some classes; others have that of the options.
        duplicates: (L + U,): groups of near-duplicates, if they are known; labels first.
        processes: how many train, at most.
        launcher: trains the models of folds elsewhere.
    """
    may_learn = np.arange(pool_size) if learn_from is None else np.flatnonzero(learn_from)
    learned = _sample(may_learn, options.seed)
    if duplicates is None:
        duplicates = _duplicate_groups(labeled, pool, pool_size, progress)
    rows = pool(learned) if len(learned) else labeled[:0]
    told = np.zeros(pool_size, bool) if strangers is None else strangers
    outside = pool(np.flatnonzero(told)) if told.any() else labeled[:0]
    groups = duplicates[: len(labels)]
    data = _fold_data(labeled, labels, groups, rows, outside, options, calibrates)
    trained = _train_and_guard(data, options, processes, launcher, progress)
    chosen, guard, share = trained.models, trained.guard, trained.strangers
    judging = partial(progress, "judging the pool")
    judging(0, 3)
    calibration = _calibrate(trained, data, options)
    sizes = np.bincount(data.folds[data.judged], minlength=data.models).tolist()
    ensemble = FoldEnsemble(chosen, sizes, says_novel=options.discover != 0)
    calibration.set_on(ensemble)
    first = judge(ensemble, _chunks(rows))
    first.decisions[torch.from_numpy(told[learned])] = REJECT
    judging(1, 3)
    divided = divide_classes(labeled, labels, rows, first, options, parts)
    clusters = cluster_strangers(labeled, labels, rows, first, share, options)
    ensemble.parts, ensemble.clusters = divided.centers, clusters.centers
    judging(2, 3)
    numbers = np.array_split(np.arange(pool_size), max(-(-pool_size // JUDGED_AT_ONCE), 1))
    verdicts = judge(ensemble, (torch.from_numpy(pool(some)) for some in numbers))
    typicality = [_typicality(ensemble, pool(some)) for some in numbers]
    judging(3, 3)
    return FitResult(
        calibrated_model=ensemble,
        method=CONTROL if guard.pool_hurts or not len(rows) else METHOD,
        folds=np.where(data.judges, data.folds, NO_FOLD),
        guard=guard,
        guarantee=calibration.guarantee,
        calibration_scores=calibration.label_id_scores(),
        held_probs=calibration.probs,
        calibration_errors=calibration.errors,
        accuracy=calibration.accuracy,
        novel=next(iter(clusters.counted), None),
        parts=divided.counted,
        pool=verdicts,
        typicality=np.concatenate(typicality),
        strangers=share,
        duplicates=duplicates,
    )


def check_pool(others: int) -> None:
    """Refuse a pool of which every image is a labeled one.

    Args:
        others: the number of pool images that are not labeled ones.
    """
    require(
        others > 0,
        "Every image of the pool is a labeled one too, so nothing can be learned from it: add "
        "images to the pool.",
    )


def _fold_data(
    labeled: Rows,
    labels: Labels,
    groups: Ints,
    rows: Rows,
    strangers: Rows,
    options: FitOptions,
    calibrates: Mask | None,
) -> FoldData:
    """Divide labels and pool into what each model learns from and what judges it.

    Labels that do not calibrate, and strangers, are in the fold of the label that they are like.
    """
    mask = np.ones(len(labels), bool) if calibrates is None else calibrates
    own, near, seed = labels[mask], groups[mask], options.seed
    if options.folds == 1:
        folds = hold_out(own, near, options.held_out, options.keep, seed)
    else:
        folds = assign_folds(own, near, options.folds, seed)
    models = max(int(folds.max(initial=NO_FOLD)) + 1, 1)
    parts = pool_parts(len(rows), models, seed)
    if len(own) == len(labels) and not len(strangers):
        return FoldData(labeled, labels, folds, rows, parts)
    outside = np.full(len(strangers), NO_FOLD)
    every = np.full(len(labels), NO_FOLD)
    if len(own):
        outside = folds[nearest_rows(strangers, labeled[mask])]
        nearest = nearest_rows(labeled[~mask], labeled[mask])
        every = join_nearest(folds, labels, mask, nearest)
    return FoldData(labeled, labels, every, rows, parts, mask, strangers, outside)


def _sample(numbers: Ints, seed: int) -> Ints:
    """At most MOST_LEARNED of the numbers, drawn at random, in order."""
    random = np.random.default_rng(step_rng(seed, 0, "images to learn from").initial_seed())
    return np.sort(random.permutation(numbers)[:MOST_LEARNED])


def _chunks(rows: Rows) -> Iterator[Tensor]:
    yield from torch.split(torch.from_numpy(rows), JUDGED_AT_ONCE)


@torch.no_grad()
def _typicality(ensemble: FoldEnsemble, rows: Rows) -> Floats:
    """(N,): the largest cosine of (N, D) features to the center of a cluster; 0 without any."""
    if not ensemble.num_clusters:
        return np.zeros(len(rows))
    found: Floats = ensemble.clusters(torch.from_numpy(rows)).amax(1).double().numpy()
    return found


def _duplicate_groups(
    labeled: Rows, pool: PoolRows, pool_size: int, progress: StageProgress
) -> Ints:
    """Groups of near-duplicates among labels and pool, or among labels alone."""
    progress("looking for near-duplicates", 0, 1)
    rows = labeled
    if len(labeled) + pool_size <= MOST_DUPLICATES and pool_size:
        rows = np.concatenate([labeled, pool(np.arange(pool_size))])
    found = near_duplicates(rows)
    progress("looking for near-duplicates", 1, 1)
    return found


@dataclass(frozen=True)
class _Trained:
    """The models that are kept, and why."""

    models: list[FoldModel]
    pool_scores: Tensor
    """(U, K): their scores of the pool, or of the labels where there is none."""
    guard: Guard
    strangers: ShareEstimate


def _train_and_guard(
    data: FoldData,
    options: FitOptions,
    processes: int,
    launcher: Launcher | None,
    progress: StageProgress,
) -> _Trained:
    """Train models and controls, keep the better ones, and estimate the share of strangers."""
    settings = FoldTraining(options.slots, options.width, options.steps, options.seed)
    controls = train_models(
        data,
        settings,
        with_pool=False,
        processes=processes,
        launcher=launcher,
        progress=partial(progress, "training controls on the labels alone"),
    )
    of_controls = pool_scores(controls, data.pool if len(data.pool) else data.labeled)
    control = fold_verdicts(controls, data, of_controls)
    if not len(data.pool):
        guard = compare(control, control, 0.5, options.seed)
        return _Trained(controls, of_controls, guard, ShareEstimate(float("nan"), 0.0, 1.0))
    models = train_models(
        data,
        settings,
        with_pool=True,
        processes=processes,
        launcher=launcher,
        progress=partial(progress, "training models on labels and pool"),
    )
    strangers = _estimate_strangers(models, data)
    share = 0.5 if np.isnan(strangers.share) else strangers.share
    set_shares(models, data, settings, share)
    join_points(models, data, share)
    of_models = pool_scores(models, data.pool)
    guard = compare(control, fold_verdicts(models, data, of_models), share, options.seed)
    if guard.pool_hurts:
        return _Trained(controls, of_controls, guard, strangers)
    return _Trained(models, of_models, guard, strangers)


def _estimate_strangers(models: list[FoldModel], data: FoldData) -> ShareEstimate:
    """Estimate the share of strangers in the pool, by labels and images not learned from."""
    by_model = pool_scores(models, data.pool)
    found = fold_verdicts(models, data, by_model)
    parts = None if (data.parts == NO_FOLD).all() else data.parts
    return ood_share(found.scores, by_model.numpy(), found.folds, pool_folds=parts)


@dataclass(frozen=True)
class _Calibration:
    """Temperature and threshold of a fit, and what they were set by."""

    ranked: FoldScores | None
    guarantee: Guarantee
    temperature: float
    probs: Floats
    errors: tuple[float, float]
    accuracy: float

    def set_on(self, ensemble: FoldEnsemble) -> None:
        """Set temperature, threshold and label scores of a model."""
        ensemble.temperature.fill_(self.temperature)
        ensemble.threshold.fill_(self.guarantee.threshold)
        if self.ranked is not None:
            ensemble.rank_among(self.ranked)

    def label_id_scores(self) -> NDArray[np.float32]:
        """(n,): ID scores of the labels."""
        if self.ranked is None or not len(self.ranked.scores):
            return np.zeros(0, np.float32)
        return self.ranked.label_id_scores().astype(np.float32)


def _calibrate(trained: _Trained, data: FoldData, options: FitOptions) -> _Calibration:
    """Calibrate by all labels that some model did not learn from."""
    judged, folds = data.judged, data.folds[data.judged]
    labels = data.labels[judged]
    logits, scores = (each.double().numpy() for each in held_out_outputs(trained.models, data))
    reference = trained.pool_scores.numpy()
    before, after = _softmax(logits), np.zeros_like(logits)
    turns = folds if data.models > 1 else np.arange(len(folds)) % FitOptions.folds
    for turn in np.unique(turns):  # each fold, or part of the only one, by that of the others
        own = turns == turn
        others = ~own if (~own).any() else own
        after[own] = _softmax(logits[own] / best_temperature(logits[others], labels[others]))
    temperature = best_temperature(logits, labels)
    probs = np.zeros((len(data.labels), logits.shape[1]))
    probs[judged] = _softmax(logits / temperature)
    ranked = fold_scores(scores, folds, reference) if len(judged) else None
    agreement = 1.0 if ranked is None else model_agreement(ranked, reference)
    guarantee = cross_guarantee(folds, options.keep, agreement=agreement)
    return _Calibration(
        ranked,
        replace(guarantee, folds=0) if options.folds == 1 else guarantee,
        temperature,
        probs,
        (
            expected_calibration_error(before, labels),
            expected_calibration_error(after, labels),
        ),
        float((logits.argmax(1) == labels).mean()) if len(judged) else float("nan"),
    )


def _softmax(logits: Floats) -> Floats:
    found: Floats = torch.from_numpy(logits).softmax(-1).numpy()
    return found
