"""Base class of the entries in HEADS: build, measure, start and save one kind of head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import nn

from protofission.core.memory_limits import Extent
from protofission.models.class_clusters import FeatureSample

if TYPE_CHECKING:  # it looks its kind up among the entries
    from protofission.models.heads import HeadSpec

Head = TypeVar("Head", bound=nn.Module)


class HeadSizes(NamedTuple):
    """C, V and D of a head."""

    classes: int
    slots: int
    features: int


class HeadEntry(ABC, Generic[Head]):
    """Everything that the package asks about one kind of head; an entry has no state."""

    module: type[Head]
    """The class of its heads, which give an `Output` for (N, D) features."""
    can_start: ClassVar[bool] = False
    """Whether its prototypes may start from data; then it has `start`."""
    can_bundle: ClassVar[bool] = False
    """Whether a bundle may hold it; then it has `options` and `shapes`."""

    def fits(self, head: nn.Module) -> bool:
        """Whether the head is one of this kind."""
        return isinstance(head, self.module)

    @abstractmethod
    def build(
        self,
        spec: HeadSpec,
        num_features: int,
        num_classes: int,
        num_seen: int,
        generator: torch.Generator,
    ) -> Head:
        """The head with its random start."""

    @abstractmethod
    def sizes(self, head: Head) -> HeadSizes:
        """C, V and D of a head."""

    def slots(self, spec: HeadSpec) -> int:
        """V that the head will have."""
        return 1

    def extent(self, spec: HeadSpec, num_features: int, num_classes: int) -> Extent:
        """The count of numbers that the head will hold, at least: V prototypes of each class."""
        slots = num_classes * self.slots(spec)
        return Extent(slots * num_features, slots, num_classes)

    def has_cosines(self, spec: HeadSpec) -> bool:
        """Whether its similarities are cosines with prototypes that learn."""
        return False

    def check_start(self, spec: HeadSpec) -> None:
        """Refuse options with which prototypes cannot start from data."""

    def start(self, head: Head, sample: FeatureSample, generator: torch.Generator) -> None:
        """Set the prototypes by features, in place."""
        raise NotImplementedError

    def options(self, head: Head) -> dict[str, Any]:
        """Options of a spec, but for its kind, that builds such a head anew."""
        raise NotImplementedError

    def shapes(
        self, spec: HeadSpec, num_features: int, num_classes: int
    ) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors in its state, by name, without making room for them."""
        raise NotImplementedError
