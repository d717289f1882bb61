"""The models of all folds as one calibrated model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from protofission.core.cross_conformal import FARTHEST, HALF_WIDTH, FoldScores
from protofission.core.records import NO_CLASS
from protofission.core.threaded_products import linear, products, row_sums, unit_vectors
from protofission.core.unit_maps import UnitMap
from protofission.triage.calibrated_model import Affinities, CalibratedModel, Verdicts
from protofission.triage.fold_model import FoldModel, FoldModelSizes, FoldOutput
from protofission.triage.fold_stack import FoldStack, can_stack

OUTSIDE = -2.0
"""Cosine of a sub-class that a class does not have."""
MOST_STACKED = 64
"""Most rows that are judged by all models at once: of more, one model after the other is faster."""


@dataclass(frozen=True)
class CenterSizes:
    """The sizes of `UnitCenters`."""

    inputs: int
    """D."""
    width: int
    """d, dimensions of the unit vectors."""
    counts: tuple[int, ...]
    """The number of centers of each group."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors by name."""
        return {
            "mean": (self.inputs,),
            "scale": (self.inputs,),
            "matrix": (self.width, self.inputs),
            "offset": (self.width,),
            "centers": (sum(self.counts), self.width),
        }


class UnitCenters(nn.Module):
    """Centers of clusters among unit vectors of features; the largest cosine is the nearest."""

    mean: Tensor
    scale: Tensor
    matrix: Tensor
    offset: Tensor
    centers: Tensor
    groups: Tensor
    slots: Tensor
    """The group of each center, and its place there."""

    def __init__(self, sizes: CenterSizes) -> None:
        super().__init__()
        self.sizes = sizes
        for name, shape in sizes.shapes().items():
            self.register_buffer(name, torch.ones(shape))
        counts = torch.tensor(sizes.counts)
        groups = torch.arange(len(counts)).repeat_interleave(counts)
        slots = torch.arange(len(groups)) - (counts.cumsum(0) - counts)[groups]
        self.register_buffer("groups", groups, persistent=False)
        self.register_buffer("slots", slots, persistent=False)

    @staticmethod
    def of(space: UnitMap, centers: Sequence[Tensor]) -> UnitCenters:
        """Centers of several groups in one space."""
        counts = tuple(len(own) for own in centers)
        found = UnitCenters(CenterSizes(len(space.mean), space.matrix.shape[1], counts))
        found.mean.copy_(torch.from_numpy(space.mean))
        found.scale.copy_(torch.from_numpy(space.scale))
        found.matrix.copy_(torch.from_numpy(space.matrix.T))
        found.offset.copy_(torch.from_numpy(space.offset))
        if sum(counts):
            found.centers.copy_(torch.cat(list(centers)))
        return found

    def forward(self, features: Tensor) -> Tensor:
        """(N, all centers) cosines."""
        return products(self.units(features), self.centers)

    def units(self, features: Tensor) -> Tensor:
        """(N, d) unit vectors of (N, D) features."""
        rows = unit_vectors((features - self.mean) * self.scale)
        return unit_vectors(linear(rows, self.matrix, -self.offset))

    def by_group(self, features: Tensor) -> Tensor:
        """(N, groups, most centers of a group) cosines; OUTSIDE beyond those that a group has."""
        shape = len(features), len(self.sizes.counts), max(self.sizes.counts)
        found = features.new_full(shape, OUTSIDE)
        found[:, self.groups, self.slots] = self(features)
        return found


class FoldEnsemble(CalibratedModel):
    """K models, each trained without the labels of one fold, which judge it.

    Logits are the mean of the models'. The ID score of an image is its rank among the labels, by
    cross-conformal prediction: about the share of known images that look no more like a known class
    than it does (`core.cross_conformal`). Images that are not accepted belong to the nearest
    cluster, accepted ones to the nearest sub-class of their class.

    Args:
        models: K models.
        fold_sizes: labels of each fold, among which images are ranked (`rank_among`).
        parts: sub-classes, a group of centers for each class; by default one each.
        clusters: one group of centers of rejected images; by default none.
    """

    centers: Tensor
    scales: Tensor
    label_scores: Tensor

    def __init__(
        self,
        models: Sequence[FoldModel],
        fold_sizes: Sequence[int],
        parts: UnitCenters | None = None,
        clusters: UnitCenters | None = None,
        *,
        says_novel: bool = False,
    ) -> None:
        sizes = models[0].sizes
        super().__init__(sizes.known, 1.0, -torch.inf, says_novel=says_novel)
        self.models = nn.ModuleList(models)
        self.fold_sizes = tuple(fold_sizes)
        whole = CenterSizes(sizes.inputs, 1, (1,) * sizes.known)
        self.parts = UnitCenters(whole) if parts is None else parts
        nothing = CenterSizes(sizes.inputs, 1, (0,))
        self.clusters = UnitCenters(nothing) if clusters is None else clusters
        self.stack: FoldStack | None = None
        self.register_buffer("centers", torch.zeros(len(models)))
        self.register_buffer("scales", torch.ones(len(models)))
        self.register_buffer("label_scores", torch.zeros(sum(self.fold_sizes)))
        self.eval().requires_grad_(False)

    def rank_among(self, ranked: FoldScores) -> None:
        """Set the label scores that images are ranked among, fold by fold."""
        self.centers.copy_(torch.from_numpy(ranked.centers))
        self.scales.copy_(torch.from_numpy(ranked.scales))
        parts = [torch.from_numpy(ranked.scores[ranked.folds == k]) for k in range(ranked.models)]
        if sum(self.fold_sizes):
            self.label_scores.copy_(torch.cat([part.sort().values for part in parts]))

    def settle(self) -> None:
        """Put the models side by side."""
        models = [cast(FoldModel, model) for model in self.models]
        if can_stack(models):
            self.stack = FoldStack(models).eval()

    @property
    def inputs(self) -> int:
        """D, the features that it takes."""
        return self.sizes[0].inputs

    @property
    def sizes(self) -> tuple[FoldModelSizes, ...]:
        """The sizes of each model."""
        return tuple(cast(FoldModel, model).sizes for model in self.models)

    @property
    def subclass_counts(self) -> tuple[int, ...]:
        """The number of sub-classes of each class."""
        return self.parts.sizes.counts

    @property
    def num_clusters(self) -> int:
        """The number of clusters of images that are not accepted."""
        return self.clusters.sizes.counts[0]

    def forward(self, features: Tensor) -> Verdicts:
        """Judge N images by their (N, D) features, as the encoder gives them."""
        logits, scores = self.by_model(features)
        mean = _mean(logits)
        classes = mean.argmax(-1)
        rows = torch.arange(len(classes), device=classes.device)
        subclasses = self.parts.by_group(features)[rows, classes].argmax(-1)
        clusters = torch.full_like(classes, NO_CLASS)
        if self.num_clusters:
            clusters = self.clusters(features).argmax(-1)
        return self.verdicts(mean, self.id_scores(scores), subclasses, clusters)

    def logits(self, features: Tensor) -> Tensor:
        """(N, S) logits of the known classes, before the temperature."""
        return _mean(self.by_model(features)[0])

    def by_model(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(N, K, S) logits and (N, K) scores."""
        traced = torch.compiler.is_compiling()
        if self.stack is not None and not traced and len(features) <= MOST_STACKED:
            side_by_side: FoldOutput = self.stack(features)
            return side_by_side.logits.transpose(0, 1), side_by_side.scores.T
        found = [model(features) for model in self.models]
        logits = torch.stack([each.logits for each in found], 1)
        return logits, torch.stack([each.scores for each in found], 1)

    def id_scores(self, scores: Tensor) -> Tensor:
        """(N,) in (0, 1), of (N, K) scores: `FoldScores.id_scores`."""
        ranks = torch.zeros_like(scores[:, 0])
        parts = torch.split(self.label_scores, list(self.fold_sizes))
        for fold, own in enumerate(parts):
            if len(own):
                ranks = ranks + (own <= scores[:, fold, None]).sum(1).to(scores.dtype)
        t = ((scores - self.centers) / self.scales).clamp(-FARTHEST, FARTHEST)
        t = row_sums(t) / t.shape[1]
        return (ranks + 0.5 + HALF_WIDTH * t / (1 + t.abs())) / (sum(self.fold_sizes) + 1)

    def affinities(self, features: Tensor) -> Affinities:
        """Cosines to the centers of sub-classes and of clusters."""
        return Affinities(self.parts.by_group(features), self.clusters(features))

    def id_score_range(self, features: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
        """(N,) twice: ID scores where every model's score is less or more by the tolerance."""
        scores = self.by_model(features)[1]
        room = tolerance * scores.abs().clamp_min(1)
        return self.id_scores(scores - room), self.id_scores(scores + room)

    def typical(self, noise: Tensor) -> Tensor:
        """(N, D) features, spread as those that it was fitted to."""
        first = self.models[0]
        scale = first.get_buffer("scale")
        return first.get_buffer("mean") + torch.where(scale > 0, 1 / scale, 0.0) * noise


def _mean(logits: Tensor) -> Tensor:
    """(N, S): the mean over models of (N, K, S) logits."""
    return row_sums(logits.transpose(1, 2)) / logits.shape[1]
