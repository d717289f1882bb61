"""STEP, structure-keep unzipping: a projection for OOD scores that keeps neighbors together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from protofission.core.checks import check_sizes
from protofission.core.distances import squared_distances
from protofission.core.errors import check_positive, require
from protofission.core.records import Output, Sizes, Step, Survey, Targets, Term, Terms, Views
from protofission.fission import random_directions
from protofission.methods.base import Adam, Method, Traits, label_rows


@dataclass(frozen=True)
class StepOODTargets(Targets):
    """Features without gradient, and their neighbors, for the projection to learn by."""

    rows: Tensor
    """(L + U, D): features of all images, labeled first."""
    neighbours: Tensor
    """(L + U, K): the nearest other images of the batch by Mahalanobis distance."""
    distances: Tensor
    """(L + U, K): the squares of these distances."""


class StepOODMemory(nn.Module):
    """The projection P, and the whitening and class centers of the last survey."""

    whitening: Tensor
    centres: Tensor

    def __init__(self, width: int, num_seen: int, generator: torch.Generator) -> None:
        super().__init__()
        self.projection = nn.Parameter(random_directions(width, width, generator=generator))
        self.register_buffer("whitening", torch.eye(width))
        self.register_buffer("centres", torch.zeros(num_seen, width))


@dataclass(frozen=True)
class StepOOD(Method[StepOODTargets]):
    """Labels teach the classifier; beside it, P learns the space in which OOD is far away.

    With P_MD' P_MD = (Sigma + ridge I)^-1, Sigma the covariance of all labeled features, the
    distance MD(x, y) = |P_MD (x - y)| says which K images of a batch are the nearest to each. Then
    keep = mean over neighbors of max(0, |P x - P n|^2 - MD(x, n)^2) and
    unzip = max(0, margin - mean over all pairs of |P x - P y|^2 / D).
    Neither reaches the features. An image is as OOD as P x is far from its nearest class center.
    """

    neighbours: int = 2
    """K, the number of nearest neighbors within a batch."""
    keep_weight: float = 1.0
    """Weight of the loss that keeps neighbors as near as they were."""
    unzip_weight: float = 1.0
    """Weight of the loss that pulls all images apart."""
    margin: float = 3.0
    """The mean square, coordinate by coordinate, up to which images are pulled apart."""
    ridge: float = 1.0
    """Added to every variance of the labeled features."""
    projection_rate: float = 3e-4
    """The learning rate of P, by Adam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(neighbours=self.neighbours)
        check_positive(projection_rate=self.projection_rate)
        for name in ("margin", "ridge"):
            value = getattr(self, name)
            require(value > 0, f"{name} = {value} must be above 0.")

    @property
    def traits(self) -> Traits:
        """The covariance and the class centers, which the OOD score uses, need a survey."""
        return Traits(
            views=Views(labeled=("weak",), unlabeled=("weak",)),
            pseudo_labels=False,
            survey_before_epoch=True,
            survey_before_scoring=True,
            memory_optimizer=Adam(self.projection_rate, 1e-4),
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> StepOODMemory:
        """P at random, Sigma = I - ridge I, all centers at 0."""
        return StepOODMemory(sizes.num_features, sizes.num_seen, generator)

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """P_MD by a Cholesky factor of the covariance, and the mean of each class."""
        kept = cast(StepOODMemory, memory)
        classes, width = kept.centres.shape
        sums = kept.centres.new_zeros(classes, width, dtype=torch.float64)
        squares = sums.new_zeros(width, width)
        counts = torch.bincount(survey.labels, minlength=classes).to(sums)[:, None]
        start = 0
        for output in survey.labeled:
            rows = output.features.to(sums)
            labels = survey.labels[start : start + len(rows)]
            sums.index_add_(0, labels, rows)
            squares += rows.T @ rows
            start += len(rows)
        mean = sums.sum(0) / start
        covariance = squares / start - torch.outer(mean, mean)
        covariance.diagonal().add_(self.ridge)
        identity = torch.eye(width, dtype=covariance.dtype, device=covariance.device)
        factor, failed = torch.linalg.cholesky_ex(covariance)
        require(
            not bool(failed),
            f"The covariance of the labeled features cannot be inverted with method.ridge = "
            f"{self.ridge}: raise it, to 1 for instance, or lower recipe.learning_rate.",
        )
        kept.whitening.copy_(torch.linalg.solve_triangular(factor, identity, upper=False))
        kept.centres.copy_(sums / counts.clamp_min(1))

    @torch.no_grad()
    def decide(self, step: Step) -> StepOODTargets:
        """The graph of neighbors."""
        rows = step.both(step.output.features).detach()
        white = rows @ cast(StepOODMemory, step.memory).whitening.T
        far = squared_distances(white, white).fill_diagonal_(torch.inf)
        nearest = far.topk(min(self.neighbours, len(rows) - 1), largest=False)
        return StepOODTargets(label_rows(step), rows, nearest.indices, nearest.values)

    def risk(self, step: Step, targets: StepOODTargets, logits: Tensor) -> Terms:
        """R on the weak view of the labeled images."""
        return (Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),)

    def other_terms(self, step: Step, targets: StepOODTargets) -> Terms:
        """Keep and unzip, which P alone learns by."""
        projected = targets.rows @ cast(StepOODMemory, step.memory).projection.T
        gaps = projected[:, None] - projected[targets.neighbours]
        stretched = (gaps.square().sum(-1) - targets.distances).clamp_min(0)
        spread = 2 * projected.var(0).mean()  # the mean over all pairs of two different images
        return (
            Term("keep", stretched.mean(), self.keep_weight),
            Term("unzip", (self.margin - spread).clamp_min(0), self.unzip_weight),
        )

    @torch.no_grad()
    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """(N,): the distance from the nearest class center, in the space of P."""
        kept = cast(StepOODMemory, memory)
        places, centres = output.features @ kept.projection.T, kept.centres @ kept.projection.T
        return squared_distances(places, centres).amin(-1).sqrt()
