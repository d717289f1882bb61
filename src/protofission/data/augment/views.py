"""What makes views of images, or looks them up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from protofission.core.records import WHOLE, Share, ViewName


class Wanted(NamedTuple):
    """A view of some images."""

    name: ViewName
    images: Tensor
    nth: int = 0
    """How many views of this name the images already have in this step."""


class Augmentations(Protocol):
    """The views of a data set, by the names that methods ask for."""

    def plain(self, images: Tensor) -> Tensor:
        """Images as a backbone takes them, without augmentation."""

    def view(
        self,
        name: ViewName,
        images: Tensor,
        generator: torch.Generator,
        share: Share = WHOLE,
        nth: int = 0,
    ) -> Tensor:
        """One view of each image of a share of the batch, as a backbone takes it.

        Args:
            nth: how many views of this name the images already have in this step.
        """

    def views(
        self, wanted: Sequence[Wanted], generator: torch.Generator, share: Share = WHOLE
    ) -> Tensor:
        """All views of a step as one tensor, in the order in which they are wanted."""
        parts = [self.view(w.name, w.images, generator, share, w.nth) for w in wanted]
        return torch.cat(parts).float()
