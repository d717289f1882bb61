"""The temperature of class probabilities, and their calibration error."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import softmax

from protofission.core.array_types import Floats, Ints
from protofission.core.errors import require

COLDEST, HOTTEST = 0.5, 20.0


def best_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """Find the T in 0.5 ... 20 with the least negative log likelihood of softmax(logits / T).

    It is 1 where nothing depends on it: without images, with one class, with equal logits. Where
    every image is right the likelihood has no best T, and 0.5 is given.

    Args:
        logits: (N, S), of images that nothing was fitted to.
        labels: (N,), their classes.
    """
    values, true = _rows(logits, labels, "logits")
    above = values - values[np.arange(len(values)), true, None]
    if not above.any():
        return 1.0

    # The loss is convex in 1 / T, so its slope has one root; where the loss itself is flat to
    # the last digit, the slope still has a sign.
    def slope(log_t: float) -> float:
        return float((softmax(above / math.exp(log_t), axis=1) * above).sum(1).mean())

    coldest, hottest = math.log(COLDEST), math.log(HOTTEST)
    if slope(coldest) <= 0:
        return COLDEST
    if slope(hottest) >= 0:
        return HOTTEST
    return math.exp(brentq(slope, coldest, hottest, xtol=1e-10))


def expected_calibration_error(probs: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """ECE: the gap between highest probability and accuracy in each bin, averaged over images.

    Images are put into equal bins (a, b] by their highest probability. NaN without images.

    Args:
        probs: (N, S), rows that add up to 1.
        labels: (N,), the true classes.
    """
    values, true = _rows(probs, labels, "probabilities")
    require(bins >= 1, f"bins = {bins} must be at least 1.")
    sums = values.sum(1)
    require(
        not ((values < 0).any() or (abs(sums - 1) > 1e-3).any()),
        "The probabilities of an image do not add up to 1: give those after the softmax.",
    )
    if not len(values):
        return math.nan
    top, right = values.max(1), values.argmax(1) == true
    places = np.searchsorted(np.arange(1, bins) / bins, top)
    return float(abs(np.bincount(places, right - top)).sum() / len(values))


def _rows(values: ArrayLike, labels: ArrayLike, what: str) -> tuple[Floats, Ints]:
    """Check (N, S) numbers and (N,) classes in 0 ... S - 1, and return them as arrays."""
    rows, true = np.asarray(values, float), np.asarray(labels)
    require(rows.ndim == 2, f"The {what} are of shape {rows.shape}: give images by classes.")
    require(
        true.shape == rows.shape[:1],
        f"Labels of shape {true.shape} for {len(rows)} images: give one each.",
    )
    require(bool(np.isfinite(rows).all()), f"Some of the {what} are NaN or infinite: mend them.")
    if not len(true):
        return rows, np.zeros(0, np.int64)
    require(np.issubdtype(true.dtype, np.integer), f"A label is a whole number, not {true.dtype}.")
    low, high, last = int(true.min()), int(true.max()), rows.shape[1] - 1
    require(
        low >= 0 and high <= last,
        f"Labels of {low} ... {high} lie outside 0 ... {last}, the classes of the {what}.",
    )
    return rows, true.astype(np.int64)
