"""Choose between the model that learned from the pool and a control that did not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protofission.data.augment.views import Augmentations
from protofission.data.image_sets import Labels
from protofission.models.model import Model
from protofission.triage.calibrated_model import JUDGED_AT_ONCE, CalibratedModel, Verdicts, judge


@dataclass(frozen=True)
class Choice:
    """The model that learned from the pool against the control, on images that neither saw."""

    images: int
    control: float
    """Accuracy of the control."""
    fitted: float
    """Accuracy of the model that learned from the pool."""
    pool_hurts: bool
    """Whether the control is kept."""

    def sentence(self) -> str:
        """The comparison and its outcome as a sentence."""
        if not self.images:
            return "Too few labels to compare with a control that did not learn from the pool."
        found = (
            f"On {self.images} held-out image{'s' * (self.images > 1)} the model that learned from "
            f"the pool is right in {self.fitted:.1%}, the control that did not in "
            f"{self.control:.1%}"
        )
        if self.pool_hurts:
            return f"{found}: the pool hurts, and the control, which knows of nothing new, is kept."
        if self.fitted < self.control:
            return f"{found}: too little to tell that the pool hurts, and the model is kept."
        return f"{found}: the pool does not hurt."


def choose(
    views: Augmentations, control: Model, model: Model, rows: Tensor, labels: Labels, known: int
) -> Choice:
    """Choose the model, or the control if the model errs more often by over a standard error.

    Args:
        rows: (n, ...) labeled rows that neither learned from, with their `labels`.
        known: S, the number of known classes.
    """
    right = [
        judge_rows(CalibratedModel(each, known), views, rows).classes.numpy() == labels
        if len(labels)
        else np.zeros(0, bool)
        for each in (control, model)
    ]
    lost, won = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    without, with_pool = (float(each.mean()) if len(each) else math.nan for each in right)
    return Choice(len(labels), without, with_pool, lost - won > (lost + won) ** 0.5)


def judge_rows(calibrated_model: CalibratedModel, views: Augmentations, rows: Tensor) -> Verdicts:
    """Judge rows by their plain views, JUDGED_AT_ONCE at a time."""
    return judge(
        calibrated_model, (views.plain(some).float() for some in torch.split(rows, JUDGED_AT_ONCE))
    )
