"""Prototype Fission around any method: the only place where the two meet (Eq. 8)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from protofission.core.errors import require
from protofission.core.records import (
    NO_CLASS,
    Output,
    Sizes,
    Step,
    Survey,
    Term,
    Terms,
    total,
)
from protofission.fission import (
    assignments,
    class_usage,
    consistency_loss,
    diversity_loss,
    kl_to_prior,
    local_diversity_loss,
)
from protofission.methods.base import Method, OwnTargets, Traits
from protofission.models.heads import HeadSpec


@dataclass(frozen=True)
class WithFission(Method[OwnTargets]):
    """The base's risk on the max-logits, on every slot (L_cst), and L_div. One decision for all.

    Traits are the base's, but for a head with V prototypes.

    Examples:
        >>> from protofission import METHODS, WithFission
        >>> method = WithFission(METHODS["fixmatch"], diversity_weight=0.3)
        >>> method.traits.head.kind
        'fission'
    """

    base: Method[OwnTargets]
    consistency_weight: float = 0.6
    """lambda_cst, the weight of L_cst, Eq. 7."""
    consistency_negatives: Literal["same_slot", "max_slot", "all"] = "same_slot"
    """The negatives of slot i of a row's class: slot i of the other classes, their nearest slot, or
    all their slots (log-sum-exp). A row without a class keeps to "same_slot"."""
    diversity_weight: float = 0.001
    """lambda_div, the weight of L_div, Eq. 6, and L_ldiv, Eq. 4."""
    diversity_reduce: Literal["batch_mean", "per_sample"] = "batch_mean"
    """KL of the mean assignment of a class, or the mean KL of its samples."""
    diversity_scope: Literal["batch", "ema"] = "batch"
    """The mean assignment over the batch, or blended with its running mean over the steps: then
    every class present counts, and the gradient is the batch's share, 1 - diversity_momentum."""
    diversity_momentum: float = 0.9
    """The share of the running mean, with diversity_scope = "ema"."""
    diversity_min_samples: int = 2
    """A class with fewer rows in the batch is left out of L_div: one sample cannot be even."""
    diversity_classes: Literal["all", "seen"] = "all"
    """Whether L_div divides novel classes too, or the seen ones only."""
    local_diversity_weight: float = 1.0
    """Weight of L_ldiv within the bracket of lambda_div; 0 is Eq. 8 to the letter."""
    local_diversity_reduction: Literal["mean", "sum"] = "mean"
    """L_ldiv as the mean over ordered pairs of slots, or their sum."""
    assign_temperature: float = 10.0
    """T of Eq. 5."""
    prior: tuple[float, ...] | None = None
    """The prior of Eq. 6, V positive numbers that sum to 1; uniform where none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.base, Method), f"base = {self.base!r} must be a method.")
        require(not isinstance(self.base, WithFission), "The base method already carries fission.")
        require(
            self.diversity_min_samples >= 1,
            f"diversity_min_samples = {self.diversity_min_samples} must be at least 1.",
        )
        require(
            0 <= self.diversity_momentum < 1,
            f"diversity_momentum = {self.diversity_momentum} must be at least 0 and below 1.",
        )
        require(
            self.diversity_scope == "batch" or self.diversity_reduce == "batch_mean",
            "A running mean (diversity_scope = ema) has no per_sample form: choose one of the two.",
        )
        require(
            self.prior is None
            or (min(self.prior, default=0) > 0 and abs(sum(self.prior) - 1) < 1e-6),
            f"prior = {self.prior} must be positive and sum to 1.",
        )

    @property
    def traits(self) -> Traits:
        """The base's, with V prototypes in the place of one."""
        traits = self.base.traits
        return replace(traits, head=replace(traits.head, kind="fission"))

    def check(self, head: HeadSpec) -> None:
        """A prior has a number for each prototype."""
        self.base.check(head)
        require(
            self.prior is None or len(self.prior) == head.slots,
            f"prior = {self.prior} must have one number for each of the {head.slots} prototypes.",
        )

    def memory(self, sizes: Sizes, generator: torch.Generator) -> nn.Module:
        """The base's memory, and the running mean of A(x) by class if used, which starts even."""
        memory = nn.Module()
        memory.base = self.base.memory(sizes, generator)
        if self.diversity_scope == "ema":
            even = torch.full((sizes.num_classes, sizes.num_slots), 1 / sizes.num_slots)
            memory.register_buffer("usage", even)
        return memory

    @torch.no_grad()
    def survey(self, memory: nn.Module, survey: Survey) -> None:
        """The base's."""
        self.base.survey(memory.get_submodule("base"), survey)

    @torch.no_grad()
    def decide(self, step: Step) -> OwnTargets:
        """The base's decision, from the max-logits."""
        return self.base.decide(_for_base(step))

    def risk(self, step: Step, targets: OwnTargets, logits: Tensor) -> Terms:
        """The base's risk."""
        return self.base.risk(_for_base(step), targets, logits)

    def slot_targets(self, targets: OwnTargets) -> OwnTargets:
        """The base's."""
        return self.base.slot_targets(targets)

    def other_terms(self, step: Step, targets: OwnTargets) -> Terms:
        """The base's."""
        return self.base.other_terms(_for_base(step), targets)

    def charge(self, step: Step, targets: OwnTargets) -> Terms:
        """Eq. 8, with L_ldiv in the bracket of lambda_div."""
        risks, consistency = self._risks(step, targets)
        with _graph_if(self.diversity_weight > 0):
            diversity = self.diversity(step, targets)
        parts, local_weight = step.output.prototypes.local, self.local_diversity_weight
        with _graph_if(self.diversity_weight * local_weight > 0):
            local = local_diversity_loss(parts, self.local_diversity_reduction)
        return (
            *risks,
            *self.other_terms(step, targets),
            Term("consistency", consistency, self.consistency_weight),
            Term("diversity", diversity, self.diversity_weight),
            Term("local_diversity", local, self.diversity_weight * local_weight),
        )

    def _risks(self, step: Step, targets: OwnTargets) -> tuple[Terms, Tensor]:
        """The terms of the max-logits, and L_cst, Eq. 7; in one pass where the targets are one."""
        slots = self.logits_by_slot(step.output, targets.classes)
        slot_targets = self.slot_targets(targets)
        if slot_targets is not targets or not self.consistency_weight:
            with _graph_if(self.consistency_weight > 0):
                consistency = consistency_loss(
                    lambda logits: total(self.risk(step, slot_targets, logits)), slots
                )
            return self.risk(step, targets, step.logits), consistency
        terms: Terms = ()  # their names and weights are those of every slot

        def values(logits: Tensor) -> Tensor:
            nonlocal terms
            terms = self.risk(step, targets, logits)
            return torch.stack([term.value for term in terms])

        both = torch.cat([step.logits[None], slots.movedim(-1, 0)])  # (1 + V, N, C)
        found = torch.vmap(values)(both)  # (1 + V, terms)
        of_max, of_slots = (
            tuple(t._replace(value=value) for t, value in zip(terms, own.unbind(), strict=True))
            for own in (found[0], found[1:].mean(0))
        )
        return of_max, total(of_slots)

    def logits_by_slot(self, output: Output, classes: Tensor) -> Tensor:
        """(N, C, V): the logits of each slot, with the negatives of `consistency_negatives`."""
        slots = output.slot_logits
        match self.consistency_negatives:
            case "same_slot":
                return slots
            case "max_slot":
                negatives = output.logits[..., None]
            case "all":
                negatives = slots.logsumexp(-1, keepdim=True)
        heads = torch.arange(slots.shape[1], device=classes.device)
        keep = (classes[:, None] == heads) | (classes == NO_CLASS)[:, None]  # (N, C)
        return torch.where(keep[..., None], slots, negatives)

    def diversity(self, step: Step, targets: OwnTargets) -> Tensor:
        """L_div, Eq. 6, over the rows that have a class."""
        classes, assigned, num_classes = self._diversity_inputs(step, targets)
        prior = None if self.prior is None else assigned.new_tensor(self.prior)
        if self.diversity_scope == "batch":
            return diversity_loss(
                assigned,
                classes,
                num_classes,
                prior,
                reduce=self.diversity_reduce,
                min_samples=self.diversity_min_samples,
            )
        usage, counts = class_usage(assigned, classes, num_classes)
        present = (counts > 0).to(usage)
        divergence = kl_to_prior(self._blend(step, usage), prior)
        return (divergence * present).sum() / present.sum().clamp_min(1)

    @torch.no_grad()
    def update(self, step: Step, targets: OwnTargets) -> None:
        """The base's, and the running mean of A(x) for the classes of the batch if it is used."""
        self.base.update(_for_base(step), targets)
        if self.diversity_scope == "batch":
            return
        classes, assigned, num_classes = self._diversity_inputs(step, targets)
        usage, counts = class_usage(assigned, classes, num_classes)
        remembered = step.memory.get_buffer("usage")
        remembered.copy_(torch.where(counts[:, None] > 0, self._blend(step, usage), remembered))

    def ood_score(self, output: Output, memory: nn.Module, num_seen: int) -> Tensor | None:
        """The base's."""
        return self.base.ood_score(output, memory.get_submodule("base"), num_seen)

    def _diversity_inputs(self, step: Step, targets: OwnTargets) -> tuple[Tensor, Tensor, int]:
        """The class of each row as L_div counts it, Eq. 5's assignment, and C."""
        classes = targets.classes
        if self.diversity_classes == "seen":
            classes = classes.masked_fill(classes >= step.num_seen, NO_CLASS)
        sims = step.output.similarities
        return classes, assignments(sims, classes, self.assign_temperature), sims.shape[1]

    def _blend(self, step: Step, usage: Tensor) -> Tensor:
        """The running mean, moved toward this batch's."""
        share = self.diversity_momentum
        return share * step.memory.get_buffer("usage") + (1 - share) * usage


def _graph_if(wanted: bool) -> AbstractContextManager[None]:
    """A term without weight is computed to be shown, and needs no gradient."""
    return torch.set_grad_enabled(wanted and torch.is_grad_enabled())


def _for_base(step: Step) -> Step:
    """The step as the base method knows it, with the base's own memory."""
    return replace(step, memory=step.memory.get_submodule("base"))


def base_of(method: Method[Any]) -> Method[Any]:
    """The method below fission, or the method itself."""
    return method.base if isinstance(method, WithFission) else method
