"""Folds of the labels: parts that some model does not learn from, and that judge it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.conformal import fewest_images
from protofission.core.rng import step_rng
from protofission.core.unit_maps import unit_rows
from protofission.data.image_sets import Labels

NO_FOLD = -1
"""The fold of a label that every model learns from."""
NEAREST_AT_ONCE = 2048
"""Rows whose nearest labels are looked for at a time."""
Mask = NDArray[np.bool_]


def assign_folds(labels: Labels, groups: Ints, number: int, seed: int) -> Ints:
    """(L,): the fold of each label, with even shares of every class in each of `number` folds.

    Near-duplicates of a class are in one fold. A class with a single image, or whose images are all
    near-duplicates, is in NO_FOLD: without it a model would not know the class. Folds are numbered
    from 0 without gaps; there are fewer where images are.

    Args:
        groups: (L,): numbers of near-duplicates.
    """
    units, owners = _units(labels, groups)
    order, _, counts = _ranks_in_classes(owners, seed)
    turn = np.full(len(owners), NO_FOLD)
    shared = counts[owners[order]] > 1
    # Dealing goes on from class to class, so that all folds are about equally large.
    turn[order[shared]] = np.arange(int(shared.sum())) % number
    return turn[units]


def hold_out(labels: Labels, groups: Ints, share: float, keep: float, seed: int) -> Ints:
    """(L,): fold 0 for a share of the labels, or as many as `keep` wants, half of all at most.

    All others are in NO_FOLD: this is one model, and a split instead of folds.
    """
    units, owners = _units(labels, groups)
    order, rank, counts = _ranks_in_classes(owners, seed)
    own = counts[owners[order]]
    wanted = max(math.ceil(share * len(owners)), fewest_images(keep))
    turn = np.where(rank < own - 1, (rank + 0.5) / own, np.inf)  # one of each class stays
    some = np.argsort(turn, kind="stable")[: min(wanted, len(owners) // 2)]
    folds = np.full(len(owners), NO_FOLD)
    folds[order[some[np.isfinite(turn[some])]]] = 0
    return folds[units]


def join_nearest(folds: Ints, labels: Labels, calibrates: Mask, nearest: Ints) -> Ints:
    """(L,): folds in which a label that was chosen is held out with the one that it is most like.

    Images are often chosen because they are like a label. If the model that judges this label
    learned from them, the label would score higher than a new image does. Labels of a class that a
    model would not know without them are in NO_FOLD.

    Args:
        folds: (n,), of the labels that calibrate.
        calibrates: (L,): mask of these.
        nearest: (L - n,): for each of the others, the place of the most similar one among these.
    """
    found = np.full(len(labels), NO_FOLD)
    found[calibrates], found[~calibrates] = folds, folds[nearest]
    for name in np.unique(labels[~calibrates]):
        own = labels == name
        if len(np.unique(found[own])) == 1:
            found[own & ~calibrates] = NO_FOLD
    return found


def nearest_rows(rows: NDArray[np.float32], among: NDArray[np.float32]) -> Ints:
    """(n,): for each of (n, D) features, the place of the most similar of (m, D) others.

    Features are standardized by those of both together; the largest cosine is the most similar.
    """
    both = np.concatenate([rows, among]).astype(np.float64)
    deviation = both.std(0)
    units = unit_rows((both - both.mean(0)) / np.where(deviation > 0, deviation, 1.0))
    own, others = units[: len(rows)], units[len(rows) :]
    parts = [
        (own[start : start + NEAREST_AT_ONCE] @ others.T).argmax(1)
        for start in range(0, len(own), NEAREST_AT_ONCE)
    ]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _units(labels: Labels, groups: Ints) -> tuple[Ints, Labels]:
    """(L,): the unit of each label, near-duplicates of one class; and the class of each unit."""
    pairs = np.stack([labels, groups], 1)
    found, units = np.unique(pairs, axis=0, return_inverse=True)
    return units.reshape(-1), found[:, 0]


def _ranks_in_classes(owners: Labels, seed: int) -> tuple[Ints, Ints, Ints]:
    """A random order with classes one after the other, ranks within them, and their sizes."""
    generator = np.random.default_rng(step_rng(seed, 0, "folds of the labels").initial_seed())
    order = generator.permutation(len(owners))
    order = order[np.argsort(owners[order], kind="stable")]
    counts = np.bincount(owners)
    rank = np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners[order]]
    return order, rank, counts
