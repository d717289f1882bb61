"""Colour operations on batches of uint8 images, each image with a parameter of its own.

Images are (n, channels, height, width) with 1 or 3 channels; parameters are (n,), float64, on the
CPU, whatever the images' device. Each operation gives the bytes that PIL gives, except `turn_hue`
and `blur`, which are more exact than PIL's. All but `blur` are made of integer and single IEEE
operations, so every device gives the same bytes; `blur` may differ by one level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

Images = Tensor
"""(n, channels, height, width), uint8."""


@dataclass(frozen=True)
class Drawn:
    """What was drawn for the images of a batch: tensors on the CPU, a row for each image."""

    def rows(self, part: slice) -> Self:
        """What was drawn for some of the images."""
        return replace(self, **{item.name: getattr(self, item.name)[part] for item in fields(self)})


class Operation(NamedTuple):
    """A parameter made ready for some images, and what is then done to them.

    Operations of a pool that share `run` stand side by side: their images are done in one go.
    """

    run: Callable[[Images, Tensor], Images]
    argument: Callable[[Images, Tensor], Tensor]


def apply_each(images: Images, chosen: Tensor, values: Tensor, pool: Sequence[Operation]) -> Images:
    """Image i after the operation `pool[chosen[i]]` with the parameter `values[i]`.

    The first operation of a pool is `IDENTITY`. Images are sorted by operation, and put back.
    """
    if not chosen.any():
        return images
    order = chosen.argsort(stable=True)
    counts = chosen.bincount(minlength=len(pool)).tolist()
    rows = images.index_select(0, order.to(images.device))
    parts, own = torch.split(rows, counts), torch.split(values[order], counts)
    members = zip(pool, parts, own, strict=True)
    done: list[Images] = []
    for run, group in groupby((m for m in members if len(m[1])), key=lambda m: m[0].run):
        arguments = torch.cat([operation.argument(part, value) for operation, part, value in group])
        start = sum(map(len, done))
        done.append(run(rows[start : start + len(arguments)], arguments))
    return torch.cat(done).index_select(0, order.argsort().to(images.device))


def as_they_are(images: Images, values: Tensor) -> Images:
    """The same images."""
    return images


def given(images: Images, values: Tensor) -> Tensor:
    """The parameter itself, where an operation needs no more."""
    return values


IDENTITY = Operation(as_they_are, given)


def look_up(images: Images, tables: Tensor) -> Images:
    """Each pixel's new value from the (n, channels, 256) tables of its image."""
    return tables.gather(2, images.flatten(2).long()).view_as(images)


def contrast_stretched(images: Images, values: Tensor) -> Tensor:
    """AutoContrast's tables: a channel's darkest value becomes 0, its brightest 255."""
    low, high = (part.double()[..., None] for part in _extremes(images))
    # Divide, not 255 / span: that is a product with the reciprocal, which rounds otherwise.
    scale = torch.full_like(high, 255).div((high - low).clamp_min(1))
    stretched = _range(images).double() * scale + -low * scale  # PIL's order of operations
    return _or_identity(stretched.clamp(0, 255).byte(), high > low)


def equalized(images: Images, values: Tensor) -> Tensor:
    """Equalize's tables: a channel's histogram becomes as even as its values allow."""
    n, channels = images.shape[:2]
    histogram = _histogram(images)
    brightest = _extremes(images)[1].long()[..., None]
    below = histogram.cumsum(2) - histogram
    step = below.gather(2, brightest) // 255
    tables = ((step // 2 + below) // step.clamp_min(1)).clamp_max(255).byte()
    return _or_identity(tables, step > 0).view(n, channels, 256)


def posterized(images: Images, bits: Tensor) -> Tensor:
    """Posterize's tables: only the highest bits of a value are kept."""
    masks = (256 - 2 ** (8 - bits.long())).byte()
    return _same_for_channels(images, _range(images) & _on(images, masks)[:, None])


def solarized(images: Images, thresholds: Tensor) -> Tensor:
    """Solarize's tables: values from a threshold on are inverted."""
    values = _range(images)
    above = (values >= _on(images, thresholds.short())[:, None]).byte()
    return _same_for_channels(images, values ^ (above * 255))


def brightened(images: Images, factors: Tensor) -> Tensor:
    """Brightness's tables: 0 gives black, 1 the image."""
    values = _range(images).float()[None]
    return _same_for_channels(images, _blend(torch.zeros_like(values), values, factors))


def contrasted(images: Images, factors: Tensor) -> Tensor:
    """Contrast's tables: 0 gives the mean grey of the image, 1 the image."""
    total, count = luma(images).flatten(1).sum(1), images.shape[2] * images.shape[3]
    means = torch.div(2 * total + count, 2 * count, rounding_mode="floor").float()
    return _same_for_channels(images, _blend(means[:, None], _range(images).float()[None], factors))


def luma(images: Images) -> Tensor:
    """(n, height, width), int32: the grey value of each pixel, ITU-R 601-2 as PIL rounds it."""
    if images.shape[1] == 1:
        return images[:, 0].int()
    red, green, blue = images.int().unbind(1)
    return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16


def grey(images: Images, values: Tensor) -> Images:
    """The images without colour."""
    return luma(images).byte()[:, None].expand_as(images)


def saturate(images: Images, factors: Tensor) -> Images:
    """Color: 0 gives a grey image, 1 the image."""
    return _blend(luma(images).float()[:, None], images.float(), factors)


def sharpen(images: Images, factors: Tensor) -> Images:
    """Sharpness: 0 gives an image smoothed by a 3 x 3 mean with 5 times the centre, 1 the image.

    The outermost pixels stay, as in PIL.
    """
    wide = images.short()
    across = wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]
    sums = across[..., :-2, :] + across[..., 1:-1, :] + across[..., 2:, :]
    sums += 4 * wide[..., 1:-1, 1:-1]
    sharp = images.float()
    smooth = sharp.clone()
    smooth[..., 1:-1, 1:-1] = (sums.float() / 13 + 0.5).floor()
    return _blend(smooth, sharp, factors)


def turn_hue(images: Images, turns: Tensor) -> Images:
    """Every pixel's hue turned by a share of the colour circle, in [-1/2, 1/2]; HSV."""
    if images.shape[1] == 1:
        return images
    pixels = images.float()
    red, green, blue = pixels.unbind(1)
    value, low = pixels.amax(1), pixels.amin(1)
    chroma = value - low
    span = chroma.clamp_min(1)
    hue = torch.where(
        value == red,
        (green - blue) / span,
        torch.where(value == green, (blue - red) / span + 2, (red - green) / span + 4),
    )  # in sixths of the circle
    hue += _on(images, turns.float() * 6)[:, None, None]
    turned = []
    for start in (5, 3, 1):
        place = hue + start
        place = place - (place / 6).floor() * 6  # remainder(6), but fast
        turned.append(value - chroma * torch.minimum(place, 4 - place).clamp(0, 1))
    return (torch.stack(turned, 1) + 0.5).short().byte()


def blur(images: Images, sigmas: Tensor) -> Images:
    """Gaussian blur, edges repeated; a kernel is at most a tenth of the shorter side, or 17 px.

    The tenth is SimCLR's; beyond 17 px, at its sigmas (up to 2), nothing is left to add.
    """
    n, channels, height, width = images.shape
    reach = min(min(height, width) // 20, 8)
    distances = torch.arange(-reach, reach + 1, dtype=torch.float64)
    kernels = (-(distances**2) / (2 * sigmas[:, None] ** 2)).exp()
    kernels = _on(images, (kernels / kernels.sum(1, keepdim=True)).float())
    kernels = kernels.repeat_interleave(channels, 0)[:, None]  # (n channels, 1, taps)
    planes = images.float().reshape(1, n * channels, height, width)
    for shape, pad in (
        ((1, 2 * reach + 1), (reach, reach, 0, 0)),
        ((2 * reach + 1, 1), (0, 0, reach, reach)),
    ):
        padded = F.pad(planes, pad, mode="replicate")
        planes = F.conv2d(padded, kernels.view(-1, 1, *shape), groups=n * channels)
    return (planes.view_as(images) + 0.5).clamp_max(255).short().byte()


def _on(images: Images, values: Tensor) -> Tensor:
    return values.to(images.device)


def _range(images: Images) -> Tensor:
    """(256,), uint8: 0 ... 255."""
    return torch.arange(256, dtype=torch.uint8, device=images.device)


def _extremes(images: Images) -> tuple[Tensor, Tensor]:
    """(n, channels): the least and the greatest value."""
    return images.amin((2, 3)), images.amax((2, 3))


def _histogram(images: Images) -> Tensor:
    """(n, channels, 256), int64: how many pixels have each value."""
    n, channels = images.shape[:2]
    offsets = torch.arange(n * channels, dtype=torch.int32, device=images.device) * 256
    places = images.reshape(n * channels, -1) + offsets[:, None]
    return places.flatten().bincount(minlength=n * channels * 256).view(n, channels, 256)


def _or_identity(tables: Tensor, wanted: Tensor) -> Tensor:
    return torch.where(wanted, tables, _range(tables))


def _same_for_channels(images: Images, tables: Tensor) -> Tensor:
    return tables[:, None].expand(-1, images.shape[1], -1)


def _blend(start: Tensor, end: Tensor, factors: Tensor) -> Tensor:
    """PIL's blend in its own float32 steps; factors beyond [0, 1] extrapolate."""
    by_image = factors.float().to(end.device).view(-1, *(1,) * (start.ndim - 1))
    # PIL cuts fractions off; going through int16 is faster than going to bytes at once.
    return (start + by_image * (end - start)).clamp_(0, 255).short().byte()
