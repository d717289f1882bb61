"""Train a method without tuning: batch sizes by the number of images, one learning rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from protofission.core.options import override
from protofission.core.progress import Progress
from protofission.data.augment.views import Augmentations
from protofission.data.image_sets import TrainingData
from protofission.models.adapters import AdapterSpec
from protofission.models.heads import HeadSpec
from protofission.models.model import Model
from protofission.training.experiment import Experiment
from protofission.training.loop import train
from protofission.training.presets import preset
from protofission.training.state import start

LEARNING_RATE = 0.03
"""Learning rate of all methods: on few images better than ORCA's 0.1."""


@dataclass(frozen=True)
class QuickTraining:
    """Settings of a training without tuning."""

    method: str = "orca+pf"
    """A name of METHODS."""
    prototypes: int = 5
    """V, the prototypes of a class."""
    width: int = 256
    """Output features of the adapter."""
    steps: int = 300
    """Training steps."""
    seed: int = 0
    """Seed of all random numbers."""
    novel_share: float | None = None
    """Expected share of strangers in the pool, by which ORCA keeps heads in use."""

    def experiment(self, labeled: int, pool: int) -> Experiment:
        """The experiment for these numbers of images; its batches are no larger."""
        found = preset("features", self.method)
        recipe = found.recipe
        if self.novel_share is not None:
            for option in (f"method.novel_share={self.novel_share}", "method.entropy_weight=1"):
                found = override(found, option)
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
        """The head with prototypes that start from the data, if they can: it needs fewer steps."""
        start: Literal["random", "data"] = "data" if head.can_start_from_data else "random"
        return replace(head, prototypes=self.prototypes, init=start)


def train_quickly(
    settings: QuickTraining,
    data: TrainingData,
    augmentations: Augmentations,
    progress: Progress | None = None,
) -> Model:
    """Train a method, and return its model in evaluation mode."""
    experiment = settings.experiment(len(data.labeled), len(data.unlabeled))
    state = start(experiment, data, augmentations)
    for report in train(state, experiment, data, augmentations):
        if progress is not None:
            progress(report.step + 1, settings.steps)
    return state.for_evaluation.model.eval()
