"""The calibrated model: class, probability, sub-class, ID score and decision from features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import NO_CLASS
from protofission.models.heads import sizes_of
from protofission.models.model import Model

DECISIONS = ("accept", "reject", "novel")
ACCEPT, REJECT, NOVEL = range(3)
JUDGED_AT_ONCE = 4096
"""Rows of features in one forward pass."""


class Verdicts(NamedTuple):
    """Outputs of a calibrated model for N images."""

    probs: Tensor
    """(N, S): calibrated probabilities of the known classes, if the image is of one."""
    classes: Tensor
    """(N,): the likeliest known class."""
    subclasses: Tensor
    """(N,): the nearest prototype of that class."""
    id_scores: Tensor
    """(N,): higher is more like a known class."""
    decisions: Tensor
    """(N,): indices into DECISIONS."""
    clusters: Tensor
    """(N,): the novel cluster where the decision is NOVEL, else NO_CLASS."""


class CalibratedModel(nn.Module):
    """A model with a temperature and a threshold: features of the encoder in, verdicts out.

    An image's ID score is its highest logit among known classes; where there are heads for novel
    ones, by how much that is above the highest of these. An image is accepted from `threshold` on.

    Args:
        model: an adapter and a head, the S known classes first.
        temperature: divides the logits of known classes before their softmax.
        clusters: whether the heads for novel classes stand for clusters; else what is not accepted
            is rejected, and they make room for it.
    """

    temperature: Tensor
    threshold: Tensor

    def __init__(
        self,
        model: Model,
        num_seen: int,
        temperature: float = 1.0,
        threshold: float = -torch.inf,
        *,
        clusters: bool = True,
    ) -> None:
        super().__init__()
        require(temperature > 0, f"temperature = {temperature} must be above 0.")
        self.model, self.num_seen = model.eval().requires_grad_(False), num_seen
        self.clusters = clusters
        self.register_buffer("temperature", torch.tensor(float(temperature)))
        self.register_buffer("threshold", torch.tensor(float(threshold)))

    @property
    def slots(self) -> int:
        """V, the prototypes of a class."""
        return sizes_of(self.model.head).slots

    def forward(self, features: Tensor) -> Verdicts:
        """Judge N images by their (N, D) features, as the encoder gives them."""
        output = self.model(features)
        logits, seen = output.logits, self.num_seen
        known, novel = logits[:, :seen], logits[:, seen:]
        best, classes = known.max(-1)
        rows = torch.arange(len(classes), device=classes.device)
        subclasses = output.similarities[rows, classes].argmax(-1)
        none = torch.full_like(classes, NO_CLASS)
        refused, clusters = torch.full_like(classes, REJECT), none
        if novel.shape[1]:
            best_novel, nearest = novel.max(-1)
            best = best - best_novel
            if self.clusters:
                refused, clusters = torch.full_like(classes, NOVEL), nearest
        accepted = best >= self.threshold
        return Verdicts(
            probs=(known / self.temperature).softmax(-1),
            classes=classes,
            subclasses=subclasses,
            id_scores=best,
            decisions=torch.where(accepted, torch.full_like(classes, ACCEPT), refused),
            clusters=torch.where(accepted, none, clusters),
        )


@torch.no_grad()
def judge(calibrated_model: CalibratedModel, chunks: Iterable[Tensor]) -> Verdicts:
    """Judge many images by chunks of their features."""
    found = [calibrated_model(some) for some in chunks]
    return Verdicts(*(torch.cat(column) for column in zip(*found, strict=True)))


def slot_use(calibrated_model: CalibratedModel, verdicts: Verdicts) -> Tensor:
    """(S, V): the number of accepted images that each prototype claims."""
    accepted, slots = verdicts.decisions == ACCEPT, calibrated_model.slots
    places = verdicts.classes[accepted] * slots + verdicts.subclasses[accepted]
    size = calibrated_model.num_seen * slots
    return torch.bincount(places, minlength=size).view(-1, slots)
