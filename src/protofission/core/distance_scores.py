"""OOD scores by distance: of features to the labeled ones, with the pool as background.

A `DistanceScore` is fitted to the features of labeled images and of the pool, without training, and
gives a function from (N, D) features to (N,) OOD scores; higher is more OOD, as in
protofission.core.scores. All is computed in double precision. Features are first brought into a
`UnitSpace`, since lengths of features and directions that hardly vary say little about classes
(arXiv 2505.18032). The functions `fit_...` take rows that are in such a space already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from protofission.core.distances import squared_distances
from protofission.core.errors import require

MOST_DIMENSIONS = 64
"""Dimensions of a `UnitSpace`, at most."""
CLASS_SHRINKAGE = 0.3
"""The part of the covariance within classes that is replaced by its mean variance in every
direction: labels are few."""
BACKGROUND_SHRINKAGE = 0.1
"""The same of the background's."""
NEIGHBORS = 5
"""k: the distance to the k-th nearest labeled row counts, so that one odd label does not."""
KEEP = 0.95
"""Share of the labels that lie within the threshold of the pool filter's first step."""
RIDGE = 1e-3
"""Weight of the squared coefficients in the pool filter's classifier."""
FOLDS = 5
"""Parts of the labels; each is scored by a fit to the others."""
LEAST_VARIANCE = 1e-12
"""Mean variance below which rows count as equal; distances stay finite."""
LEAST_SHARE = 1e-9
"""No direction has less variance than this share of the mean variance."""
CHUNK_ROWS = 4096
"""Rows that are brought into a space at once."""
CHUNK_COSINES = 2**23
"""Cosines that are computed at once."""
NEWTON_STEPS = 30
"""Steps of Newton's method, at most, to fit the classifier of the pool filter."""

RowScore = Callable[[Tensor], Tensor]
"""(N, D) rows to (N,) OOD scores, float64."""
DistanceScore = Callable[[Tensor, Tensor, Tensor, int], RowScore]
"""Fits a score to labeled rows (L, D), their classes (L,), pool rows (U, D), with S classes."""


class UnitSpace(NamedTuple):
    """Standardized features, made unit length, along their main directions."""

    middle: Tensor
    """(D,): means of the features."""
    scale: Tensor
    """(D,): their standard deviations; 1 for a feature that does not vary."""
    axes: Tensor
    """(D, d): the main directions of the unit vectors."""

    def project(self, rows: Tensor) -> Tensor:
        """(N, d): rows in this space."""
        chunks = [unit_rows(c, self.middle, self.scale) @ self.axes for c in _chunks(rows)]
        return torch.cat(chunks)


def _chunks(rows: Tensor) -> tuple[Tensor, ...]:
    return torch.split(rows.detach(), CHUNK_ROWS)


def unit_rows(rows: Tensor, middle: Tensor, scale: Tensor) -> Tensor:
    """(N, D): standardized rows of length 1; a row at the middle stays 0."""
    return F.normalize((rows.double() - middle) / scale, dim=1)


def fit_unit_space(labeled: Tensor, pool: Tensor, dimensions: int = MOST_DIMENSIONS) -> UnitSpace:
    """Fit the space to labeled rows (L, D) and pool rows (U, D) together."""
    require(len(labeled) > 0, "Distances need labeled images, and there are none: add some.")
    chunks = (*_chunks(labeled), *_chunks(pool))
    number = len(labeled) + len(pool)
    middle = torch.stack([c.double().sum(0) for c in chunks]).sum(0) / number
    squares = torch.stack([(c.double() - middle).square().sum(0) for c in chunks]).sum(0)
    deviation = (squares / number).sqrt()
    varies = deviation > 1e-9 * middle.abs().clamp_min(LEAST_VARIANCE)
    scale = torch.where(varies, deviation, 1.0)
    return UnitSpace(middle, scale, _main_directions(chunks, middle, scale, dimensions))


def _main_directions(
    chunks: tuple[Tensor, ...], middle: Tensor, scale: Tensor, dimensions: int
) -> Tensor:
    """(D, d): main directions of the chunks' unit vectors, most variance last.

    Directions without variance are left out, but for one. The smaller one of the matrices of
    products of features and of products of rows gives them.
    """
    number, width = sum(map(len, chunks)), len(middle)
    if number < width:
        units = torch.cat([unit_rows(chunk, middle, scale) for chunk in chunks])
        units = units - units.mean(0)
        variances, shares = torch.linalg.eigh(units @ units.T / number)
        axes = units.T @ shares
    else:
        total, products = middle.new_zeros(width), middle.new_zeros(width, width)
        for chunk in chunks:
            units = unit_rows(chunk, middle, scale)
            total += units.sum(0)
            products += units.T @ units
        mean = total / number
        variances, axes = torch.linalg.eigh(products / number - torch.outer(mean, mean))
    varied = int((variances > LEAST_SHARE * variances[-1]).sum())
    return F.normalize(axes[:, -max(min(dimensions, varied), 1) :], dim=0)


class Gaussians(NamedTuple):
    """Normal distributions of classes that share one covariance."""

    means: Tensor
    """(S, d); not a number for a class without rows."""
    precision: Tensor
    """(d, d): the inverse of the covariance."""


def fit_gaussians(rows: Tensor, labels: Tensor, num_classes: int, shrinkage: float) -> Gaussians:
    """Class means of (N, d) rows, and the inverse of their shrunk covariance within classes.

    The covariance A becomes (1 - shrinkage) A + shrinkage tr(A) / d I.

    Args:
        labels: (N,) classes below `num_classes`; some may have no rows.
    """
    rows = rows.double()
    counts = torch.bincount(labels, minlength=num_classes)
    sums = rows.new_zeros(num_classes, rows.shape[1]).index_add_(0, labels, rows)
    means = sums / counts[:, None]  # 0 / 0 is not a number
    apart = rows - means[labels]
    freedom = len(rows) - int((counts > 0).sum())
    covariance = apart.T @ apart / (freedom if freedom > 0 else max(len(rows), 1))
    variance = covariance.diagonal().mean().clamp_min(LEAST_VARIANCE)
    shrunk = (1 - shrinkage) * covariance + shrinkage * variance * torch.eye(
        rows.shape[1], dtype=rows.dtype, device=rows.device
    )
    variances, axes = torch.linalg.eigh(shrunk)
    return Gaussians(means, axes / variances.clamp_min(LEAST_SHARE * variance) @ axes.T)


def fit_background(rows: Tensor, shrinkage: float = BACKGROUND_SHRINKAGE) -> Gaussians:
    """One normal distribution of (N, d) rows, whatever their classes."""
    return fit_gaussians(rows, torch.zeros_like(rows[:, 0], dtype=torch.long), 1, shrinkage)


def mahalanobis(rows: Tensor, gaussians: Gaussians) -> Tensor:
    """(N, S): squared Mahalanobis distances of (N, d) rows to means; infinite to one without rows.

    With precision = R R^T they are the squared distances of rows R to means R.
    """
    root: Tensor = torch.linalg.cholesky(gaussians.precision)
    present = ~gaussians.means.isnan().any(1)
    distances = root.new_full((len(rows), len(present)), torch.inf)
    distances[:, present] = squared_distances(rows.double() @ root, gaussians.means[present] @ root)
    return distances


def relative_mahalanobis(rows: Tensor, classes: Gaussians, background: Gaussians) -> Tensor:
    """(N,): the distance to the nearest class minus that to the background (arXiv 2106.09022)."""
    return mahalanobis(rows, classes).amin(1) - mahalanobis(rows, background).amin(1)


def neighbor_distances(rows: Tensor, labeled: Tensor, neighbors: int = NEIGHBORS) -> Tensor:
    """(N,): 1 - the k-th largest cosine of (N, d) rows to labeled rows (L, d), k at most L."""
    units, k = F.normalize(labeled.double(), dim=1), min(neighbors, len(labeled))
    found = [
        1 - (F.normalize(chunk.double(), dim=1) @ units.T).topk(k, dim=1).values[:, -1]
        for chunk in torch.split(rows, max(CHUNK_COSINES // len(labeled), 1))
    ]
    return torch.cat(found)


def fit_nearest_neighbors(
    labeled: Tensor, labels: Tensor, pool: Tensor, num_classes: int
) -> RowScore:
    """Score rows by `neighbor_distances` to the labeled ones."""
    return lambda rows: neighbor_distances(rows, labeled)


def fit_mahalanobis(labeled: Tensor, labels: Tensor, pool: Tensor, num_classes: int) -> RowScore:
    """Score rows by the Mahalanobis distance to the nearest class."""
    classes = fit_gaussians(labeled, labels, num_classes, CLASS_SHRINKAGE)
    return lambda rows: mahalanobis(rows, classes).amin(1)


def fit_relative_mahalanobis(
    labeled: Tensor, labels: Tensor, pool: Tensor, num_classes: int
) -> RowScore:
    """Score rows by `relative_mahalanobis`; the background is the pool, or the labeled rows if it
    is empty.
    """
    classes = fit_gaussians(labeled, labels, num_classes, CLASS_SHRINKAGE)
    background = fit_background(pool if len(pool) else labeled)
    return lambda rows: relative_mahalanobis(rows, classes, background)


def fit_pool_filter(labeled: Tensor, labels: Tensor, pool: Tensor, num_classes: int) -> RowScore:
    """Score rows in the two steps of SAL (arXiv 2402.03502): filter the pool, then classify.

    1. Pool rows that score higher than a share `KEEP` of the labels are candidates for strangers.
    2. The logit of a classifier that tells the candidates from the labeled rows is the score.

    The two steps are SAL's. In step 1 SAL projects the gradient of a row onto the top singular
    vector of the pool's gradients; here `relative_mahalanobis` takes its place, and labels are
    scored by fits that did not see them. In step 2 SAL trains a network; here it is a ridge
    logistic regression on the rows, both sides with equal weight. Without candidates the score of
    step 1 is the score.
    """
    first = fit_relative_mahalanobis(labeled, labels, pool, num_classes)
    kept = held_out_scores(fit_relative_mahalanobis, labeled, labels, pool, num_classes)
    candidates = pool[first(pool) > kept.quantile(KEEP)] if len(pool) else pool
    if not len(candidates):
        return first
    weights = fit_logistic(labeled, candidates, RIDGE)
    return lambda rows: rows.double() @ weights[:-1] + weights[-1]


def fit_logistic(zeros: Tensor, ones: Tensor, ridge: float) -> Tensor:
    """(d + 1,): coefficients and intercept of a logistic regression of (N, d) and (M, d) rows.

    It minimizes half the mean loss of the zeros plus half that of the ones plus ridge / 2 times the
    squared coefficients, by Newton's method; of eight step lengths the best is taken.
    """
    rows = F.pad(torch.cat([zeros, ones]).double(), (0, 1), value=1.0)
    signs = torch.cat([rows.new_full((len(zeros),), -1.0), rows.new_ones(len(ones))])
    shares = torch.cat([rows.new_full((len(each),), 0.5 / len(each)) for each in (zeros, ones)])
    penalty = torch.full_like(rows[0], ridge)
    penalty[-1] = 0

    def loss(weights: Tensor) -> Tensor:  # (n, d + 1) -> (n,)
        fit = F.softplus(-signs * (weights @ rows.T)) @ shares
        return fit + (penalty * weights.square()).sum(1) / 2

    weights, lengths = torch.zeros_like(penalty), 0.5 ** torch.arange(8).to(rows)
    for _ in range(NEWTON_STEPS):
        wrong = torch.sigmoid(-signs * (rows @ weights))
        gradient = penalty * weights - rows.T @ (shares * signs * wrong)
        curvature = (rows.T * (shares * wrong * (1 - wrong))) @ rows + torch.diag(penalty)
        curvature.diagonal().add_(LEAST_VARIANCE)
        step = torch.linalg.solve(curvature, gradient)
        tried = weights - lengths[:, None] * step
        weights = tried[loss(tried).argmin()]
        if step.abs().max() < 1e-10 * (1 + weights.abs().max()):
            break
    return weights


def held_out_scores(
    fit: DistanceScore,
    labeled: Tensor,
    labels: Tensor,
    pool: Tensor,
    num_classes: int,
    folds: int = FOLDS,
) -> Tensor:
    """(L,): scores of the labeled rows (L, d), each by a fit to the labels of the other folds.

    A row lies near a class that was fitted to it, so its own fit would call it more ID than a new
    row of its class. The folds have equal shares of every class. A single row has no other fold.
    """
    if len(labeled) < 2:
        return fit(labeled, labels, pool, num_classes)(labeled)
    folds = min(folds, len(labeled))
    fold = torch.empty_like(labels)
    fold[labels.argsort(stable=True)] = torch.arange(len(labels), device=labels.device) % folds
    scores = torch.empty_like(labels, dtype=torch.float64)
    for number in range(folds):
        own, others = fold == number, fold != number
        score = fit(labeled[others], labels[others], pool, num_classes)
        scores[own] = score(labeled[own])
    return scores


def in_unit_space(fit: DistanceScore) -> DistanceScore:
    """The same score of any features: they are first brought into a `UnitSpace`."""

    def fit_in_space(labeled: Tensor, labels: Tensor, pool: Tensor, num_classes: int) -> RowScore:
        space = fit_unit_space(labeled, pool)
        score = fit(space.project(labeled), labels, space.project(pool), num_classes)
        return lambda rows: score(space.project(rows))

    return fit_in_space


DISTANCE_SCORES: dict[str, DistanceScore] = {
    "nearest_neighbors": in_unit_space(fit_nearest_neighbors),
    "mahalanobis": in_unit_space(fit_mahalanobis),
    "relative_mahalanobis": in_unit_space(fit_relative_mahalanobis),
    "pool_filter": in_unit_space(fit_pool_filter),
}
"""OOD scores by distance, by name: each is fitted to the features of labeled images and of a pool.

Examples:
    >>> import torch
    >>> from protofission import DISTANCE_SCORES
    >>> labels = torch.arange(40) % 2
    >>> labeled = torch.eye(8)[labels] + 0.1 * torch.randn(40, 8)
    >>> score = DISTANCE_SCORES["mahalanobis"](labeled, labels, torch.randn(60, 8), 2)
    >>> near, far = score(torch.eye(8)[[0, 5]])
    >>> bool(near < far)
    True
"""
