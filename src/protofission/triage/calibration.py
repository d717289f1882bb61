"""Hold out labels, and set a model's temperature and threshold by them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from protofission.core.array_types import Ints
from protofission.core.conformal import Guarantee, fewest_images, guarantee
from protofission.core.rng import step_rng
from protofission.core.temperature import best_temperature
from protofission.data.image_sets import Labels
from protofission.triage.calibrated_model import CalibratedModel


class HeldOut(NamedTuple):
    """Indices of the labeled images, by use."""

    training: Ints
    choosing: Ints
    """Images that set the temperature and choose between models."""
    calibrating: Ints
    """Images that set the threshold."""


def hold_out(
    labels: Labels, share: float, keep: float, seed: int, *, apart: bool = True
) -> HeldOut:
    """Hold out a share of the labels, or as many as `keep` wants, but half of all at most.

    Args:
        apart: use a third to choose and the others to calibrate; else all for both.
    """
    wanted = math.ceil((1.5 if apart else 1) * fewest_images(keep))
    held = _held_out_mask(labels, max(math.ceil(share * len(labels)), wanted), seed)
    training, out = np.flatnonzero(~held), np.flatnonzero(held)
    if not apart:
        return HeldOut(training, out, out)
    order = torch.randperm(len(out), generator=step_rng(seed, 0, "labels that choose")).numpy()
    first = len(out) // 3
    return HeldOut(training, np.sort(out[order[:first]]), np.sort(out[order[first:]]))


def _held_out_mask(labels: Labels, wanted: int, seed: int) -> NDArray[np.bool_]:
    """(L,): mask of the held-out labels: a share of each class, of which at least one stays."""
    counts = np.bincount(labels)
    order = torch.randperm(len(labels), generator=step_rng(seed, 0, "held-out labels")).numpy()
    order = order[np.argsort(labels[order], kind="stable")]
    own = labels[order]
    rank = np.arange(len(labels)) - (np.cumsum(counts) - counts)[own]
    turn = np.where(rank < counts[own] - 1, (rank + 0.5) / counts[own], np.inf)
    some = np.argsort(turn, kind="stable")[: min(wanted, len(labels) // 2)]
    found = np.zeros(len(labels), bool)
    found[order[some[np.isfinite(turn[some])]]] = True
    return found


def calibrate(
    calibrated_model: CalibratedModel,
    logits: ArrayLike,
    labels: Labels,
    id_scores: ArrayLike,
    keep: float,
) -> Guarantee:
    """Set temperature and threshold of a model, by images that it did not learn from.

    Where too few images are held out to promise `keep`, every image is accepted; with clusters,
    those that are nearer to a known class than to a cluster.

    Args:
        logits: (n, S) of the known classes, which with the n labels set the temperature.
        id_scores: (m,), which set the threshold.
        keep: the share of known images that is to be accepted.

    Returns:
        The guarantee of the threshold.
    """
    promised = guarantee(id_scores, keep)
    otherwise = 0.0 if calibrated_model.clusters else -math.inf
    calibrated_model.temperature.fill_(best_temperature(logits, labels))
    calibrated_model.threshold.fill_(promised.threshold if promised.rank else otherwise)
    return promised
