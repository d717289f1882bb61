"""SimCLR's view: a random resized crop and color distortion.

All parameters are drawn first, then applied. The view of an image is a function of the generator,
of the image's place in the batch and of the batch's size, and of no other image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from protofission.core.errors import require
from protofission.data.augment import color, geometry
from protofission.data.augment.operations import (
    IDENTITY,
    ByteImages,
    Draws,
    Operation,
    apply_each,
    same_values,
)


@dataclass(frozen=True)
class SimCLRDraws(Draws):
    """The crops, flips and color distortions of a batch."""

    boxes: Tensor
    """(n, 4): top, left, height and width of the crop."""
    flips: Tensor
    """(n,), bool."""
    order: Tensor
    """(n, 4): places in JITTER, in the order of use; all 0 for an image without jitter."""
    factors: Tensor
    """(n, 5): the parameter of each operation of JITTER."""
    gray: Tensor
    """(n,), bool."""
    sigmas: Tensor
    """(n,): sigma of the blur; 0 for none."""


JITTER = (
    IDENTITY,
    Operation(color.look_up, color.brightness_tables),
    Operation(color.look_up, color.contrast_tables),
    Operation(color.saturate, same_values),
    Operation(color.turn_hue, same_values),
)
GRAY = (IDENTITY, Operation(color.to_gray, same_values))
BLUR = (IDENTITY, Operation(color.blur, same_values))


@dataclass(frozen=True, repr=False)
class SimCLRView:
    """A random resized crop, a flip, color jitter, gray, and blur where the image is large."""

    smallest: float = 0.08
    """The smallest share of the image's area that a crop covers; the largest is 1."""
    flip: float = 0.5
    """The chance of a flip."""
    strength: float = 0.5
    """Jitter: brightness, contrast, saturation vary by 0.8 of it, hue by 0.2; ImageNet: 1."""
    jitter: float = 0.8
    """The chance of color jitter."""
    gray: float = 0.2
    """The chance of a gray image."""
    blur: float = 0.5
    """The chance of a blur, with sigma from 0.1 to 2."""
    blur_from: int = 64
    """Images with a side below this are not blurred: SimCLR does not blur at 32 px."""
    size: int | None = None
    """The side of the view in pixels; by default the image's own. Fewer pixels train faster."""

    def __post_init__(self) -> None:
        require(0 < self.smallest <= 1, f"smallest = {self.smallest} must be above 0, at most 1.")
        require(0 <= self.strength <= 2.5, f"strength = {self.strength} must be from 0 to 2.5.")
        require(self.size is None or self.size >= 1, f"size = {self.size} must be at least 1.")
        for name in ("flip", "jitter", "gray", "blur"):
            chance = getattr(self, name)
            require(0 <= chance <= 1, f"{name} = {chance} must be between 0 and 1.")

    def __repr__(self) -> str:
        """In the words of the first stores: their fingerprints are made of this text."""
        return (
            f"SimCLR(smallest={self.smallest}, flip={self.flip}, strength={self.strength}, "
            f"jitter={self.jitter}, grey={self.gray}, blur={self.blur}, "
            f"blur_from={self.blur_from}, size={self.size})"
        )

    def draw(self, shape: torch.Size, generator: torch.Generator) -> SimCLRDraws:
        """Draw the parameters of (n, channels, height, width) images."""
        n, _, height, width = shape
        boxes = crop_boxes(n, height, width, self.smallest, generator)
        flips, jittered, gray, blurred = (
            torch.rand(n, generator=generator) < chance
            for chance in (self.flip, self.jitter, self.gray, self.blur)
        )
        order = torch.rand(n, 4, generator=generator).argsort(1) + 1
        spread = torch.rand(n, 5, generator=generator, dtype=torch.float64) * 2 - 1
        factors = (1 + spread * 0.8 * self.strength).clamp_min(0)
        factors[:, 4] = spread[:, 4] * 0.2 * self.strength
        sigmas = 0.1 + 1.9 * torch.rand(n, generator=generator, dtype=torch.float64)
        large = min(height, width) >= self.blur_from
        return SimCLRDraws(
            boxes, flips, order * jittered[:, None], factors, gray, sigmas * blurred * large
        )

    def apply(self, images: ByteImages, draws: SimCLRDraws) -> ByteImages:
        """Crop and distort images as drawn."""
        side = None if self.size is None else (self.size, self.size)
        images = geometry.resized_crop(images, draws.boxes, draws.flips, side)
        for chosen in draws.order.T:
            factors = draws.factors.gather(1, chosen[:, None])[:, 0]
            images = apply_each(images, chosen, factors, JITTER)
        images = apply_each(images, draws.gray.long(), draws.sigmas, GRAY)
        return apply_each(images, (draws.sigmas > 0).long(), draws.sigmas, BLUR)


def crop_boxes(
    n: int, height: int, width: int, smallest: float, generator: torch.Generator, tries: int = 10
) -> Tensor:
    """(n, 4): random boxes (top, left, height, width) as in torchvision's RandomResizedCrop.

    The share of the area is uniform from `smallest` to 1, the aspect ratio log-uniform from 3/4 to
    4/3. The first of `tries` boxes that fits is taken; if none does, the largest central box.
    """
    draws = torch.rand(4, n, tries, generator=generator, dtype=torch.float64)
    areas = height * width * (smallest + (1 - smallest) * draws[0])
    ratios = ((2 * draws[1] - 1) * math.log(4 / 3)).exp()
    wide, tall = (areas * ratios).sqrt().round(), (areas / ratios).sqrt().round()
    fits = (wide >= 1) & (wide <= width) & (tall >= 1) & (tall <= height)
    top, left = (draws[2] * (height - tall + 1)).floor(), (draws[3] * (width - wide + 1)).floor()
    boxes = torch.stack([top, left, tall, wide], 2).long()
    first = fits.byte().argmax(1)
    chosen = boxes[torch.arange(n), first]
    tallest, widest = min(height, round(width * 4 / 3)), min(width, round(height * 4 / 3))
    central = [(height - tallest) // 2, (width - widest) // 2, tallest, widest]
    return torch.where(fits.any(1)[:, None], chosen, torch.tensor(central))
