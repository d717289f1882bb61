"""Views by affine maps, contrast, noise and cutouts, for images without color such as digits.

A view is a function of (images, generator), and each image draws its own parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from protofission.core.devices import send
from protofission.core.records import WHOLE, Share, ViewName
from protofission.data.augment.views import Augmentations
from protofission.data.image_sets import floats


@dataclass(frozen=True)
class Augmentation:
    """A random affine map, then contrast, noise and a cutout; 0 leaves a part out."""

    shift: float = 0.0
    """The largest shift, as a share of the side."""
    rotate: float = 0.0
    """The largest rotation to either side, in degrees."""
    scale: float = 0.0
    """Zoom factors are drawn from 1 - scale to 1 + scale."""
    shear: float = 0.0
    """The largest shear, to either side."""
    contrast: float = 0.0
    """Factors on the pixels are drawn from 1 - contrast to 1 + contrast."""
    noise: float = 0.0
    """The largest standard deviation of an image's Gaussian noise."""
    cutout: float = 0.0
    """The side of a square that is set to 0, as a share of the image's."""

    def __call__(self, images: Tensor, generator: torch.Generator, share: Share = WHOLE) -> Tensor:
        """One view of each of (N, channels, height, width) images, bytes or floats in [0, 1].


        Args:
            share: the part of the batch that the images are; parameters are drawn for all of it.

        Returns:
            Floats in [0, 1], of the images' shape.
        """
        images = floats(images)
        batch = share.total(len(images))
        own = share.of(batch)
        # One draw for all parameters: leaving a part out does not change the others.
        draws = send(torch.rand(batch, 9, generator=generator)[own], images.device) * 2 - 1
        if self.shift or self.rotate or self.scale or self.shear:
            grid = F.affine_grid(self._maps(draws), list(images.shape), align_corners=False)
            images = F.grid_sample(images, grid.to(images), align_corners=False)
        if self.contrast:
            images = images * (1 + self.contrast * _per_image(draws[:, 5]))
        if self.noise:
            noise = torch.randn(batch, *images.shape[1:], generator=generator)[own]
            noise = send(noise.to(images.dtype), images.device)
            images = images + noise * self.noise * _per_image(draws[:, 6].abs())
        if self.cutout:
            images = images * ~_squares(images, self.cutout, draws[:, 7:])
        return images.clamp(0, 1)

    def _maps(self, draws: Tensor) -> Tensor:
        """(N, 2, 3): maps from output to input coordinates, both in [-1, 1]."""
        turn = draws[:, 0] * math.radians(self.rotate)
        size = 1 + draws[:, 1] * self.scale
        shear = draws[:, 2] * self.shear
        shift = draws[:, 3:5] * 2 * self.shift
        cos, sin = turn.cos() / size, turn.sin() / size
        rows = torch.stack([cos, shear * cos - sin, sin, shear * sin + cos], 1).view(-1, 2, 2)
        return torch.cat([rows, shift[..., None]], 2)


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def _squares(images: Tensor, side: float, centers: Tensor) -> Tensor:
    """(N, 1, height, width), bool: the square of each image.

    Args:
        side: as a share of the image's side.
        centers: (N, 2), in coordinates from -1 to 1.
    """
    height, width = images.shape[-2:]
    ys = torch.linspace(-1 + 1 / height, 1 - 1 / height, height, device=images.device)
    xs = torch.linspace(-1 + 1 / width, 1 - 1 / width, width, device=images.device)
    inside_y = (ys - centers[:, :1]).abs() < side  # coordinates span 2, so half a side is `side`
    inside_x = (xs - centers[:, 1:]).abs() < side
    return (inside_y[:, :, None] & inside_x[:, None, :])[:, None]


@dataclass(frozen=True)
class AffineViews(Augmentations):
    """Views by affine maps, contrast, noise and cutouts."""

    weak: Augmentation
    strong: Augmentation
    simclr: Augmentation

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
        """One view of each image; see `Augmentations.view`."""
        match name:
            case "plain":
                return self.plain(images)
            case "weak":
                return self.weak(images, generator, share)
            case "strong":
                return self.strong(images, generator, share)
            case "simclr":
                return self.simclr(images, generator, share)


DIGITS = AffineViews(
    weak=Augmentation(shift=0.06, rotate=8, scale=0.08),
    strong=Augmentation(
        shift=0.12, rotate=20, scale=0.15, shear=0.2, contrast=0.4, noise=0.15, cutout=0.35
    ),
    simclr=Augmentation(
        shift=0.12, rotate=15, scale=0.2, shear=0.2, contrast=0.4, noise=0.15, cutout=0.25
    ),
)
"""The views of digits and clothes. No flip: a mirrored 2 is not a 2."""
