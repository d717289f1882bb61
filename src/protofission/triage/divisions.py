"""Sub-classes of the known classes, and clusters of what is rejected, found after training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from protofission.core.array_types import Ints
from protofission.core.class_parts import split_classes
from protofission.core.cluster_numbers import ClusterNumber
from protofission.core.ood_share import ShareEstimate
from protofission.core.rejected_clusters import cluster_rejected
from protofission.core.rng import step_rng
from protofission.triage.calibrated_model import ACCEPT, Verdicts
from protofission.triage.fit_options import FitOptions
from protofission.triage.fold_ensemble import UnitCenters
from protofission.triage.fold_training import Rows

MOST_DIVIDED = 20_000
"""Most images by which sub-classes and clusters are found; of more, a sample."""


@dataclass(frozen=True)
class Division:
    """Centers, and their numbers if these were estimated."""

    centers: UnitCenters
    counted: tuple[ClusterNumber, ...]


def divide_classes(
    labeled: Rows,
    labels: Ints,
    pool: Rows,
    verdicts: Verdicts,
    options: FitOptions,
    given: Mapping[int, int] | None = None,
) -> Division:
    """Divide each class into sub-classes, by its labels and the pool images accepted into it.

    Args:
        given: the number of sub-classes of some classes; others have that of the options.
    """
    accepted = np.flatnonzero(verdicts.decisions.numpy() == ACCEPT)
    accepted = _some(accepted, options.seed, "images of sub-classes")
    rows = np.concatenate([labeled, pool[accepted]])
    classes = np.concatenate([labels, verdicts.classes.numpy()[accepted]])
    usual = None if options.prototypes == "auto" else options.slots
    numbers = [(given or {}).get(name, usual) for name in range(int(labels.max()) + 1)]
    found = split_classes(rows, classes, numbers, seed=options.seed)
    whole = np.zeros((1, found.space.matrix.shape[1]))  # of a class whose rows are all 0
    parts = [torch.from_numpy(own if len(own) else whole) for own in found.centers]
    return Division(UnitCenters.of(found.space, parts), found.counted or ())


def cluster_strangers(
    labeled: Rows,
    labels: Ints,
    pool: Rows,
    verdicts: Verdicts,
    strangers: ShareEstimate,
    options: FitOptions,
) -> Division:
    """Cluster the rejected images of a pool, in as many clusters as are asked for or found."""
    some = _some(np.arange(len(pool)), options.seed, "images of clusters")
    rejected = verdicts.decisions.numpy()[some] != ACCEPT
    share = 0.5 if np.isnan(strangers.share) else strangers.share
    given = None if options.discover in (0, "auto") else int(options.discover)
    found = cluster_rejected(
        labeled,
        labels,
        pool[some],
        rejected,
        given,
        known=(1 - options.keep) * (1 - share) * len(some),
        seed=options.seed,
    )
    centers = UnitCenters.of(found.space, [torch.from_numpy(found.centers)])
    return Division(centers, () if found.counted is None else (found.counted,))


def _some(places: Ints, seed: int, purpose: str) -> Ints:
    """At most MOST_DIVIDED of the numbers, drawn at random, in order."""
    random = np.random.default_rng(step_rng(seed, 0, purpose).initial_seed())
    return np.sort(random.permutation(places)[:MOST_DIVIDED])
