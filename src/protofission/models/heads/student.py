"""Student head: Student's t about cluster centers. DTC's head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from protofission.core.checks import check_features, check_sizes
from protofission.core.distances import squared_distances
from protofission.core.kmeans import BALL, SAME
from protofission.core.records import Output, Prototypes
from protofission.fission import random_directions
from protofission.models.class_clusters import FeatureSample, prototype_centers
from protofission.models.heads.entry import HeadEntry, HeadSizes

if TYPE_CHECKING:
    from protofission.models.heads import HeadSpec


class StudentHead(nn.Module):
    """sim = -log(1 + |A f - c|^2), whose softmax is Student's t about C centers.

    A maps the D features to as many dimensions as there are classes, at most D.
    """

    def __init__(
        self, num_features: int, num_classes: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        check_sizes(num_features=num_features, num_classes=num_classes)
        width = min(num_features, num_classes)
        self.axes = nn.Parameter(random_directions(width, num_features, generator=generator))
        # "centres" is its name in the checkpoints that users have
        self.centres = nn.Parameter(random_directions(num_classes, width, generator=generator))

    def forward(self, features: Tensor) -> Output:
        """(N, D) to an `Output` with V = 1; its prototypes are the centers among the features."""
        check_features(features, self.axes.shape[-1])
        sims = -squared_distances(features @ self.axes.T, self.centres).log1p()
        prototypes = Prototypes.one_per_class(self.centres @ self.axes)
        return Output(features, sims[..., None], sims, prototypes)


class StudentEntry(HeadEntry[StudentHead]):
    """Axes and centers may start at principal axes and k-means centers."""

    module = StudentHead
    can_start = True

    def build(
        self,
        spec: HeadSpec,
        num_features: int,
        num_classes: int,
        num_seen: int,
        generator: torch.Generator,
    ) -> StudentHead:
        """The head with its random start."""
        return StudentHead(num_features, num_classes, generator)

    def sizes(self, head: StudentHead) -> HeadSizes:
        """C, 1 and D."""
        return HeadSizes(len(head.centres), 1, head.axes.shape[1])

    def start(self, head: StudentHead, sample: FeatureSample, generator: torch.Generator) -> None:
        """Set the axes to principal axes of all features, and the centers to k-means centers.

        Labels do not count. The axes are as long as makes the mean squared distance of a row from
        its center 1, the unit of Student's t: among distances far below it all centers are alike.
        """
        features = torch.cat([sample.labeled, sample.pool]).cpu().double()
        middle = features.mean(0)
        _, axes = torch.linalg.eigh((features - middle).T @ (features - middle))  # least first
        axes = axes.flip(1)[:, : len(head.axes)].T
        rows = (features - middle) @ axes.T
        radius = rows.norm(dim=-1).max()
        rows = rows / radius if radius > 0 else rows
        centers = prototype_centers(rows, len(head.centres), generator, BALL)
        spread = squared_distances(rows, centers).amin(1).mean().sqrt()
        scale = 1 / spread if spread > SAME else torch.ones_like(spread)
        head.axes.copy_(axes * scale / (radius if radius > 0 else 1))
        head.centres.copy_(head.axes.double().cpu() @ middle + scale * centers)
