"""Folds of the labels: parts that some model does not learn from, and that judge it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.conformal import fewest_images
from protofission.core.rng import step_rng
from protofission.data.image_sets import Labels

NO_FOLD = -1
"""The fold of a label that every model learns from."""
Mask = NDArray[np.bool_]


def assign_folds(
    labels: Labels, groups: Ints, number: int, seed: int, calibrates: Mask | None = None
) -> Ints:
    """(L,): the fold of each label, with even shares of every class in each of `number` folds.

    Near-duplicates of a class are in one fold. A class with a single image, or whose images are all
    near-duplicates, is in NO_FOLD: without it a model would not know the class. Folds are numbered
    from 0 without gaps; there are fewer where images are.

    Args:
        groups: (L,): numbers of near-duplicates.
        calibrates: (L,): mask of the labels to hold out; by default all. The others are in NO_FOLD,
            but for near-duplicates of one that is held out, and change no fold.
    """
    units, owners = _units(labels, groups)
    dealt = _dealt_units(units, calibrates)
    order, _, _ = _ranks_in_classes(owners[dealt], seed)
    turn = np.full(len(owners), NO_FOLD)
    shared = np.bincount(owners)[owners[dealt[order]]] > 1
    # Dealing goes on from class to class, so that all folds are about equally large.
    turn[dealt[order[shared]]] = np.arange(int(shared.sum())) % number
    return turn[units]


def hold_out(
    labels: Labels,
    groups: Ints,
    share: float,
    keep: float,
    seed: int,
    calibrates: Mask | None = None,
) -> Ints:
    """(L,): fold 0 for a share of the labels, or as many as `keep` wants, half of all at most.

    All others are in NO_FOLD: this is one model, and a split instead of folds.

    Args:
        calibrates: as `assign_folds` takes it; the share is of these.
    """
    units, owners = _units(labels, groups)
    dealt = _dealt_units(units, calibrates)
    order, rank, counts = _ranks_in_classes(owners[dealt], seed)
    names = owners[dealt[order]]
    wanted = max(math.ceil(share * len(dealt)), fewest_images(keep))
    stays = rank >= np.bincount(owners)[names] - 1  # one of each class stays
    turn = np.where(stays, np.inf, (rank + 0.5) / counts[names])
    some = np.argsort(turn, kind="stable")[: min(wanted, len(dealt) // 2)]
    folds = np.full(len(owners), NO_FOLD)
    folds[dealt[order[some[np.isfinite(turn[some])]]]] = 0
    return folds[units]


def _dealt_units(units: Ints, calibrates: Mask | None) -> Ints:
    """Units with a label that may be held out, in order."""
    return np.unique(units if calibrates is None else units[calibrates])


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
