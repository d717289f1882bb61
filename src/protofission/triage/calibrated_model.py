"""Calibrated models: class, probability, sub-class, ID score and decision from features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from protofission.core.errors import InputError, require
from protofission.core.records import NO_CLASS
from protofission.models.adapters import Adapter
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
    """(N,): the nearest sub-class of that class."""
    id_scores: Tensor
    """(N,): higher is more like a known class."""
    decisions: Tensor
    """(N,): indices into DECISIONS."""
    clusters: Tensor
    """(N,): the cluster of an image that is not accepted, if there are any, else NO_CLASS."""


class Affinities(NamedTuple):
    """The numbers behind the choices of a calibrated model; the largest of each row is chosen."""

    subclasses: Tensor
    """(N, S, V), of the sub-classes of each class; below all others where a class has fewer."""
    clusters: Tensor
    """(N, K), of the clusters."""


class CalibratedModel(nn.Module, ABC):
    """A model with a temperature and a threshold: features of the encoder in, verdicts out.

    An image is accepted from `threshold` on.

    Args:
        num_seen: S, known classes.
        temperature: divides the logits of known classes before their softmax.
        says_novel: whether an image that is in a cluster is called novel, or rejected.
    """

    temperature: Tensor
    threshold: Tensor

    def __init__(
        self, num_seen: int, temperature: float, threshold: float, *, says_novel: bool
    ) -> None:
        super().__init__()
        require(temperature > 0, f"temperature = {temperature} must be above 0.")
        self.num_seen, self.says_novel = num_seen, says_novel
        self.register_buffer("temperature", torch.tensor(float(temperature)))
        self.register_buffer("threshold", torch.tensor(float(threshold)))

    @property
    @abstractmethod
    def inputs(self) -> int:
        """D, the features that it takes."""

    @property
    @abstractmethod
    def subclass_counts(self) -> tuple[int, ...]:
        """The number of sub-classes of each class."""

    @property
    @abstractmethod
    def num_clusters(self) -> int:
        """The number of clusters of images that are not accepted."""

    def settle(self) -> None:
        """Prepare to judge a few images at a time, fast; the weights may not change any more."""

    @abstractmethod
    def forward(self, features: Tensor) -> Verdicts:
        """Judge N images by their (N, D) features, as the encoder gives them."""

    @abstractmethod
    def affinities(self, features: Tensor) -> Affinities:
        """The numbers behind the choices of sub-classes and clusters."""

    @abstractmethod
    def id_score_range(self, features: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
        """(N,) twice: the least and the most that ID scores are where scores are off by so much."""

    @abstractmethod
    def typical(self, noise: Tensor) -> Tensor:
        """(N, D) features, spread as those that it was fitted to, from (N, D) normal noise."""

    def verdicts(
        self, logits: Tensor, id_scores: Tensor, subclasses: Tensor, clusters: Tensor
    ) -> Verdicts:
        """Decide by the threshold.

        Args:
            logits: (N, S), of the known classes.
            subclasses: (N,): the sub-class of each image in its likeliest class.
            clusters: (N,): the nearest cluster of each image, or NO_CLASS where there are none.
        """
        accepted = id_scores >= self.threshold
        clusters = torch.where(accepted, NO_CLASS, clusters)
        refused = torch.where(clusters == NO_CLASS, REJECT, NOVEL if self.says_novel else REJECT)
        return Verdicts(
            probs=(logits / self.temperature).softmax(-1),
            classes=logits.argmax(-1),
            subclasses=subclasses,
            id_scores=id_scores,
            decisions=torch.where(accepted, ACCEPT, refused),
            clusters=clusters,
        )


class SingleModel(CalibratedModel):
    """One model with heads for known classes and, if any, for clusters of strangers.

    An image's ID score is its highest logit among known classes; where there are heads for novel
    ones, by how much that is above the highest of these. Bundles of the first format hold it.

    Args:
        model: an adapter and a head, the S known classes first.
        clusters: whether the heads for novel classes stand for clusters; else what is not accepted
            is rejected, and they make room for it.
    """

    def __init__(
        self,
        model: Model,
        num_seen: int,
        temperature: float = 1.0,
        threshold: float = -torch.inf,
        *,
        clusters: bool = True,
    ) -> None:
        super().__init__(num_seen, temperature, threshold, says_novel=clusters)
        self.model = model.eval().requires_grad_(False)

    @property
    def inputs(self) -> int:
        """D, the features that it takes."""
        return len(self._standards()[0])

    @property
    def subclass_counts(self) -> tuple[int, ...]:
        """V, the prototypes of each class."""
        return (sizes_of(self.model.head).slots,) * self.num_seen

    @property
    def num_clusters(self) -> int:
        """The number of heads that stand for clusters."""
        return (sizes_of(self.model.head).classes - self.num_seen) * self.says_novel

    def forward(self, features: Tensor) -> Verdicts:
        """Judge N images by their (N, D) features, as the encoder gives them."""
        output = self.model(features)
        known, novel = output.logits[:, : self.num_seen], output.logits[:, self.num_seen :]
        best, classes = known.max(-1)
        rows = torch.arange(len(classes), device=classes.device)
        subclasses = output.similarities[rows, classes].argmax(-1)
        clusters = torch.full_like(classes, NO_CLASS)
        if novel.shape[1]:
            best_novel, nearest = novel.max(-1)
            best = best - best_novel
            clusters = nearest if self.says_novel else clusters
        return self.verdicts(known, best, subclasses, clusters)

    def affinities(self, features: Tensor) -> Affinities:
        """Similarities to the prototypes of known classes, and logits of clusters."""
        output = self.model(features)
        clusters = output.logits[:, self.num_seen :][:, : self.num_clusters]
        return Affinities(output.similarities[:, : self.num_seen], clusters)

    def id_score_range(self, features: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
        """(N,) twice: ID scores, less and more by the tolerance."""
        found = self(features).id_scores
        room = tolerance * found.abs().clamp_min(1)
        return found - room, found + room

    def typical(self, noise: Tensor) -> Tensor:
        """(N, D) features, spread as those that it was fitted to."""
        mean, deviation = self._standards()
        return mean + deviation * noise

    def _standards(self) -> tuple[Tensor, Tensor]:
        body = self.model.backbone
        if not isinstance(body, Adapter):
            raise InputError("A bundle wants a model on features: give one with an adapter.")
        return body.mean, body.deviation


@torch.no_grad()
def judge(calibrated_model: CalibratedModel, chunks: Iterable[Tensor]) -> Verdicts:
    """Judge many images by chunks of their features."""
    found = [calibrated_model(some) for some in chunks]
    return Verdicts(*(torch.cat(column) for column in zip(*found, strict=True)))


def subclass_use(calibrated_model: CalibratedModel, verdicts: Verdicts) -> Tensor:
    """(S, V): the number of accepted images in each sub-class; V is the most that a class has."""
    accepted, most = verdicts.decisions == ACCEPT, max(calibrated_model.subclass_counts)
    places = verdicts.classes[accepted] * most + verdicts.subclasses[accepted]
    size = calibrated_model.num_seen * most
    return torch.bincount(places, minlength=size).view(-1, most)
