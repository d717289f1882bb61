"""Entry of FissionHead (protofission/fission.py), with the closed form of l by which it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from protofission.core.errors import require
from protofission.core.kmeans import SPHERE
from protofission.core.memory_limits import Extent
from protofission.fission import FissionHead, mixing
from protofission.models.class_clusters import FeatureSample, class_directions, prototype_centers
from protofission.models.heads.entry import HeadEntry, HeadSizes

if TYPE_CHECKING:
    from protofission.models.heads import HeadSpec

SHORTEST = 0.1
"""The length below which no combined prototype starts: cosines of a shorter one are rough."""


class FissionEntry(HeadEntry[FissionHead]):
    """Prototypes may start at the mean directions and k-means centers of classes and clusters."""

    module = FissionHead
    can_start = True
    can_bundle = True

    def build(
        self,
        spec: HeadSpec,
        num_features: int,
        num_classes: int,
        num_seen: int,
        generator: torch.Generator,
    ) -> FissionHead:
        """The head with its random start."""
        return FissionHead(
            num_features,
            num_classes,
            spec.prototypes,
            temperature=spec.temperature,
            offset=spec.offset,
            similarity=spec.similarity,
            num_seen=num_seen,
            novel_prototypes=spec.novel_prototypes,
            delta=spec.delta,
            generator=generator,
        )

    def sizes(self, head: FissionHead) -> HeadSizes:
        """C, V and D."""
        return HeadSizes(*head.l.shape)

    def slots(self, spec: HeadSpec) -> int:
        """V."""
        return spec.prototypes

    def extent(self, spec: HeadSpec, num_features: int, num_classes: int) -> Extent:
        """V local parts and a shared one of each class."""
        local = super().extent(spec, num_features, num_classes)
        return local._replace(weights=local.weights + num_classes * num_features)

    def has_cosines(self, spec: HeadSpec) -> bool:
        """Whether it compares by cosine."""
        return spec.similarity == "cosine"

    def check_start(self, spec: HeadSpec) -> None:
        """Refuse a similarity for which the length of features counts."""
        require(
            spec.similarity == "cosine",
            f"init = data wants similarity = cosine, not {spec.similarity}: prototypes are "
            "at most of length 1, so the others cannot start where features of any length are.",
        )

    def start(self, head: FissionHead, sample: FeatureSample, generator: torch.Generator) -> None:
        """Set g to the mean direction of a class, and l so that prototypes are k-means centers.

        delta stays as it is.
        """
        require(
            head.similarity == "cosine",
            "A start from the data wants a head that compares by cosine, not this "
            f"{head.similarity} FissionHead: let it start at random.",
        )
        for c, rows, center in class_directions(head.g, sample, generator):
            head.g[c] = center.to(head.g)
            used = int(head._own[c].max()) + 1  # tied slots repeat the first ones
            share = mixing(head.delta[c, :used]).double().cpu()
            wanted = prototype_centers(rows, used, generator, SPHERE)
            head.l[c, :used] = local_parts(center, wanted, share).to(head.l)

    def options(self, head: FissionHead) -> dict[str, Any]:
        """V, V of the novel classes where they have another, similarity, T and b."""
        slots, novel = head.l.shape[1], int(head._own[-1].max()) + 1
        return {
            "prototypes": slots,
            "novel_prototypes": None if novel == slots else novel,
            "similarity": head.similarity,
            "temperature": head.temperature,
            "offset": head.offset,
        }

    def shapes(
        self, spec: HeadSpec, num_features: int, num_classes: int
    ) -> dict[str, tuple[int, ...]]:
        """g, l, delta, and W of a Mahalanobis similarity."""
        found: dict[str, tuple[int, ...]] = {
            "g": (num_classes, num_features),
            "l": (num_classes, spec.prototypes, num_features),
            "delta": (num_classes, spec.prototypes),
        }
        if spec.similarity == "mahalanobis":
            found["precision_root"] = (num_features, num_features)
        return found


def local_parts(g: Tensor, wanted: Tensor, share: Tensor) -> Tensor:
    """(V, D): the l of unit length for which Eq. 1's prototypes point along wanted directions.

    Of p = t w, |l| = 1 leaves t = (1 - lambda) cos + sqrt(((1 - lambda) cos)^2 - (1 - lambda)^2 +
    lambda^2) with cos = g w; l = (t w - (1 - lambda) g) / lambda. With lambda = 1/2, l is g
    reflected at w. It is exact wherever p keeps a length of `SHORTEST`: in all directions where
    lambda is well above 1/2, for cos >= `SHORTEST` at 1/2, and below it in the cone about g whose
    sine is lambda / (1 - lambda). A direction beyond is turned towards g until it can be reached.

    Args:
        g: (D,), of length 1.
        wanted: (V, D), of length 1.
        share: (V,), lambda.
    """
    rest, excess = 1 - share, 1 - 2 * share  # excess = (1 - lambda)^2 - lambda^2
    shortest = excess.clamp_min(SHORTEST**2).sqrt()
    lowest = ((shortest.square() + excess) / (2 * rest * shortest)).clamp(-1, 1)
    cosine = wanted @ g
    aside = F.normalize(wanted - cosine[:, None] * g, dim=-1)
    turned = cosine.maximum(lowest).clamp_max(1)
    length = rest * turned + ((rest * turned).square() - excess).clamp_min(0).sqrt()
    along = length * turned - rest
    across = length * (1 - turned.square()).sqrt()
    return F.normalize(along[:, None] * g + across[:, None] * aside, dim=-1, eps=1e-30)
