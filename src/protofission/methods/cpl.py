"""CPL, convolutional prototype learning: classes by distance from free prototypes; labels only.

After Yang et al., 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import Output, Step, Targets, Term, Terms
from protofission.methods.base import Method, Traits, label_rows
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class Cpl(Method[Targets]):
    """Cross entropy by distances, and each image drawn to the nearest prototype of its class."""

    prototype_weight: float = 0.001
    """Weight of the prototype loss, the squared distance from the nearest own prototype."""
    reject_by: Literal["probability", "distance"] = "probability"
    """The paper's two rejection rules: no class is probable, or no prototype is near."""

    traits = Traits(head=HeadSpec("distance"))  # sim = -|f - p|^2 / D

    def check(self, head: HeadSpec) -> None:
        """Refuse any other head: the losses are distances."""
        super().check(head)
        require(
            head.kind == "distance",
            f"head.kind = {head.kind} does not fit: cpl measures distances from free prototypes, "
            "so leave it at distance.",
        )

    def decide(self, step: Step) -> Targets:
        """The labels."""
        return Targets(label_rows(step))

    def risk(self, step: Step, targets: Targets, logits: Tensor) -> Terms:
        """R on the weak view of the labeled images."""
        return (Term("distance", self.sigma.risk(step.labeled(logits), step.labels).mean()),)

    def other_terms(self, step: Step, targets: Targets) -> Terms:
        """The prototype loss: the mean of |f - p|^2, p the nearest prototype of the own class."""
        own = step.labeled(step.output.nearest).gather(1, step.labels[:, None])
        gaps = -step.output.features.shape[-1] * own
        return (Term("prototype", gaps.mean(), self.prototype_weight),)

    def charge(self, step: Step, targets: Targets) -> Terms:
        """R of the classes as `class_logits` has them, and the prototype loss."""
        logits = class_logits(step.output)
        return (*self.risk(step, targets, logits), *self.other_terms(step, targets))

    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor:
        """(N,): 1 - the largest probability, or the distance from the nearest prototype."""
        if self.reject_by == "distance":
            return -output.nearest[:, :num_seen].amax(-1)
        return 1 - self.sigma.probs(class_logits(output))[:, :num_seen].amax(-1)


def class_logits(output: Output) -> Tensor:
    """(N, C): logits by which a class is as probable as all its prototypes together."""
    return output.slot_logits.logsumexp(-1)
