"""Heads, one file each: (N, D) features in, one `Output` out.

A new head takes one new file here and one line in `HEADS` (and its name in `HeadKind`, for the type
checker; a test compares the two):

1. The file has the module, whose `forward` gives an `Output`, and a `HeadEntry` with `build`, from
   a `HeadSpec`, and `sizes`.
2. If prototypes may start from data, the entry has `can_start = True` and `start`.
3. If bundles may hold it, the entry has `can_bundle = True`, `options` and `shapes`.
4. If it has several prototypes a class, other memory or cosines, the entry has `slots`, `extent` or
   `has_cosines`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from protofission.core.checks import check_sizes
from protofission.core.errors import InputError, check_choices, require
from protofission.core.memory_limits import Extent
from protofission.fission import Similarity, check_novel_prototypes
from protofission.models.heads.averaged import AveragedEntry
from protofission.models.heads.cosine import CosineEntry
from protofission.models.heads.distance import DistanceEntry
from protofission.models.heads.entry import HeadEntry, HeadSizes
from protofission.models.heads.fission import FissionEntry
from protofission.models.heads.linear import LinearEntry
from protofission.models.heads.projection import ProjectionEntry
from protofission.models.heads.reciprocal import ReciprocalEntry
from protofission.models.heads.student import StudentEntry

__all__ = [
    "HEADS",
    "HeadEntry",
    "HeadKind",
    "HeadSizes",
    "HeadSpec",
    "head_spec_of",
    "kind_of",
    "sizes_of",
    "starting_kinds",
]

HeadKind = Literal[
    "linear",
    "cosine",
    "fission",
    "distance",
    "reciprocal",
    "reciprocal-dot",
    "student",
    "averaged",
    "projection",
]

HEADS: dict[HeadKind, HeadEntry[Any]] = {
    "linear": LinearEntry(),
    "cosine": CosineEntry(),
    "fission": FissionEntry(),
    "distance": DistanceEntry(),
    "reciprocal": ReciprocalEntry(),
    "reciprocal-dot": ReciprocalEntry(dot=True),
    "student": StudentEntry(),
    "averaged": AveragedEntry(),
    "projection": ProjectionEntry(),
}

LARGEST_DELTA = 100
"""lambda of Eq. 2 is 0 or 1 to float32 from 10 on."""


@dataclass(frozen=True)
class HeadSpec:
    """A head by its name and options."""

    kind: HeadKind = "fission"
    """The kind of head; each method accepts certain kinds."""
    prototypes: int = 5
    """V, the prototypes of a class; fission and distance only."""
    novel_prototypes: int | None = None
    """V of the novel classes, fission only; by default that of the seen ones."""
    similarity: Similarity = "cosine"
    """Similarity of features and prototypes, fission only."""
    temperature: float = 10.0
    """Temperature T of the logits; a linear or student head has none."""
    offset: float = 0.0
    """Offset b of Eq. 10; a linear or student head has none. Softmax ignores it."""
    delta: float = 0.0
    """Start of delta (Eq. 2), fission only."""
    init: Literal["random", "data"] = "random"
    """Start of the prototypes: random directions (the paper), or from the data (ours); not for a
    linear head, a projection or reciprocal points."""
    norm: bool = False
    """Batch norm between the layers of a projection."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_sizes(prototypes=self.prototypes)
        require(self.temperature > 0, f"temperature = {self.temperature} must be above 0.")
        require(
            abs(self.delta) <= LARGEST_DELTA,
            f"delta = {self.delta} must lie between {-LARGEST_DELTA} and {LARGEST_DELTA}.",
        )

    @property
    def entry(self) -> HeadEntry[Any]:
        """The entry of its kind."""
        return HEADS[self.kind]

    def check(self) -> None:
        """Refuse options that do not fit each other."""
        check_novel_prototypes(self.novel_prototypes, self.prototypes)
        if self.init == "data":
            require(
                self.can_start_from_data,
                f"init = data is for {', '.join(starting_kinds())} heads, not for {self.kind}: "
                "set head.init=random.",
            )
            self.entry.check_start(self)

    @property
    def has_cosines(self) -> bool:
        """Whether its similarities are cosines with prototypes that learn."""
        return self.entry.has_cosines(self)

    @property
    def can_start_from_data(self) -> bool:
        """Whether it has prototypes that may start from data."""
        return self.entry.can_start

    @property
    def slots(self) -> int:
        """V as the head has it: 1 for all but fission and distance."""
        return self.entry.slots(self)

    def extent(self, num_features: int, num_classes: int) -> Extent:
        """The count of numbers that the head will hold, at least."""
        return self.entry.extent(self, num_features, num_classes)

    def build(
        self, num_features: int, num_classes: int, num_seen: int, generator: torch.Generator
    ) -> nn.Module:
        """The head with its random start."""
        head: nn.Module = self.entry.build(self, num_features, num_classes, num_seen, generator)
        return head


def starting_kinds() -> list[HeadKind]:
    """The kinds of heads whose prototypes may start from data."""
    return [kind for kind, entry in HEADS.items() if entry.can_start]


def kind_of(head: nn.Module) -> HeadKind:
    """The kind of a head.

    Raises:
        InputError: if it is of none.
    """
    for kind, entry in HEADS.items():
        if entry.fits(head):
            return kind
    raise InputError(
        f"{type(head).__name__} is not a head that HEADS knows: give one of {', '.join(HEADS)}."
    )


def sizes_of(head: nn.Module) -> HeadSizes:
    """C, V and D of a head."""
    return HEADS[kind_of(head)].sizes(head)


def head_spec_of(head: nn.Module) -> HeadSpec:
    """The spec that builds such a head anew, with a random start.

    Raises:
        InputError: if it is not a head for bundles.
    """
    kind = kind_of(head)
    require(
        HEADS[kind].can_bundle,
        f"A {type(head).__name__} is not for bundles: give another head.",
    )
    return HeadSpec(kind, **HEADS[kind].options(head))
