"""Train one model of a fit: by labels and a pool, or as a control by labels alone."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protofission.core.array_types import Floats, Ints
from protofission.core.center_mixture import CONCENTRATION, fit_centers, start_centers
from protofission.core.distance_scores import (
    Gaussians,
    fit_background,
    fit_gaussians,
    fit_relative_mahalanobis,
    held_out_scores,
)
from protofission.core.ood_share import ood_share
from protofission.core.progress import Progress
from protofission.core.rng import step_rng
from protofission.core.unit_clusters import cluster_units
from protofission.core.unit_maps import ReducedRows, class_residuals, reduce_rows, unit_rows
from protofission.data.augment.feature_views import FeatureViews
from protofission.data.image_sets import TrainingData
from protofission.models.adapters import Adapter
from protofission.models.heads import head_spec_of
from protofission.models.model import Model
from protofission.triage.fold_model import (
    FoldModel,
    FoldModelSizes,
    logit_weights,
    score_weights,
)
from protofission.triage.quick_training import QuickTraining, train_quickly

CONTROL, METHOD = "supervised+pf", "orca+pf"
"""Methods without the pool, and with it: ORCA's heads for novel classes make room for strangers."""
NEAR = 64
"""Principal directions in which distances are measured."""
SHRINKAGE = 0.5
"""The part of the covariance within classes that is replaced by its mean variance."""
MOST_ROOM = 100
"""Most heads for strangers; there are twice as many as known classes, if these are fewer."""
LEAST_SHARE, MOST_SHARE = 0.2, 0.9
"""Ends of the share of strangers for which heads are kept in use: an estimate may be wrong."""
FIRST_WEIGHTS = (3.0, 1.0, 1.0, 3.0)
"""Weights of the logits of fission, regression, distances and mixture before the regression has
learned from the pool."""
NO_POOL = 0.5
"""The share of strangers by which a model without a pool joins its scores."""
SURE_SHARE = 0.7
"""Share of the pool images that should be known which teaches the regression: those of the highest
scores."""
SURE_WEIGHT = 0.3
"""Weight of such an image beside a label."""
SURE_STRENGTH = 0.01
"""Inverse strength of the penalty, scikit-learn's C, of a regression that learns from them."""
MOST_SURE = 5000
"""Most of these images; of more, the first ones, which are in random order."""
POINTS = 5
"""Points of a class: centers of its labels, or the labels themselves if these are fewer."""
POINT_RESTARTS = 3
"""Runs of k-means that look for them."""
LEAST_SCALE = 1e-6
"""Smallest spread by which scores and logits are divided."""

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class FoldTraining:
    """Settings of the training of each model."""

    prototypes: int
    """V, the prototypes of a class."""
    width: int
    """Output features of the adapter."""
    steps: int
    """Training steps."""
    seed: int


def train_fold(
    settings: FoldTraining,
    labeled: Rows,
    labels: Ints,
    pool: Rows | None,
    progress: Progress | None = None,
    strangers: Rows | None = None,
) -> FoldModel:
    """Train a model on (L, D) labeled features and a pool (U, D), or as a control without one.

    Args:
        labels: (L,) classes, all of them among them.
        strangers: (n, D), images that are known to be of no class, if there are any.
    """
    known = int(labels.max()) + 1
    everything = labeled if pool is None else np.concatenate([labeled, pool])
    reduced = reduce_rows(everything)
    near = torch.from_numpy(reduced.rows[:, :NEAR].copy())
    classes = torch.from_numpy(labels)
    own, others = near[: len(labels)], near[len(labels) :] if pool is not None else near
    share = None if pool is None else estimate_share(own, classes, others)
    matrix, offset = reduced.whitening(class_residuals(reduced.rows[: len(labels)], labels))
    units = unit_rows(reduced.rows @ matrix - offset)
    model = _train_prototypes(settings, units, classes, known, share, progress)
    sizes = FoldModelSizes(
        inputs=labeled.shape[1],
        reduced=reduced.rows.shape[1],
        near=near.shape[1],
        width=units.shape[1],
        known=known,
        strange=0 if pool is None else _room(known),
        head=head_spec_of(model.head),
        adapter=cast(Adapter, model.backbone).spec,
        free=0 if pool is None else _room(known),
        points=0 if pool is None else POINTS,
    )
    fold = sizes.build()
    fold.model.load_state_dict(model.state_dict())
    gaussians = fit_gaussians(own, classes, known, SHRINKAGE)
    _fill_spaces(fold, reduced, matrix, offset)
    _fill_distances(fold, gaussians, fit_background(others))
    outside = labeled[:0] if strangers is None else strangers
    _fill_regression(fold, labeled, labels, outside)
    if pool is None or share is None:
        _standardize(fold, everything, score_weights(NO_POOL), logit_weights(0.0))
        return fold
    _fill_centers(fold, labeled, labels, pool, share, settings.seed)
    _fill_points(fold, labeled, labels, settings.seed)
    _standardize(fold, pool, score_weights(share), torch.tensor(FIRST_WEIGHTS))
    sure, guesses = _surely_known(fold, pool, 1 - share)
    _fill_regression(fold, labeled, labels, outside, reduced.axes, sure, guesses)
    _standardize(fold, pool, score_weights(share), logit_weights(1 - share))
    return fold


def set_share(
    fold: FoldModel, labeled: Rows, labels: Ints, pool: Rows, share: float, seed: int
) -> None:
    """Fit the centers of a model again, and join its parts, by a better estimate of the share.

    Args:
        labeled: (L, D), which the model learned from, with their `labels`.
        pool: (U, D), which it learned from.
        share: of strangers in the pool.
        seed: that of its training.
    """
    _fill_centers(fold, labeled, labels, pool, share, seed)
    _standardize(fold, pool, score_weights(share), logit_weights(1 - share))


def estimate_share(labeled: Tensor, labels: Tensor, pool: Tensor) -> float:
    """Estimate the share of strangers in a pool by distances of labels that were held out."""
    known = int(labels.max()) + 1
    scores = held_out_scores(fit_relative_mahalanobis, labeled, labels, pool, known)
    of_pool = fit_relative_mahalanobis(labeled, labels, pool, known)(pool)
    found = ood_share(-scores.numpy(), -of_pool.numpy()).share
    return 0.5 if np.isnan(found) else float(np.clip(found, LEAST_SHARE, MOST_SHARE))


def _train_prototypes(
    settings: FoldTraining,
    units: Floats,
    labels: Tensor,
    known: int,
    share: float | None,
    progress: Progress | None,
) -> Model:
    """Train fission's prototypes on unit vectors, the labeled ones first."""
    rows = torch.from_numpy(units).float()
    labeled, pool = rows[: len(labels)], rows[len(labels) :]
    data = TrainingData(
        labeled=labeled,
        labels=labels,
        unlabeled=labeled if share is None else pool,  # training wants a pool, even if not used
        num_seen=known,
        num_classes=known + (0 if share is None else _room(known)),
        shape=(units.shape[1],),
    )
    method = CONTROL if share is None else METHOD
    sizes = (settings.prototypes, settings.width, settings.steps, settings.seed)
    quick = QuickTraining(method, *sizes, novel_share=share)
    return train_quickly(quick, data, FeatureViews.of(labeled, pool), progress)


def _room(known: int) -> int:
    """The number of heads for strangers, and of free centers."""
    return min(2 * known, MOST_ROOM)


@torch.no_grad()
def _fill_centers(
    fold: FoldModel, labeled: Rows, labels: Ints, pool: Rows, share: float, seed: int
) -> None:
    """Fit known and free centers to labels and pool in the model's space."""
    own, others = (
        torch.cat([fold.spaces(s)[2] for s in torch.split(torch.from_numpy(rows), 4096)]).double()
        for rows in (labeled, pool)
    )
    classes, generator = torch.from_numpy(labels), step_rng(seed, 0, "free centers")
    starts = start_centers(own, classes, others, fold.sizes.free, generator)
    found = fit_centers(starts, own, classes, others, share)
    fold.centers.copy_(CONCENTRATION * found.centers)
    fold.center_offsets.copy_(found.log_priors)


@torch.no_grad()
def _fill_points(fold: FoldModel, labeled: Rows, labels: Ints, seed: int) -> None:
    """Cluster the labels of each class; a class of fewer labels has some of its points twice."""
    reduced = fold.spaces(torch.from_numpy(labeled))[1] + fold.center
    rows = unit_rows(reduced.double().numpy())
    for name, points in enumerate(torch.split(fold.points, fold.sizes.points)):
        found = cluster_units(rows[labels == name], len(points), seed, POINT_RESTARTS).centers
        own = found if len(found) else np.zeros((1, rows.shape[1]))  # of rows that are all 0
        points.copy_(torch.from_numpy(np.resize(own, tuple(points.shape))))


def _fill_spaces(fold: FoldModel, reduced: ReducedRows, matrix: Floats, offset: Floats) -> None:
    fold.mean.copy_(torch.from_numpy(reduced.mean))
    fold.scale.copy_(torch.from_numpy(reduced.scale))
    fold.axes.copy_(torch.from_numpy(reduced.axes.T))
    fold.center.copy_(torch.from_numpy(reduced.center @ reduced.axes))
    fold.whitening.copy_(torch.from_numpy(matrix.T))
    fold.offset.copy_(torch.from_numpy(offset))


def _fill_distances(fold: FoldModel, classes: Gaussians, background: Gaussians) -> None:
    """With precision = R R^T, distances are those of rows R to means R."""
    for name, gaussians in (("class", classes), ("background", background)):
        root = torch.linalg.cholesky(gaussians.precision)
        points = "class_points" if name == "class" else "background_point"
        fold.get_buffer(f"{name}_root").copy_(root)
        fold.get_buffer(points).copy_(gaussians.means @ root)


@torch.no_grad()
def _surely_known(fold: FoldModel, pool: Rows, known: float) -> tuple[Rows, Ints]:
    """The pool images that score highest, and their likeliest classes.

    Args:
        known: estimated share of known images.
    """
    found = [fold(some) for some in torch.split(torch.from_numpy(pool), 4096)]
    scores = torch.cat([each.scores for each in found])
    classes = torch.cat([each.logits.argmax(-1) for each in found]).numpy()
    number = round(SURE_SHARE * known * len(pool))
    first = np.sort(scores.argsort(descending=True, stable=True)[:number].numpy())[:MOST_SURE]
    return pool[first], classes[first]


def _fill_regression(
    fold: FoldModel,
    labeled: Rows,
    labels: Ints,
    strangers: Rows,
    axes: Floats | None = None,
    sure: Rows | None = None,
    guesses: Ints | None = None,
) -> None:
    """Fit a logistic regression of the labels to standardized features.

    Strangers are one more class, whose logit is subtracted from all others: so the energy is the
    log odds of a known class against strangers, and class probabilities are as without.

    Args:
        axes: (D, d), directions in which it is fitted; by default all.
        sure: pool images that are taken for known, with their guessed classes, of weight
            SURE_WEIGHT beside labels.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    known = int(labels.max()) + 1
    others = labeled[:0] if sure is None else sure
    features = np.concatenate([labeled, strangers, others])
    classes = [labels, np.full(len(strangers), known), labels[:0] if guesses is None else guesses]
    weights = np.ones(len(features))
    weights[len(features) - len(others) :] = SURE_WEIGHT
    rows = (features - fold.mean.double().numpy()) * fold.scale.double().numpy()
    model = LogisticRegression(max_iter=100, tol=1e-3)
    if axes is not None:
        rows, model.C = rows @ axes, SURE_STRENGTH
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # nearly converged serves as well
        model.fit(rows, np.concatenate(classes), sample_weight=weights)
    slopes = model.coef_ if axes is None else model.coef_ @ axes.T
    intercepts = model.intercept_
    if len(slopes) == 1:  # of two classes, only the second
        slopes, intercepts = (np.stack([-part[0], part[0]]) / 2 for part in (slopes, intercepts))
    if len(strangers):
        slopes, intercepts = (part[:known] - part[known] for part in (slopes, intercepts))
    fold.regression.copy_(torch.from_numpy(slopes))
    fold.intercepts.copy_(torch.from_numpy(intercepts))


@torch.no_grad()
def _standardize(fold: FoldModel, rows: Rows, score_weights: Tensor, logit_weights: Tensor) -> None:
    """Set the centers and scales of scores and logits to those of (N, D) features."""
    found = [fold.parts(some) for some in torch.split(torch.from_numpy(rows), 4096)]
    scores, logits = (torch.cat(each).double() for each in zip(*found, strict=True))
    fold.score_centers.copy_(scores.mean(0))
    spread = scores.std(0, correction=0).clamp_min(LEAST_SCALE)
    fold.score_scales.copy_(spread / score_weights[: fold.sizes.scores])
    spread = logits.transpose(0, 1).flatten(1).std(1).clamp_min(LEAST_SCALE)
    fold.logit_scales.copy_(spread / logit_weights[: fold.sizes.parts])
