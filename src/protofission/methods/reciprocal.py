"""RPL and ARPL: classes score by the distance from their reciprocal points; labels only.

After Chen et al., 2020 and 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from protofission.core.distances import squared_distances
from protofission.core.errors import require
from protofission.core.records import Output, Sizes, Step, Targets, Term, Terms
from protofission.methods.base import Method, Traits, label_rows
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class Rpl(Method[Targets]):
    """Cross entropy by distances from reciprocal points, which a class keeps at a radius."""

    open_weight: float = 0.1
    """Weight of the open-space risk."""
    reject_by: Literal["probability", "distance"] = "probability"
    """The rejection rule: no class is probable, or no reciprocal point is far."""

    traits = Traits(head=HeadSpec("reciprocal"))  # sim = |f - r|^2 / D

    def check(self, head: HeadSpec) -> None:
        """Refuse any other head: the losses are distances from reciprocal points."""
        super().check(head)
        require(
            head.kind == self.traits.head.kind,
            f"head.kind = {head.kind} does not fit: the method measures how far reciprocal points "
            f"are, so leave it at {self.traits.head.kind}.",
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """R of each class, learned; 0 at first."""
        memory = nn.Module()
        memory.register_parameter("radius", nn.Parameter(torch.zeros(sizes.num_seen)))
        return memory

    def decide(self, step: Step) -> Targets:
        """The labels."""
        return Targets(label_rows(step))

    def risk(self, step: Step, targets: Targets, logits: Tensor) -> Terms:
        """R on the weak view of the labeled images."""
        return (Term("reciprocal", self.sigma.risk(step.labeled(logits), step.labels).mean()),)

    def other_terms(self, step: Step, targets: Targets) -> Terms:
        """The open-space risk of each labeled image at the point of its class, averaged."""
        features = step.labeled(step.output.features)
        points = step.output.prototypes.combined[:, 0]
        far = squared_distances(features, points) / features.shape[-1]
        own = far.gather(1, step.labels[:, None])[:, 0]
        radius = step.memory.get_parameter("radius").expand(step.num_seen)[step.labels]
        charged = self.open_risk(own, radius)
        return (Term("open_space", charged.mean(), self.open_weight),)

    def open_risk(self, far: Tensor, radius: Tensor) -> Tensor:
        """(L,): (d - R)^2."""
        return (far - radius).square()

    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """(N,): 1 - the largest probability, or minus the largest similarity."""
        if self.reject_by == "distance":
            return -output.nearest[:, :num_seen].amax(-1)
        return 1 - self.sigma.probs(output.logits)[:, :num_seen].amax(-1)


@dataclass(frozen=True)
class Arpl(Rpl):
    """RPL whose distance counts the angle too, and whose radius is a bound that all share.

    Without the confusing samples of ARPL+CS, which take a generator of images.
    """

    reject_by: Literal["probability", "distance"] = "distance"
    """The rejection rule, as in RPL; the distance includes the angle."""
    margin: float = 1.0
    """The distance within the radius that a class keeps; the paper's formula has 0, its code 1."""

    traits = Traits(head=HeadSpec("reciprocal-dot", temperature=1.0))  # sim = |f - r|^2 / D - f r

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.margin >= 0, f"margin = {self.margin} must be at least 0.")

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """R, learned; 0 at first."""
        memory = nn.Module()
        memory.register_parameter("radius", nn.Parameter(torch.zeros(1)))
        return memory

    def open_risk(self, far: Tensor, radius: Tensor) -> Tensor:
        """(L,): max(d - R + margin, 0)."""
        return (far - radius + self.margin).relu()
