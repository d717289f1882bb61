"""SimCLR's view: a resized crop and a distortion of colours, drawn first, then carried out.

The view of an image is a function of the generator, of its place in the batch and of the batch's
size, and of no other image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from protofission.core.errors import require
from protofission.data.augment import color as colours
from protofission.data.augment import geometry
from protofission.data.augment.color import IDENTITY, Drawn, Images, Operation, apply_each


@dataclass(frozen=True)
class Distortion(Drawn):
    """What SimCLR does to each image."""

    boxes: Tensor
    """(n, 4): top, left, height and width of the crop."""
    flips: Tensor
    order: Tensor
    """(n, 4): places in JITTER, in the order of their use; all 0 where an image is left alone."""
    factors: Tensor
    """(n, 5): the parameter of each operation of JITTER."""
    grey: Tensor
    sigmas: Tensor
    """(n,): of the blur; 0 for none."""


JITTER = (
    IDENTITY,
    Operation(colours.look_up, colours.brightened),
    Operation(colours.look_up, colours.contrasted),
    Operation(colours.saturate, colours.given),
    Operation(colours.turn_hue, colours.given),
)
GREY = (IDENTITY, Operation(colours.grey, colours.given))
BLUR = (IDENTITY, Operation(colours.blur, colours.given))


@dataclass(frozen=True)
class SimCLR:
    """A random resized crop, a flip, colour jitter, grey, and blur where the image is large."""

    smallest: float = 0.08
    """The least share of the image's area that a crop has; the largest is 1."""
    flip: float = 0.5
    """The chance of a flip."""
    strength: float = 0.5
    """Of the jitter: brightness, contrast, saturation by 0.8 of it, hue by 0.2; ImageNet: 1."""
    jitter: float = 0.8
    """The chance of colour jitter."""
    grey: float = 0.2
    """The chance of a grey image."""
    blur: float = 0.5
    """The chance of a blur, with sigma from 0.1 to 2."""
    blur_from: int = 64
    """Images with a shorter side than this are not blurred: at 32 px SimCLR does without."""
    size: int | None = None
    """The side of the view; the image's own where none is given. Fewer pixels train faster."""

    def __post_init__(self) -> None:
        require(0 < self.smallest <= 1, f"smallest = {self.smallest} must be above 0, at most 1.")
        require(0 <= self.strength <= 2.5, f"strength = {self.strength} must be from 0 to 2.5.")
        require(self.size is None or self.size >= 1, f"size = {self.size} must be at least 1.")
        for name in ("flip", "jitter", "grey", "blur"):
            chance = getattr(self, name)
            require(0 <= chance <= 1, f"{name} = {chance} must be between 0 and 1.")

    def draw(self, shape: torch.Size, generator: torch.Generator) -> Distortion:
        """A distortion for each of (n, channels, height, width) images."""
        n, _, height, width = shape
        boxes = crop_boxes(n, height, width, self.smallest, generator)
        flips, jittered, grey, blurred = (
            torch.rand(n, generator=generator) < chance
            for chance in (self.flip, self.jitter, self.grey, self.blur)
        )
        order = torch.rand(n, 4, generator=generator).argsort(1) + 1
        spread = torch.rand(n, 5, generator=generator, dtype=torch.float64) * 2 - 1
        factors = (1 + spread * 0.8 * self.strength).clamp_min(0)
        factors[:, 4] = spread[:, 4] * 0.2 * self.strength
        sigmas = 0.1 + 1.9 * torch.rand(n, generator=generator, dtype=torch.float64)
        large = min(height, width) >= self.blur_from
        return Distortion(
            boxes, flips, order * jittered[:, None], factors, grey, sigmas * blurred * large
        )

    def apply(self, images: Images, drawn: Distortion) -> Images:
        """Distort images as drawn."""
        side = None if self.size is None else (self.size, self.size)
        images = geometry.resized_crop(images, drawn.boxes, drawn.flips, side)
        for chosen in drawn.order.T:
            factors = drawn.factors.gather(1, chosen[:, None])[:, 0]
            images = apply_each(images, chosen, factors, JITTER)
        images = apply_each(images, drawn.grey.long(), drawn.sigmas, GREY)
        return apply_each(images, (drawn.sigmas > 0).long(), drawn.sigmas, BLUR)


def crop_boxes(
    n: int, height: int, width: int, smallest: float, generator: torch.Generator, tries: int = 10
) -> Tensor:
    """(n, 4): random boxes, as top, left, height, width, by share of the area and aspect ratio.

    The share is even from `smallest` to 1, the ratio's logarithm between those of 3/4 and 4/3. The
    first of some tries that fits is taken; where none does, the largest central box in that range.
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
