"""GCD: contrasts of views and of labeled classes, then k-means anchored by the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from protofission.core.errors import require
from protofission.core.records import Step, Targets, Term, Terms, Views
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.contrast import class_contrast, nt_xent
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class GCD(Method[Targets]):
    """Generalized category discovery: (1 - s) contrast of views + s contrast of classes."""

    supervised_weight: float = 0.35
    """s in [0, 1]: weight of the contrast of classes; that of views has 1 - s."""
    contrast_temperature: float = 1.0
    """Temperature of the contrast of views."""
    class_temperature: float = 0.07
    """Temperature of the contrast of classes."""
    view: Literal["simclr", "weak", "strong"] = "simclr"
    """The view of which each image has two."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.supervised_weight <= 1,
            f"supervised_weight = {self.supervised_weight} must be between 0 and 1.",
        )

    @property
    def traits(self) -> Traits:
        """Two views of every image; both contrasts act on the projection."""
        return Traits(
            views=Views(labeled=(self.view, self.view), unlabeled=(self.view, self.view)),
            head=HeadSpec("projection"),
            classifies=False,
            novel="anchor",
        )

    def decide(self, step: Step) -> Targets:
        """The labels."""
        return Targets(label_rows(step))

    def risk(self, step: Step, targets: Targets, logits: Tensor) -> Terms:
        """NT-Xent over all images of the batch, supervised contrast over the labeled ones."""
        views = nt_xent(step.both(logits, 0), step.both(logits, 1), self.contrast_temperature)
        labeled = torch.cat([step.labeled(logits, 0), step.labeled(logits, 1)])
        classes = class_contrast(labeled, step.labels.repeat(2), self.class_temperature)
        return (
            Term("contrast", views, 1 - self.supervised_weight),
            Term("class_contrast", classes, self.supervised_weight),
        )
