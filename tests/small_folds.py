"""Models of small folds, trained here and by a launcher."""

import numpy as np
import torch

from protofission.system.launch.launcher import Launcher
from protofission.triage.fold_models import FoldData, pool_parts, train_models
from protofission.triage.fold_training import FoldTraining

SETTINGS = FoldTraining(prototypes=2, width=4, steps=3, seed=0)


def small_folds() -> FoldData:
    """Three folds of twelve labels of two classes, and a pool."""
    random = np.random.default_rng(0)
    labels = np.arange(12) % 2
    rows = random.normal(size=(57, 5)).astype(np.float32)
    rows[:12] += 3 * labels[:, None]
    return FoldData(rows[:12], labels, np.arange(12) // 2 % 3, rows[12:], pool_parts(45, 3, 0))


def assert_same_models(launcher: Launcher) -> None:
    """Models that a launcher trains have the bits of those that this process trains."""
    data, seen = small_folds(), list[tuple[int, int]]()
    for with_pool in (False, True):
        here = train_models(data, SETTINGS, with_pool=with_pool)
        there = train_models(
            data,
            SETTINGS,
            with_pool=with_pool,
            launcher=launcher,
            progress=lambda *counts: seen.append(counts),
        )
        assert len(here) == len(there) == 3
        for own, others in zip(here, there, strict=True):
            for name, value in own.state_dict().items():
                assert torch.equal(value, others.state_dict()[name]), name
    assert seen == 2 * [(0, 3), (1, 3), (2, 3), (3, 3)]
