"""A method trained on what is at hand: sizes of batches and length by the number of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from protofission.core.rng import step_rng
from protofission.data.augment.views import Augmentations
from protofission.data.image_sets import Labels, TrainingData
from protofission.models.adapters import AdapterSpec
from protofission.models.heads import HeadSpec
from protofission.models.model import Model
from protofission.training.experiment import Experiment
from protofission.training.loop import train
from protofission.training.presets import preset
from protofission.training.state import start

Progress = Callable[[int, int], None]
"""Called with the steps that are done, and all."""


LEARNING_RATE = 0.03
"""Of all methods: on few images better than ORCA's 0.1."""


@dataclass(frozen=True)
class Learning:
    """How a method is trained where nobody wants to tune it."""

    method: str = "orca+pf"
    """A name of METHODS."""
    prototypes: int = 5
    """V."""
    width: int = 256
    """Features of the adapter."""
    steps: int = 300
    """Of training."""
    seed: int = 0
    """Of all that is random."""

    def experiment(self, labeled: int, pool: int) -> Experiment:
        """The experiment for so many images, whose batches are no larger than these."""
        found = preset("features", self.method)
        recipe = found.recipe
        return replace(
            found,
            seed=self.seed,
            backbone=AdapterSpec("linear", width=self.width),
            head=self._head(found.head),
            recipe=replace(
                recipe,
                epochs=None,
                steps=self.steps,
                steps_per_epoch=max(1, self.steps // 12),
                learning_rate=LEARNING_RATE,
                labeled_batch=min(recipe.labeled_batch, labeled),
                unlabeled_batch=min(recipe.unlabeled_batch, pool),
            ),
        )

    def _head(self, head: HeadSpec) -> HeadSpec:
        """A head whose prototypes start from the data, if they can: that takes fewer steps."""
        start: Literal["random", "data"] = "data" if head.can_start_from_data else "random"
        return replace(head, prototypes=self.prototypes, init=start)


def held_out(labels: Labels, wanted: int, seed: int) -> NDArray[np.bool_]:
    """(L,): which labels are not learned from: so many of them, but half of all at most.

    Of each class its share is held out, and at least one stays.
    """
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


def learned(
    learning: Learning,
    data: TrainingData,
    augmentations: Augmentations,
    progress: Progress | None = None,
) -> Model:
    """The model of a method after its training."""
    experiment = learning.experiment(len(data.labeled), len(data.unlabeled))
    state = start(experiment, data, augmentations)
    for report in train(state, experiment, data, augmentations):
        if progress is not None:
            progress(report.step + 1, learning.steps)
    return state.judged.model.eval()
