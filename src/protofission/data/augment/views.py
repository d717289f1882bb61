"""The interface of a data set's views: drawn from images, or looked up in a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from protofission.core.devices import send
from protofission.core.records import WHOLE, Share, ViewName


class ViewRequest(NamedTuple):
    """A view that a step needs of some images."""

    name: ViewName
    images: Tensor
    nth: int = 0
    """The number of views of this name that the images already have in this step."""


def send_images(images: Tensor, device: torch.device | None) -> Tensor:
    """Send images to a device; the row numbers of a store stay on the CPU, where it is read."""
    return images if images.ndim == 1 else send(images, device)


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
            generator: on the CPU; the same state gives the same views.
            share: the part of the batch that `images` are; random numbers are drawn for all of it.
            nth: the number of views of this name that the images already have in this step.
        """

    def views(
        self, requests: Sequence[ViewRequest], generator: torch.Generator, share: Share = WHOLE
    ) -> Tensor:
        """All views of a step as one float32 tensor, in the order of the requests."""
        parts = [self.view(r.name, r.images, generator, share, r.nth) for r in requests]
        return torch.cat(parts).float()
