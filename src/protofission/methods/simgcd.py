"""SimGCD: self-distillation between two views, with an entropy that keeps all heads in use."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from protofission.core.errors import require
from protofission.core.records import Step
from protofission.methods.parts.ramps import linear_ramp
from protofission.methods.parts.self_distillation import SelfDistillation


@dataclass(frozen=True)
class SimGCD(SelfDistillation):
    """Self-distillation across views, an even use of the heads, labels, and two contrasts."""

    start_temperature: float = 0.07
    """The teacher's temperature, which divides its cosines, at the start."""
    teacher_temperature: float = 0.04
    """The teacher's temperature after the warm-up."""
    teacher_warmup: float = 0.15
    """Share of training in which it goes from the first temperature to the second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share = self.teacher_warmup
        require(0 <= share <= 1, f"teacher_warmup = {share} must be between 0 and 1.")

    def teach(self, step: Step) -> Tensor:
        """(N, C): the sharpened probabilities of each row."""
        return (step.output.nearest / self.temperature_at(step.progress)).softmax(-1)

    def temperature_at(self, progress: float) -> float:
        """The teacher's temperature: a line over the warm-up, then constant."""
        done = linear_ramp(progress, self.teacher_warmup)
        return self.start_temperature + done * (self.teacher_temperature - self.start_temperature)
