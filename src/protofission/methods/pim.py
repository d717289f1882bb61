"""PIM: a weighted mutual information of features and classes, beside the labels.

After Chiaroni et al., 2023.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.checks import check_sizes
from protofission.core.errors import check_positive
from protofission.core.kmeans import SPHERE, cluster_rows
from protofission.core.metrics import count_matches
from protofission.core.records import (
    NO_CLASS,
    Output,
    Sizes,
    Step,
    Survey,
    Targets,
    Term,
    Terms,
    Views,
)
from protofission.methods.base import Method, Traits, label_rows
from protofission.methods.parts.entropy import negative_entropy
from protofission.models.heads import HeadSpec

CANDIDATES = tuple(place / 20 for place in range(2, 21))
"""The weights that the search compares: 0.1 to 1 by steps of 0.05."""
UNSURVEYED = 1.0
"""The weight before the first survey, that of the mutual information as it is."""


@dataclass(frozen=True)
class PimTargets(Targets):
    """Classes, and the weight of the step."""

    conditional_weight: Tensor
    """lambda: given, or found by the search."""


@dataclass(frozen=True)
class Pim(Method[PimTargets]):
    """Labels, sure predictions on the pool, and an even use of the heads: no augmentation."""

    conditional_weight: float | None = None
    """lambda: weight of the pool's mean entropy; none searches it by the labels, before the first
    epoch."""
    search_temperature: float = 25.0
    """Multiplies the cosines of the classifiers that are compared in the search."""
    search_rows: int = 2000
    """The most images of the search, labeled ones and the pool in the proportion of the data."""
    search_steps: int = 100
    """The number of its steps."""
    search_rate: float = 0.01
    """The learning rate of its classifiers, by Adam."""
    hard_threshold: float = 0.95
    """Least probability for a hard class of an unlabeled image, which only L_div reads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(10**6, search_rows=self.search_rows, search_steps=self.search_steps)
        check_positive(search_rate=self.search_rate)

    @property
    def traits(self) -> Traits:
        """The survey is for the search."""
        return Traits(
            views=Views(labeled=("plain",), unlabeled=("plain",)),
            head=HeadSpec("cosine", temperature=25.0, init="data"),
            novel="heads",
            survey_before_epoch=self.conditional_weight is None,
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """lambda, whether it has been searched, and the seed of the search."""
        memory = nn.Module()
        given = UNSURVEYED if self.conditional_weight is None else self.conditional_weight
        memory.register_buffer("conditional", torch.tensor(given, dtype=torch.float32))
        memory.register_buffer("searched", torch.zeros((), dtype=torch.bool))
        memory.register_buffer("seed", torch.randint(2**31, (), generator=generator))
        memory.register_buffer("classes", torch.tensor(sizes.num_classes))
        return memory

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """Search lambda, once."""
        if memory.get_buffer("searched"):
            return
        labeled = _features(survey.labeled)
        pool = _features(survey.pool)
        share = min(1.0, self.search_rows / (len(labeled) + len(pool)))
        some, others = _spread(len(labeled), share), _spread(len(pool), share)
        rows = F.normalize(torch.cat([labeled[some], pool[others]]), dim=-1)
        generator = torch.Generator().manual_seed(int(memory.get_buffer("seed")))
        found = self.search(
            rows, survey.labels.cpu()[some], int(memory.get_buffer("classes")), generator
        )
        memory.get_buffer("conditional").fill_(found)
        memory.get_buffer("searched").fill_(True)

    def search(
        self, rows: Tensor, labels: Tensor, classes: int, generator: torch.Generator
    ) -> float:
        """The candidate whose clusters, learned without labels, fit the labels best.

        Args:
            rows: (M, D) of length 1, labeled ones first.
            labels: of these.
            classes: C, the clusters of each candidate, which start at the same k-means centers.
        """
        free = torch.full((len(rows),), NO_CLASS)
        centers = cluster_rows(rows, free, rows[:0], classes, generator, SPHERE).centers
        weights = torch.tensor(CANDIDATES, dtype=rows.dtype)
        learned = centers.repeat(len(weights), 1, 1).requires_grad_()  # (G, C, D)
        optimizer = torch.optim.Adam([learned], lr=self.search_rate)
        with torch.enable_grad():
            for _ in range(self.search_steps):
                probs = self._clusters(rows, learned)
                pool = -negative_entropy(probs[:, len(labels) :]).mean(-1)
                loss = weights * pool + negative_entropy(probs.mean(1))
                (learned.grad,) = torch.autograd.grad(loss.sum(), [learned])
                optimizer.step()
        taken = self._clusters(rows[: len(labels)], learned.detach()).argmax(-1)  # (G, labeled)
        right = [
            count_matches(
                torch.bincount(labels * classes + own, minlength=classes**2)
                .view(classes, classes)
                .numpy()
            )
            for own in taken
        ]
        return CANDIDATES[right.index(max(right))]

    def _clusters(self, rows: Tensor, learned: Tensor) -> Tensor:
        """(G, M, C): the probabilities by each candidate's classifier."""
        cosines = rows @ F.normalize(learned, dim=-1).transpose(1, 2)
        return (self.search_temperature * cosines).softmax(-1)

    @torch.no_grad()
    def decide(self, step: Step) -> PimTargets:
        """The labels, and hard classes of the pool for L_div."""
        confidence, hard = self.sigma.probs(step.unlabeled(step.logits)).max(-1)
        classes = label_rows(step)
        sure = torch.where(confidence >= self.hard_threshold, hard, NO_CLASS)
        classes[step.layout.unlabeled_rows(0)] = sure
        return PimTargets(classes, step.memory.get_buffer("conditional"))

    def risk(self, step: Step, targets: PimTargets, logits: Tensor) -> Terms:
        """Cross entropy of the labels, the pool's entropy, and that of the mean of all images."""
        probs = self.sigma.probs(logits)
        conditional = -negative_entropy(step.unlabeled(probs)).mean()
        return (
            Term("supervised", self.sigma.risk(step.labeled(logits), step.labels).mean()),
            Term("conditional", conditional, targets.conditional_weight),
            Term("marginal", negative_entropy(probs.mean(0))),
        )


def _features(outputs: Iterable[Output]) -> Tensor:
    """(M, D), on the CPU."""
    return torch.cat([output.features.cpu() for output in outputs])


def _spread(images: int, share: float) -> Tensor:
    """The evenly spaced places of a share of the images, one at least."""
    number = max(1, int(share * images))
    return torch.arange(number) * images // number
