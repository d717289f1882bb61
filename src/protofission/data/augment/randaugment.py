"""RandAugment with the settings of FixMatch's code and of USB's: `FIXMATCH` and `USB`.

All parameters are drawn first, then applied. The view of an image is a function of the generator,
of the image's place in the batch and of the batch's size, and of no other image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

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

NAMES = (
    "Identity",
    "AutoContrast",
    "Brightness",
    "Contrast",
    "Equalize",
    "Posterize",
    "Solarize",
    "Color",
    "Sharpness",
    "Rotate",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
)
"""The operations, by their names in FixMatch; Identity stands for one that is not applied."""

TOP_LEVEL = 10
"""The strongest level; strengths are in proportion to it."""


@dataclass(frozen=True)
class RandAugmentDraws(Draws):
    """The operations and cutouts of a batch."""

    operations: Tensor
    """(n, operations): places in NAMES."""
    levels: Tensor
    """(n, operations), float64: strengths up to 10; negative ones reverse geometric operations."""
    boxes: Tensor
    """(n, 4): the cutout's top, left, height and width."""


@dataclass(frozen=True)
class RandAugment:
    """A few random operations out of 14, then a cutout."""

    operations: int = 2
    """The number of operations drawn for an image, with replacement."""
    chance: float = 0.5
    """The chance that a drawn operation is applied."""
    levels: int | None = 9
    """Strengths are whole numbers from 1 to `levels`, of 10; if None, any number from 0 to 10."""
    fill: int = 0
    """The value of pixels that a geometric operation finds outside the image."""
    cutout: float = 0.5
    """The side of the cutout, as a share of the image's shorter side."""
    cutout_varies: bool = False
    """Whether the cutout's side is drawn evenly from 0 to `cutout`."""
    cutout_fill: tuple[int, ...] = (127,)
    """The cutout's color: one value, or one per channel."""

    def __post_init__(self) -> None:
        require(self.operations >= 0, f"operations = {self.operations} must not be negative.")
        require(0 <= self.chance <= 1, f"chance = {self.chance} must be between 0 and 1.")
        require(
            self.levels is None or 1 <= self.levels <= TOP_LEVEL,
            f"levels = {self.levels} must be between 1 and {TOP_LEVEL}, or none.",
        )
        require(0 <= self.cutout <= 1, f"cutout = {self.cutout} must be between 0 and 1.")
        for value in (self.fill, *self.cutout_fill):
            require(0 <= value <= 255, f"A fill is {value}: it must be between 0 and 255.")

    def draw(self, shape: torch.Size, generator: torch.Generator) -> RandAugmentDraws:
        """Draw the parameters of (n, channels, height, width) images."""
        n, _, height, width = shape
        each = (n, self.operations)
        operations = torch.randint(len(NAMES), each, generator=generator)
        applied = torch.rand(each, generator=generator) < self.chance
        if self.levels is None:
            levels = torch.rand(each, generator=generator, dtype=torch.float64) * TOP_LEVEL
        else:
            levels = torch.randint(1, self.levels + 1, each, generator=generator).double()
        signs = torch.randint(2, each, generator=generator) * 2 - 1
        share = torch.rand(n, generator=generator, dtype=torch.float64)
        share = self.cutout * (share if self.cutout_varies else torch.ones_like(share))
        sides = (share * min(height, width)).long()
        centers = [torch.randint(size, (n,), generator=generator) for size in (height, width)]
        corners = [center - sides // 2 for center in centers]
        boxes = torch.stack([*corners, sides, sides], 1)
        return RandAugmentDraws(torch.where(applied, operations, 0), levels * signs, boxes)

    def apply(self, images: ByteImages, draws: RandAugmentDraws) -> ByteImages:
        """Apply the drawn operations, then the cutouts."""
        require(
            len(self.cutout_fill) in (1, images.shape[1]),
            f"cutout_fill = {self.cutout_fill} does not fit {images.shape[1]} channels: "
            "give one value, or one per channel.",
        )
        for chosen, levels in zip(draws.operations.T, draws.levels.T, strict=True):
            images = apply_each(images, chosen, levels, _pool(self.fill))
        return geometry.cutout(images, draws.boxes, self.cutout_fill) if self.cutout else images


FIXMATCH = RandAugment()
"""kekmodel's FixMatch: operations, levels and chances are the official code's."""

USB = RandAugment(
    operations=3, chance=1, levels=None, cutout_varies=True, cutout_fill=(125, 123, 114)
)
"""RandAugment of USB, TorchSSL and IOMatch; for images of three channels."""


Argument = Callable[[ByteImages, Tensor], Tensor]


def _from_level(argument: Argument, most: float, least: float = 0, whole: bool = False) -> Argument:
    """`argument` as a function of levels of any sign; FixMatch's arithmetic, to the last bit."""

    def argument_of_levels(images: ByteImages, levels: Tensor) -> Tensor:
        strengths = levels.abs() * most / TOP_LEVEL
        return argument(images, (strengths.floor() if whole else strengths) + least)

    return argument_of_levels


def _from_signed_level(argument: Argument, most: float, side: int | None = None) -> Argument:
    """`argument` as a function of signed levels; with `side`, in whole pixels of that dimension."""

    def argument_of_levels(images: ByteImages, levels: Tensor) -> Tensor:
        strengths = levels * most / TOP_LEVEL
        return argument(images, (strengths * images.shape[side]).trunc() if side else strengths)

    return argument_of_levels


def _solarize_tables_of_amounts(images: ByteImages, amounts: Tensor) -> Tensor:
    return color.solarize_tables(images, 256 - amounts)


@cache
def _pool(fill: int) -> tuple[Operation, ...]:
    """The operations, in the order of NAMES."""
    warp = partial(geometry.affine, fill=fill)
    return (
        IDENTITY,
        Operation(color.look_up, color.autocontrast_tables),
        Operation(color.look_up, _from_level(color.brightness_tables, 0.9, 0.05)),
        Operation(color.look_up, _from_level(color.contrast_tables, 0.9, 0.05)),
        Operation(color.look_up, color.equalize_tables),
        Operation(color.look_up, _from_level(color.posterize_tables, 4, 4, whole=True)),
        Operation(color.look_up, _from_level(_solarize_tables_of_amounts, 256, whole=True)),
        Operation(color.saturate, _from_level(same_values, 0.9, 0.05)),
        Operation(color.sharpen, _from_level(same_values, 0.9, 0.05)),
        Operation(warp, _from_signed_level(geometry.rotation, 30)),
        Operation(warp, _from_signed_level(geometry.shear_x, 0.3)),
        Operation(warp, _from_signed_level(geometry.shear_y, 0.3)),
        Operation(warp, _from_signed_level(geometry.translation_x, 0.3, 3)),
        Operation(warp, _from_signed_level(geometry.translation_y, 0.3, 2)),
    )
