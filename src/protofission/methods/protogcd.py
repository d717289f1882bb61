"""ProtoGCD: self-distillation in which the surest images teach hard classes, and prototypes part.

After Ma et al., 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import Sizes, Step, Term, Terms
from protofission.methods.parts.ramps import linear_ramp
from protofission.methods.parts.self_distillation import SelfDistillation, TeacherTargets


@dataclass(frozen=True)
class ProtoGCD(SelfDistillation):
    """Hard classes by the surest images, soft ones by the others, and prototypes kept apart."""

    teacher_temperature: float = 0.05
    """The temperature of a soft teacher, which divides its cosines."""
    start_share: float = 0.2
    """The share of a view's images that teach a hard class, at the start."""
    end_share: float = 1.0
    """The share after the ramp."""
    ramp: float = 0.5
    """Share of training in which it goes from the first to the second."""
    separation_weight: float = 1.0
    """Weight of the separation of prototypes, within the bracket of 1 - s."""
    separation_temperature: float = 0.1
    """Temperature of the cosines of prototypes of different classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("start_share", "end_share", "ramp"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} = {value} must be between 0 and 1.")

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The projection, for two classes or more."""
        require(
            sizes.num_classes > 1,
            "protogcd parts the prototypes of classes, and there is only one class: name more.",
        )
        return super().memory(sizes, generator)

    def share_at(self, progress: float) -> float:
        """The share of a view's images that teach a hard class: a line over the ramp."""
        done = linear_ramp(progress, self.ramp)
        return self.start_share + done * (self.end_share - self.start_share)

    def teach(self, step: Step) -> Tensor:
        """(N, C): a hard class by the surest rows of each view, sharpened probabilities by others.

        The surest have the largest ratio of their first to their second probability, which is the
        largest gap of their first to their second cosine.
        """
        cosines = step.output.nearest
        first, second = cosines.topk(2, dim=-1).values.unbind(-1)
        share, sure = self.share_at(step.progress), torch.zeros_like(first, dtype=torch.bool)
        for view in range(step.layout.labeled_views):
            gaps = step.both(first - second, view)
            surest = gaps.topk(int(share * len(gaps))).indices
            step.both(sure, view)[surest] = True  # a view of the same memory
        hard = F.one_hot(cosines.argmax(-1), cosines.shape[-1]).to(cosines)
        soft = (cosines / self.teacher_temperature).softmax(-1)
        return torch.where(sure[:, None], hard, soft)

    def other_terms(self, step: Step, targets: TeacherTargets) -> Terms:
        """The contrasts, and the separation of the prototypes."""
        apart = separation(step.output.prototypes.combined, self.separation_temperature)
        weight = (1 - self.supervised_weight) * self.separation_weight
        return (*super().other_terms(step, targets), Term("separation", apart, weight))


def separation(prototypes: Tensor, temperature: float) -> Tensor:
    """The mean over prototypes of log mean exp(cos / temperature), over those of other classes.

    Args:
        prototypes: (C, V, D), with at least two classes.
    """
    classes, slots, _ = prototypes.shape
    units = F.normalize(prototypes, dim=-1).flatten(0, 1)
    owners = torch.arange(classes, device=units.device).repeat_interleave(slots)
    same = owners[:, None] == owners
    logits = (units @ units.T / temperature).masked_fill(same, -torch.inf)
    others = (~same).sum(-1).to(logits)
    return (logits.logsumexp(-1) - others.log()).mean()
