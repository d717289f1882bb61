"""The views of natural images of any size with 1 or 3 channels: weak, strong and SimCLR's.

Pixels are bytes until a view is finished, as in PIL; a view is floats in [0, 1]. Random numbers are
drawn on the CPU, so a generator gives the same views on every device.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from protofission.core.errors import require
from protofission.core.records import WHOLE, Share, ViewName
from protofission.data.augment import geometry
from protofission.data.augment.operations import ByteImages, Draws
from protofission.data.augment.randaugment import FIXMATCH, USB, RandAugment
from protofission.data.augment.simclr_view import SimCLRView
from protofission.data.augment.views import Augmentations
from protofission.data.image_sets import floats

CHUNK_BYTES = 2**22
"""Bytes of images that are augmented at once, which bounds the memory in between."""


@dataclass(frozen=True)
class ShiftDraws(Draws):
    """The offsets and flips of a batch, as `geometry.shift` takes them."""

    down: Tensor
    right: Tensor
    flips: Tensor


@dataclass(frozen=True)
class Weak:
    """A random flip from left to right, then a crop at a random offset."""

    flip: float = 0.5
    """The chance of a flip."""
    padding: float = 0.125
    """The largest shift, as a share of the side."""
    border: geometry.Border = "reflect"
    """The pixels beyond the edge: FixMatch mirrors the image, ORCA takes zeros."""

    def __post_init__(self) -> None:
        require(0 <= self.flip <= 1, f"flip = {self.flip} must be between 0 and 1.")
        require(0 <= self.padding < 1, f"padding = {self.padding} must be at least 0 and below 1.")

    def draw(self, shape: torch.Size, generator: torch.Generator) -> ShiftDraws:
        """Draw the parameters of (n, channels, height, width) images."""
        n, _, *sides = shape
        flips = torch.rand(n, generator=generator) < self.flip
        most = [int(side * self.padding) for side in sides]
        down, right = (torch.randint(-m, m + 1, (n,), generator=generator) for m in most)
        return ShiftDraws(down, right, flips)

    def apply(self, images: ByteImages, draws: ShiftDraws) -> ByteImages:
        """Flip and shift images as drawn."""
        return geometry.shift(images, draws.down, draws.right, draws.flips, self.border)


class Augmenter(Protocol):
    """A step of a view: it draws parameters for a batch, and applies them to any part of it."""

    def draw(self, shape: torch.Size, generator: torch.Generator) -> Draws:
        """Draw the parameters of (n, channels, height, width) images."""

    def apply(self, images: ByteImages, draws: Any) -> ByteImages:
        """Apply to images the parameters that were drawn for them."""


@dataclass(frozen=True)
class NaturalViews(Augmentations):
    """The views of natural images, by the names that methods ask for."""

    weak: Weak = field(default_factory=Weak)
    strong: RandAugment = FIXMATCH
    """Strong view; it is applied to a weak view that is drawn for it."""
    simclr: SimCLRView = field(default_factory=SimCLRView)

    def plain(self, images: Tensor) -> Tensor:
        """The images themselves, as floats in [0, 1]."""
        return floats(images)

    def view(
        self,
        name: ViewName,
        images: Tensor,
        generator: torch.Generator,
        share: Share = WHOLE,
        nth: int = 0,
    ) -> Tensor:
        """One view of each image, float32 in [0, 1].

        Args:
            name: the view's; "plain" is the image itself.
            images: (n, channels, height, width), bytes or floats in [0, 1]; for every view but the
                plain one, floats are rounded to bytes first.
            generator: on the CPU.
            share: the part of the batch that the images are; parameters are drawn for all of it.
            nth: ignored, since every view is drawn anew.
        """
        require(
            images.ndim == 4 and images.shape[1] in (1, 3),
            f"Images of the shape {tuple(images.shape)} cannot be augmented: "
            "(n, 1 or 3 channels, height, width) is wanted.",
        )
        if name == "plain":
            return self.plain(images)
        batch = torch.Size((share.total(len(images)), *images.shape[1:]))
        drawn = [
            (step, step.draw(batch, generator).rows(share.of(batch[0])))
            for step in self._steps(name)
        ]
        if not len(images):
            return images.float()
        size = max(1, CHUNK_BYTES // max(1, images[:1].numel()))
        parts = []
        for start in range(0, len(images), size):
            rows = slice(start, start + size)
            part = _as_bytes(images[rows])
            for step, own in drawn:
                part = step.apply(part, own.rows(rows))
            parts.append(part.float().div_(255))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _steps(self, name: ViewName) -> tuple[Augmenter, ...]:
        steps: dict[ViewName, tuple[Augmenter, ...]] = {
            "weak": (self.weak,),
            "strong": (self.weak, self.strong),
            "simclr": (self.simclr,),
        }
        return steps[name]


def _as_bytes(images: Tensor) -> ByteImages:
    if images.dtype == torch.uint8:
        return images
    return (images.float() * 255 + 0.5).clamp(0, 255).short().byte()


NATURAL = NaturalViews()
"""FixMatch's weak and strong views, and SimCLR's for CIFAR."""

NATURAL_24 = replace(NATURAL, simclr=SimCLRView(size=24))
"""NATURAL with a SimCLR view of 24 x 24 pixels: pretraining for 32 x 32 costs a third less."""

NATURAL_ORCA = replace(NATURAL, weak=Weak(border="zero"))
"""NATURAL with ORCA's weak view."""

NATURAL_USB = replace(NATURAL, strong=USB)
"""NATURAL with the strong view of USB, TorchSSL and IOMatch."""
