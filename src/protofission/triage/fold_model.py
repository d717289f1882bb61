"""One model of a fit: class logits and an ID score from features, in spaces of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from protofission.core.threaded_products import linear, products, row_sums, unit_vectors
from protofission.models.adapters import AdapterSpec
from protofission.models.heads import HeadSpec
from protofission.models.model import Model

LEAST_WEIGHT = 1e-3
"""Smallest weight of a score."""
FARTHEST_ROW = 1.5
"""Longest row of standardized features, in units of the usual length, that a regression sees."""


@dataclass(frozen=True)
class FoldModelSizes:
    """The sizes and specs that a `FoldModel` is built from."""

    inputs: int
    """D, features of the encoder."""
    reduced: int
    """Principal directions of the unit vectors of standardized features."""
    near: int
    """Directions, the first of these, in which distances are measured."""
    width: int
    """Dimensions of the whitened unit vectors that the prototypes see."""
    known: int
    """S, known classes."""
    strange: int
    """Heads for strangers."""
    head: HeadSpec
    adapter: AdapterSpec
    free: int = 0
    """Free centers of the mixture; 0 is a model without one, as controls are."""
    points: int = 0
    """Points of each class, of which the nearest counts; 0 is a model without them."""

    def build(self) -> FoldModel:
        """Build the model, with any weights."""
        return FoldModel(self)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the model's tensors by name, without allocating them."""
        found: dict[str, tuple[int, ...]] = {
            "mean": (self.inputs,),
            "scale": (self.inputs,),
            "axes": (self.reduced, self.inputs),
            "center": (self.reduced,),
            "whitening": (self.width, self.reduced),
            "offset": (self.width,),
            "class_root": (self.near, self.near),
            "class_points": (self.known, self.near),
            "background_root": (self.near, self.near),
            "background_point": (1, self.near),
            "score_centers": (self.scores,),
            "score_scales": (self.scores,),
            "logit_scales": (self.parts,),
            "regression": (self.known, self.inputs),
            "intercepts": (self.known,),
        }
        if self.free:
            found["centers"] = (self.known + self.free, self.width)
            found["center_offsets"] = (self.known + self.free,)
        if self.points:
            found["points"] = (self.known * self.points, self.reduced)
        adapter = self.adapter.shapes(self.width)
        head = self.head.entry.shapes(self.head, self.adapter.outputs(self.width), self.heads)
        found |= {f"model.backbone.{name}": shape for name, shape in adapter.items()}
        return found | {f"model.head.{name}": shape for name, shape in head.items()}

    @property
    def heads(self) -> int:
        """All heads of the model."""
        return self.known + self.strange

    @property
    def parts(self) -> int:
        """P, the parts of the logits: the mixture's is the fourth."""
        return 4 if self.free else 3

    @property
    def scores(self) -> int:
        """Q, the parts of the score: those of the logits, and the cosine with the nearest point."""
        return self.parts + (self.points > 0)


class FoldOutput(NamedTuple):
    """Outputs of a `FoldModel` for N images."""

    logits: Tensor
    """(N, S), of the known classes."""
    scores: Tensor
    """(N,): higher is more like a known class."""


class FoldModel(nn.Module):
    """A fitted model of known classes and strangers.

    Features are standardized, made unit vectors and reduced to their principal directions. There,
    distances are measured: relative Mahalanobis, with the pool as background. Whitened by the
    scatter within classes and made unit vectors again, they are compared with fission's prototypes,
    those of known classes and those for strangers, and with the known and free centers of a
    mixture.

    The ID score is a sum of parts, each standardized by the pool, with the weights of
    `score_weights`: by how much the largest logit of known classes exceeds the largest of
    strangers; by how much the background is farther than the nearest class; the energy of a
    logistic regression, on the labels and on what is most surely known of the pool; the log odds of
    the mixture's known centers against its free ones; and the cosine with the nearest point of any
    class, in the space that is not whitened, if pseudo-strangers say that it helps
    (`nearest_points`). The logits are the sum of fission's,
    of the regression's, of those that distances give and of the mixture's, each scaled by its
    spread and weighed by `logit_weights`.
    """

    mean: Tensor
    scale: Tensor
    axes: Tensor
    center: Tensor
    whitening: Tensor
    offset: Tensor
    class_root: Tensor
    class_points: Tensor
    background_root: Tensor
    background_point: Tensor
    score_centers: Tensor
    score_scales: Tensor
    logit_scales: Tensor
    regression: Tensor
    intercepts: Tensor
    centers: Tensor
    """(S + free, width), of length T: the concentration of the mixture."""
    center_offsets: Tensor
    """(S + free,), the logarithms of the centers' priors."""
    points: Tensor
    """(S points, reduced), of length 1: those of the first class come first."""

    def __init__(self, sizes: FoldModelSizes) -> None:
        super().__init__()
        self.sizes = sizes
        for name, shape in sizes.shapes().items():
            if not name.startswith("model."):
                self.register_buffer(name, torch.ones(shape))
        generator = torch.Generator().manual_seed(0)
        body = sizes.adapter.build(sizes.width, generator)
        head = sizes.head.build(body.num_features, sizes.heads, sizes.known, generator)
        self.model = Model(body, head).eval().requires_grad_(False)

    def forward(self, features: Tensor) -> FoldOutput:
        """Judge N images by their (N, D) features, as the encoder gives them."""
        scores, logits = self.parts(features)
        logits = logits / self.logit_scales[..., None, :, None]
        return FoldOutput(logits.sum(-2), row_sums(self._standard(scores)))

    def spaces(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, D) standardized features, (N, reduced) reduced ones and (N, width) whitened units."""
        standard = (features - self.mean[..., None, :]) * self.scale[..., None, :]
        reduced = linear(unit_vectors(standard), self.axes, -self.center)
        units = unit_vectors(linear(reduced, self.whitening, -self.offset))
        return standard, reduced, units

    def parts(self, features: Tensor, without: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(N, Q) scores and (N, P, S) logits, before they are scaled and summed.

        Scores are by fission, by distances, by the energy of the logistic regression, by the
        mixture and by the nearest point; logits by fission, by logistic regression, by distances
        and by the mixture.

        Args:
            without: (N,), a class for each row, which the scores are to leave out.
        """
        standard, reduced, units = self.spaces(features)
        near = reduced[..., : self.sizes.near]
        heads = self.head_logits(units)
        known, strange = heads[..., : self.sizes.known], heads[..., self.sizes.known :]
        classes = _squared_distances(near, self.class_root, self.class_points)
        background = _squared_distances(near, self.background_root, self.background_point)[..., 0]
        regression = linear(pull_in(standard), self.regression, self.intercepts)

        def left(logits: Tensor) -> Tensor:
            if without is None:
                return logits
            return logits.scatter(-1, without[..., None], -torch.inf)

        margin = left(known).amax(-1)
        if self.sizes.strange:
            margin = margin - strange.amax(-1)
        scores = [margin, background + left(-classes).amax(-1), left(regression).logsumexp(-1)]
        # Half the distance is a log likelihood; of so many directions, it is much too sure.
        logits = [known, regression, -classes / (2 * self.sizes.near**0.5)]
        if self.sizes.free:
            own, free = self._center_logits(units)
            scores.append(left(own).logsumexp(-1) - free.logsumexp(-1))
            logits.append(own)
        if self.sizes.points:
            scores.append(left(self._nearest_points(reduced)).amax(-1))
        return torch.stack(scores, -1), spread_logits(torch.stack(logits, -2))

    def standard_scores(self, features: Tensor, without: Tensor | None = None) -> Tensor:
        """(N, Q): the scores of `parts`, standardized and weighted; their sum is the ID score."""
        return self._standard(self.parts(features, without)[0])

    def _standard(self, scores: Tensor) -> Tensor:
        return (scores - self.score_centers[..., None, :]) / self.score_scales[..., None, :]

    def _center_logits(self, units: Tensor) -> tuple[Tensor, Tensor]:
        """(N, S) and (N, free): logits of the mixture's centers."""
        logits = linear(units, self.centers, self.center_offsets)
        return logits[..., : self.sizes.known], logits[..., self.sizes.known :]

    def _nearest_points(self, reduced: Tensor) -> Tensor:
        """(N, S): products of unit vectors of features with the nearest point of each class."""
        rows = reduced + self.center[..., None, :]
        found = products(rows, self.points)
        by_class = found.reshape(*found.shape[:-1], self.sizes.known, self.sizes.points)
        return by_class.amax(-1)

    def head_logits(self, units: Tensor) -> Tensor:
        """(N, heads): fission's logits of (N, width) whitened units."""
        found: Tensor = self.model(units).logits
        return found


def score_weights(share: float, *, points: bool = False) -> Tensor:
    """(5,): weights of the scores of fission, distances, regression, mixture and nearest points.

    They are 1, share, (1 - share)^2, 1, and (1 - share)^2 or nothing. Distances are relative to the
    pool, and tell strangers as far as it holds them; where it holds few, the labels alone tell
    more.

    Args:
        share: of strangers in the pool.
        points: whether the nearest points count.
    """
    labels = (1 - share) ** 2
    weights = torch.tensor([1.0, share, labels, 1.0, points * labels], dtype=torch.float64)
    return weights.clamp_min(LEAST_WEIGHT)


def logit_weights(known: float) -> Tensor:
    """(4,): weights of the logits of fission, regression, distances and mixture.

    Those that learn from the pool tell classes the better the more of it is known: 1 + 2 known,
    1 + 6 known, 1, and 8 known^2.

    Args:
        known: share of known images in the pool; 0 without a pool.
    """
    weights = torch.tensor([1 + 2 * known, 1 + 6 * known, 1.0, 8 * known**2], dtype=torch.float64)
    return weights.clamp_min(LEAST_WEIGHT)


def pull_in(rows: Tensor) -> Tensor:
    """(N, D) standardized rows, those of more than FARTHEST_ROW usual lengths made so long.

    Otherwise a row far away in the direction of a class would have any energy.
    """
    lengths = row_sums(rows.square()).sqrt()[..., None]
    most = FARTHEST_ROW * rows.shape[-1] ** 0.5
    found: Tensor = rows * (most / lengths.clamp_min(most))
    return found


def spread_logits(logits: Tensor) -> Tensor:
    """(N, S) log-probabilities less their mean over classes."""
    found = logits.log_softmax(-1)
    return found - row_sums(found)[..., None] / found.shape[-1]


def _squared_distances(rows: Tensor, root: Tensor, points: Tensor) -> Tensor:
    """(N, K): |row root - point|^2 of (N, d) rows and (K, d) points."""
    moved = products(rows, root.mT)
    lengths = row_sums(moved.square())[..., None] + points.square().sum(-1)[..., None, :]
    return lengths - 2 * products(moved, points)
