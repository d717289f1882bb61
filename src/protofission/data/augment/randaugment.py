"""RandAugment as FixMatch has it, and as USB has it: `FIXMATCH` and `USB`.

Its parameters are drawn first, as a `Plan`; then the plan is carried out. The view of an image is a
function of the generator, of its place in the batch and of the batch's size, and of no other image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from protofission.core.errors import require
from protofission.data.augment import color as colours
from protofission.data.augment import geometry
from protofission.data.augment.color import IDENTITY, Drawn, Images, Operation, apply_each

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
"""The operations, by the names in FixMatch; an operation that is not applied is Identity."""

TOP_LEVEL = 10
"""Levels are shares of this one."""


@dataclass(frozen=True)
class Plan(Drawn):
    """What is done to each image of a batch."""

    operations: Tensor
    """(n, operations): places in NAMES."""
    levels: Tensor
    """(n, operations), float64: strengths up to 10; negative ones turn geometric maps around."""
    boxes: Tensor
    """(n, 4): the cutout's top, left, height and width."""


@dataclass(frozen=True)
class RandAugment:
    """A few random operations of 14, then a cutout."""

    operations: int = 2
    """How many are drawn for an image, with replacement."""
    chance: float = 0.5
    """Of a drawn operation to be applied."""
    levels: int | None = 9
    """Strengths are drawn from 1 ... levels of 10; evenly from 0 to 10 where none is given."""
    fill: int = 0
    """The value of pixels that a geometric operation finds outside the image."""
    cutout: float = 0.5
    """The side of the cutout, as a share of the image's shorter side."""
    cutout_varies: bool = False
    """Whether the cutout's side is drawn evenly from 0 to `cutout`."""
    cutout_fill: tuple[int, ...] = (127,)
    """The cutout's colour: one value, or one a channel."""

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

    def draw(self, shape: torch.Size, generator: torch.Generator) -> Plan:
        """A plan for (n, channels, height, width) images."""
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
        centres = [torch.randint(size, (n,), generator=generator) for size in (height, width)]
        corners = [centre - sides // 2 for centre in centres]
        boxes = torch.stack([*corners, sides, sides], 1)
        return Plan(torch.where(applied, operations, 0), levels * signs, boxes)

    def apply(self, images: Images, plan: Plan) -> Images:
        """Carry out a plan."""
        require(
            len(self.cutout_fill) in (1, images.shape[1]),
            f"cutout_fill = {self.cutout_fill} does not fit {images.shape[1]} channels: "
            "give one value, or one a channel.",
        )
        for chosen, levels in zip(plan.operations.T, plan.levels.T, strict=True):
            images = apply_each(images, chosen, levels, _pool(self.fill))
        return geometry.cutout(images, plan.boxes, self.cutout_fill) if self.cutout else images


FIXMATCH = RandAugment()
"""kekmodel's FixMatch: operations, levels and chances are the official code's."""

USB = RandAugment(
    operations=3, chance=1, levels=None, cutout_varies=True, cutout_fill=(125, 123, 114)
)
"""As in USB, TorchSSL and IOMatch; for images of three channels."""


Argument = Callable[[Images, Tensor], Tensor]


def _from_level(argument: Argument, most: float, least: float = 0, whole: bool = False) -> Argument:
    """The argument at a level of any sign; FixMatch's own arithmetic, to the last bit."""

    def made(images: Images, levels: Tensor) -> Tensor:
        strengths = levels.abs() * most / TOP_LEVEL
        return argument(images, (strengths.floor() if whole else strengths) + least)

    return made


def _from_signed_level(argument: Argument, most: float, side: int | None = None) -> Argument:
    """Of a geometric operation; with `side`, by whole pixels of a share of that dimension."""

    def made(images: Images, levels: Tensor) -> Tensor:
        strengths = levels * most / TOP_LEVEL
        return argument(images, (strengths * images.shape[side]).trunc() if side else strengths)

    return made


def _solarized(images: Images, amounts: Tensor) -> Tensor:
    return colours.solarized(images, 256 - amounts)


@cache
def _pool(fill: int) -> tuple[Operation, ...]:
    """In the order of NAMES."""
    warp = partial(geometry.affine, fill=fill)
    return (
        IDENTITY,
        Operation(colours.look_up, colours.contrast_stretched),
        Operation(colours.look_up, _from_level(colours.brightened, 0.9, 0.05)),
        Operation(colours.look_up, _from_level(colours.contrasted, 0.9, 0.05)),
        Operation(colours.look_up, colours.equalized),
        Operation(colours.look_up, _from_level(colours.posterized, 4, 4, whole=True)),
        Operation(colours.look_up, _from_level(_solarized, 256, whole=True)),
        Operation(colours.saturate, _from_level(colours.given, 0.9, 0.05)),
        Operation(colours.sharpen, _from_level(colours.given, 0.9, 0.05)),
        Operation(warp, _from_signed_level(geometry.rotation, 30)),
        Operation(warp, _from_signed_level(geometry.shear_x, 0.3)),
        Operation(warp, _from_signed_level(geometry.shear_y, 0.3)),
        Operation(warp, _from_signed_level(geometry.translation_x, 0.3, 3)),
        Operation(warp, _from_signed_level(geometry.translation_y, 0.3, 2)),
    )
