"""Linear maps of features to short unit vectors, in which images are clustered by cosines.

Features are standardized and made unit vectors; a matrix follows, and what it gives is made unit
vectors again. Two subtractions, two products and two divisions: a model or an exported graph can
do the same to a new image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protofission.core.array_types import Floats, Ints
from protofission.core.errors import require

DIRECTIONS = 128
"""Most principal directions in which the scatter within classes is estimated."""
WIDTH = 64
"""Most dimensions of the unit vectors."""
SHRINKAGE = 0.5
"""The weight of a round scatter beside the measured one: labels are few."""
TINY = 1e-12
"""The least length by which a vector is divided."""


@dataclass(frozen=True)
class UnitMap:
    """A map from features to unit vectors of fewer dimensions."""

    mean: Floats
    """(D,): subtracted from features."""
    scale: Floats
    """(D,): by which they are then multiplied; 0 where a feature is constant."""
    matrix: Floats
    """(D, d): applied to the unit vectors of these."""
    offset: Floats
    """(d,): subtracted before vectors are made unit length again."""

    def apply(self, features: ArrayLike) -> Floats:
        """(N, d) unit vectors of (N, D) features; 0 where nothing is left of a row."""
        rows = unit_rows((np.asarray(features) - self.mean) * self.scale)
        return unit_rows(rows @ self.matrix - self.offset)


def unit_rows(rows: Floats) -> Floats:
    """(N, D): rows divided by their lengths; rows of length 0 stay."""
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return np.asarray(rows / np.maximum(lengths, TINY)[:, None])


def whitening_map(labeled: ArrayLike, labels: ArrayLike, pool: ArrayLike) -> UnitMap:
    """Whiten by the scatter within labeled classes, and keep the directions that differ most.

    Args:
        labeled: (L, D) features.
        labels: (L,): their classes, any whole numbers.
        pool: (U, D) features of unlabeled images.
    """
    known, others = check_features_given(labeled, "labeled"), check_features_given(pool, "pool")
    require(
        known.shape[1] == others.shape[1],
        f"Labeled rows have {known.shape[1]} features, pool rows {others.shape[1]}: give the same.",
    )
    classes = check_classes(labels, len(known))
    rows = np.concatenate([known, others])
    require(len(rows) > 0, "There are neither labeled nor pool features: give some.")
    reduced = reduce_rows(rows)
    return reduced.whiten(class_residuals(reduced.rows[: len(known)], classes))


@dataclass(frozen=True)
class ReducedRows:
    """Unit vectors of standardized features in their principal directions: the first half of a map.

    It is computed once where several maps follow.
    """

    mean: Floats
    scale: Floats
    center: Floats
    """(D,): the mean of the unit vectors."""
    axes: Floats
    """(D, DIRECTIONS), or fewer."""
    rows: Floats
    """(N, DIRECTIONS)."""

    def whiten(self, residuals: Floats) -> UnitMap:
        """The map that whitens by the scatter of residuals; where they are 0, it only reduces."""
        matrix, offset = self.whitening(residuals)
        whole = self.axes @ matrix
        return UnitMap(self.mean, self.scale, whole, self.center @ whole + offset)

    def whitening(self, residuals: Floats) -> tuple[Floats, Floats]:
        """(DIRECTIONS, d) matrix and (d,) offset of the second half: reduced rows to vectors."""
        white = _whitening(residuals)
        rows = self.rows @ white
        kept = principal_axes(rows, WIDTH)
        return white @ kept, rows.mean(0) @ kept


def reduce_rows(features: NDArray[np.float32]) -> ReducedRows:
    """Standardize (N, D) features, make them unit vectors and keep the principal directions."""
    rows = features.astype(np.float64)
    mean, scale = _standardization(rows)
    rows = unit_rows((rows - mean) * scale)
    center, axes = rows.mean(0), principal_axes(rows, DIRECTIONS)
    return ReducedRows(mean, scale, center, axes, (rows - center) @ axes)


def check_features_given(values: ArrayLike, what: str) -> NDArray[np.float32]:
    """(N, D) features as float32, refused if they have another shape, NaN or infinity."""
    rows = np.asarray(values, np.float32)
    require(
        rows.ndim == 2 and rows.shape[1] >= 1,
        f"The {what} features have the shape {rows.shape}: give one row an image.",
    )
    bad = int((~np.isfinite(rows)).any(1).sum())
    require(
        bad == 0, f"{bad} of {len(rows)} rows of {what} features hold NaN or infinity: remove them."
    )
    return rows


def check_classes(labels: ArrayLike, rows: int) -> Ints:
    """(N,): the number of each row's class among those that occur, in order."""
    given = np.asarray(labels)
    require(given.shape == (rows,), f"{given.size} labels for {rows} labeled rows: give one each.")
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def class_residuals(rows: Floats, classes: Ints) -> Floats:
    """(N, D): rows less the means of their classes, as long as if the true means were known."""
    number = int(classes.max(initial=-1)) + 1
    sizes, sums = np.bincount(classes, minlength=number), np.zeros((number, rows.shape[1]))
    np.add.at(sums, classes, rows)
    means = sums / np.maximum(sizes, 1)[:, None]
    stretch = np.sqrt(sizes / np.maximum(sizes - 1, 1))
    return np.asarray((rows - means[classes]) * stretch[classes, None])


def principal_axes(rows: Floats, most: int) -> Floats:
    """(D, d): the directions of most variance, at most so many; none in which rows are equal.

    Where all rows are equal, d is 1 and the direction 0.
    """
    from scipy.linalg import eigh

    centered = rows - rows.mean(0)
    wide = centered.shape[1] > len(centered)
    products = centered @ centered.T if wide else centered.T @ centered
    size = len(products)
    values, axes = eigh(products, subset_by_index=[max(0, size - most), size - 1])
    values, axes = values[::-1], axes[:, ::-1]
    carry = values > max(1e-9 * values[0], TINY)
    if not carry.any():
        return np.zeros((rows.shape[1], 1))
    if wide:
        return np.asarray(centered.T @ axes[:, carry] / np.sqrt(values[carry]))
    return np.asarray(axes[:, carry])


def _standardization(rows: Floats) -> tuple[Floats, Floats]:
    """(D,) twice: means, and inverse standard deviations, 0 where a feature is constant."""
    mean, deviation = rows.mean(0), rows.std(0)
    varies = deviation > np.maximum(1e-9 * np.abs(mean), TINY)
    return mean, np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)


def _whitening(residuals: Floats) -> Floats:
    """(D, D): the inverse square root of the residuals' shrunk scatter; 1 if they have none."""
    scatter = residuals.T @ residuals / max(len(residuals), 1)
    size = len(scatter)
    round_one = np.trace(scatter) / size
    if not round_one > TINY:
        return np.eye(size)
    scatter = (1 - SHRINKAGE) * scatter + SHRINKAGE * round_one * np.eye(size)
    variances, axes = np.linalg.eigh(scatter)
    return np.asarray(axes / np.sqrt(variances) @ axes.T)
