"""The number of steps of a recipe, and the learning rate of each."""

from __future__ import annotations

import math

from protofission.core.errors import require
from protofission.data.image_sets import TrainingData
from protofission.training.recipe import Recipe


def steps_per_epoch(recipe: Recipe, data: TrainingData) -> int:
    """The number of steps of one epoch; the last batch of a pass reaches into the next."""
    if recipe.steps_per_epoch is not None:
        return recipe.steps_per_epoch
    if recipe.epoch == "labeled":
        return math.ceil(len(data.labeled) / recipe.labeled_batch)
    require(
        len(data.unlabeled) > 0,
        "The pool is empty, so an epoch cannot be a pass over it: set recipe.epoch=labeled.",
    )
    return math.ceil(len(data.unlabeled) / recipe.unlabeled_batch)


def number_of_steps(recipe: Recipe, data: TrainingData) -> int:
    """The number of steps of a whole run."""
    return recipe.steps or (recipe.epochs or 0) * steps_per_epoch(recipe, data)


def learning_rate(recipe: Recipe, step: int, num_steps: int, per_epoch: int) -> float:
    """The learning rate of a step: a linear warm-up, then the schedule over what is left."""
    warm = round(recipe.warmup_epochs * per_epoch)
    if step < warm:
        return recipe.learning_rate * (step + 1) / warm
    progress = (step - warm) / max(1, num_steps - warm)
    match recipe.schedule:
        case "constant":
            factor = 1.0
        case "step":
            factor = 0.1 ** sum(progress >= milestone for milestone in recipe.milestones)
        case "cosine":
            factor = 0.5 * (1 + math.cos(math.pi * progress))
        case "fixmatch":
            factor = math.cos(7 / 16 * math.pi * progress)
    return recipe.learning_rate * factor
