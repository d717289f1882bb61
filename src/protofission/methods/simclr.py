"""SimCLR: contrastive learning from two views of each unlabeled image; no label is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from protofission.core.records import Step, Targets, Term, Terms, Views
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.contrast import nt_xent
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class SimCLR(Method[Targets]):
    """Contrastive pretraining; the "logits" are the projected vectors."""

    contrast_temperature: float = 0.2
    """Temperature of NT-Xent."""

    @property
    def traits(self) -> Traits:
        """Two views of each unlabeled image; the projection is thrown away after training."""
        return Traits(
            views=Views(labeled=(), unlabeled=("simclr", "simclr")),
            head=HeadSpec("projection"),
            classifies=False,
        )

    def decide(self, step: Step) -> Targets:
        """Nothing: an image's other view is its target."""
        return Targets(label_rows(step))

    def risk(self, step: Step, targets: Targets, logits: Tensor) -> Terms:
        """NT-Xent over all images of the batch."""
        first, second = step.unlabeled(logits, 0), step.unlabeled(logits, 1)
        return (Term("contrast", nt_xent(first, second, self.contrast_temperature)),)


@dataclass(frozen=True)
class SimCLRKMeans(SimCLR):
    """SimCLR, then k-means on the features of all images, matched through the labels."""

    view: Literal["simclr", "weak", "strong"] = "simclr"
    """The view of which each image has two."""

    @property
    def traits(self) -> Traits:
        """Classes are clusters of the features."""
        views = Views(labeled=(), unlabeled=(self.view, self.view))
        return replace(super().traits, views=views, novel="cluster")
