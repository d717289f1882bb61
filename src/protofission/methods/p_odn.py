"""A reading of P-ODN: a prototype and a radius for each class, learned together; labels only.

After Shu et al., 2020, as far as it is public; docs/methods.md names every choice of ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import Output, Sizes, Step, Targets, Term, Terms
from protofission.methods.base import Method, Traits, label_rows
from protofission.models.heads import HeadSpec

LEAST = 1e-6
"""The smallest radius that a distance is divided by."""


@dataclass(frozen=True)
class POdn(Method[Targets]):
    """Classes by distance from one prototype each, with a radius; three zones tell strangers."""

    prototype_weight: float = 0.001
    """Weight of the squared distance of an image from the prototype of its class."""
    radius_weight: float = 0.1
    """Weight of the squared difference of that distance, over D, and the radius of the class."""
    accept_within: float = 1.0
    """Within so many radiuses of the nearest prototype an image is accepted."""
    reject_beyond: float = 3.0
    """Beyond so many it is rejected; between the two, the second-nearest prototype decides."""

    traits = Traits(head=HeadSpec("distance", prototypes=1), reading=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        near, far = self.accept_within, self.reject_beyond
        require(
            0 < near < far,
            f"accept_within = {near} must be above 0 and below reject_beyond, {far}.",
        )

    def check(self, head: HeadSpec) -> None:
        """Refuse any other head: the losses are distances from one prototype a class."""
        super().check(head)
        require(
            head.kind == "distance" and head.slots == 1,
            f"head.kind = {head.kind} with {head.slots} prototypes a class does not fit: p-odn "
            "measures distances from one, so leave head.kind at distance and head.prototypes at 1.",
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The radiuses, which learn by the recipe."""
        memory = nn.Module()
        memory.radiuses = nn.Parameter(torch.ones(sizes.num_seen))
        return memory

    def decide(self, step: Step) -> Targets:
        """The labels."""
        return Targets(label_rows(step))

    def risk(self, step: Step, targets: Targets, logits: Tensor) -> Terms:
        """R on the weak view of the labeled images."""
        return (Term("distance", self.sigma.risk(step.labeled(logits), step.labels).mean()),)

    def other_terms(self, step: Step, targets: Targets) -> Terms:
        """Images are drawn to their prototype, and to its radius."""
        far = -step.labeled(step.output.nearest).gather(1, step.labels[:, None])[:, 0]
        own = step.memory.get_parameter("radiuses")[step.labels]
        pulled = step.output.features.shape[-1] * far
        return (
            Term("prototype", pulled.mean(), self.prototype_weight),
            Term("radius", (far - own).square().mean(), self.radius_weight),
        )

    @torch.no_grad()
    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """(N,): the distance in radiuses, in the zone between by the two nearest prototypes.

        There the score is the nearer distance over the second, on the scale of the zone.
        """
        far = -output.nearest[:, :num_seen]
        near, places = far.topk(min(2, num_seen), largest=False)
        radiuses = memory.get_parameter("radiuses")[places[:, 0]].clamp_min(LEAST)
        ratio = near[:, 0] / radiuses
        doubt = near[:, 0] / near[:, -1].clamp_min(LEAST)
        between = self.accept_within + (self.reject_beyond - self.accept_within) * doubt
        inner = (ratio > self.accept_within) & (ratio < self.reject_beyond)
        return torch.where(inner, between, ratio)
