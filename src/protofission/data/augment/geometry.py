"""Geometric operations on batches of uint8 images, each image with parameters of its own.

All arithmetic on pixels is PIL's own fixed-point arithmetic, so that the bytes are PIL's, and the
same on every device. Parameters are on the CPU, whatever the images' device. Sides are at most
16,384 pixels: coordinates are int32 with 16 bits of fraction.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from protofission.core.devices import send
from protofission.data.augment.operations import ByteImages

Border = Literal["reflect", "zero"]

RESIZE_BITS = 22
"""The precision of a resized image's weights."""


def affine(images: ByteImages, maps: Tensor, fill: int = 0) -> ByteImages:
    """Warp each image by its affine map, to the nearest pixel; `fill` where there is none.

    Args:
        images: (n, channels, height, width).
        maps: (n, 6), float64: the pixel (x, y) comes from (a x + b y + c, d x + e y + f).
        fill: the value of all channels outside the image.
    """
    height, width = images.shape[2:]
    centered = maps.clone()
    centered[:, 2] += maps[:, 0] * 0.5 + maps[:, 1] * 0.5
    centered[:, 5] += maps[:, 3] * 0.5 + maps[:, 4] * 0.5
    centered[:, 2::3] += 1  # a border of one pixel holds the fill
    fixed = send((centered * 65536 + 0.5).floor().int(), images.device)[..., None]
    xs = torch.arange(width, dtype=torch.int32, device=images.device)
    ys = torch.arange(height, dtype=torch.int32, device=images.device)
    a, b, c, d, e, f = fixed.unbind(1)
    columns = ((a * xs)[:, None, :] + (b * ys + c)[:, :, None]).bitwise_right_shift_(16)
    rows = ((d * xs)[:, None, :] + (e * ys + f)[:, :, None]).bitwise_right_shift_(16)
    places = rows.clamp_(0, height + 1).mul_(width + 2).add_(columns.clamp_(0, width + 1))
    return _take_pixels(F.pad(images, (1, 1, 1, 1), value=fill), places)


def rotation(images: ByteImages, degrees: Tensor) -> Tensor:
    """(n, 6): the maps of counterclockwise turns about the center."""
    height, width = images.shape[2:]
    angles = -degrees.deg2rad()
    cos, sin, x, y = angles.cos(), angles.sin(), width / 2, height / 2
    return torch.stack([cos, sin, -cos * x - sin * y + x, -sin, cos, sin * x - cos * y + y], dim=1)


def shear_x(images: ByteImages, slopes: Tensor) -> Tensor:
    """(n, 6): the maps that shift each row in proportion to its distance from the top."""
    return _almost_identity(1, slopes)


def shear_y(images: ByteImages, slopes: Tensor) -> Tensor:
    """(n, 6): the maps that shift each column in proportion to its distance from the left."""
    return _almost_identity(3, slopes)


def translation_x(images: ByteImages, pixels: Tensor) -> Tensor:
    """(n, 6): the maps of shifts to the left."""
    return _almost_identity(2, pixels)


def translation_y(images: ByteImages, pixels: Tensor) -> Tensor:
    """(n, 6): the maps of shifts upwards."""
    return _almost_identity(5, pixels)


def _almost_identity(place: int, values: Tensor) -> Tensor:
    maps = torch.tensor([1.0, 0, 0, 0, 1, 0], dtype=torch.float64).repeat(len(values), 1)
    maps[:, place] = values
    return maps


def shift(
    images: ByteImages, down: Tensor, right: Tensor, flips: Tensor, border: Border
) -> ByteImages:
    """Flip images from left to right where `flips`, then crop them at an offset, at their own size.

    Args:
        images: (n, channels, height, width).
        down: (n,): the row where the crop begins; it may lie beyond the edge.
        right: (n,): the column where it begins.
        flips: (n,), bool.
        border: the pixels beyond the edge: the image mirrored (its edge not repeated), or zeros.
    """
    height, width = images.shape[2:]
    rows = torch.arange(height) + down[:, None]
    columns = torch.arange(width) + right[:, None]
    if border == "reflect":
        rows, columns = (
            (size - 1) - ((size - 1) - places.abs()).abs()
            for size, places in ((height, rows), (width, columns))
        )
    columns = torch.where(flips[:, None], width - 1 - columns, columns)
    if border == "zero":
        images = F.pad(images, (1, 1, 1, 1))
        rows, columns = rows.clamp(-1, height) + 1, columns.clamp(-1, width) + 1
    return _take_columns(_take_rows(images, rows), columns)


def _take_rows(images: ByteImages, places: Tensor) -> ByteImages:
    """The rows of each image at (n, rows) places."""
    n, channels, height, width = images.shape
    starts = torch.arange(n * channels).view(n, channels, 1) * height  # of each channel's rows
    taken = send((starts + places[:, None]).flatten(), images.device)
    return images.reshape(-1, width).index_select(0, taken).view(n, channels, -1, width)


def _take_columns(images: ByteImages, places: Tensor) -> ByteImages:
    """The columns of each image at (n, columns) places."""
    where = send(places[:, None, None, :], images.device)
    return images.gather(3, where.expand(*images.shape[:3], -1))


def _take_pixels(images: ByteImages, places: Tensor) -> ByteImages:
    """The pixels at (n, height, width) places of the flattened images, in all channels."""
    flat = places.flatten(1).long()[:, None].expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, flat).view(*images.shape[:2], *places.shape[1:])


def resized_crop(
    images: ByteImages, boxes: Tensor, flips: Tensor, size: tuple[int, int] | None = None
) -> ByteImages:
    """Scale a box of each image to one size, bilinearly; then flip where `flips`.

    Args:
        images: (n, channels, height, width).
        boxes: (n, 4), int64: top, left, height, width.
        flips: (n,), bool.
        size: height and width of the result; by default those of the images. A larger box is
            sampled between two pixels, like a smaller one, where PIL would average over more.
    """
    height, width = size or images.shape[2:]
    top, left, tall, wide = boxes.unbind(1)
    before, after, weights = (
        torch.where(flips[:, None], part.flip(1), part) for part in _taps(left, wide, width)
    )
    pair = _take_columns(images, before), _take_columns(images, after)
    images = _interpolate(*pair, weights[:, None, None, :])
    before, after, weights = _taps(top, tall, height)
    return _interpolate(
        _take_rows(images, before), _take_rows(images, after), weights[:, None, :, None]
    )


def _taps(starts: Tensor, lengths: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """(n, size), each: the two places around a new pixel, and the weight of the second."""
    scales = lengths.double()[:, None] / size
    centers = (torch.arange(size) + 0.5) * scales - 0.5
    before = centers.floor()
    weights = ((centers - before) * 2**RESIZE_BITS + 0.5).int()
    first, second = (
        starts[:, None] + places.long().clamp_min(0).minimum(lengths[:, None] - 1)
        for places in (before, before + 1)
    )
    return first, second, weights


def _interpolate(first: ByteImages, second: ByteImages, weights: Tensor) -> ByteImages:
    """Weighted means, rounded; in one buffer of int32, since fresh memory costs more than sums."""
    sums = second.int().sub_(first).mul_(send(weights, first.device))
    sums.add_(2 ** (RESIZE_BITS - 1)).bitwise_right_shift_(RESIZE_BITS)
    return sums.add_(first).byte()


def cutout(images: ByteImages, boxes: Tensor, fill: tuple[int, ...]) -> ByteImages:
    """Fill a box of each image with one color.

    Args:
        images: (n, channels, height, width).
        boxes: (n, 4), int64: top, left, height, width; parts beyond the image do no harm.
        fill: one value, or one per channel.
    """
    top, left, tall, wide = boxes.unbind(1)
    inside = [
        ((places >= start[:, None]) & (places < (start + length)[:, None])).byte()
        for places, start, length in (
            (torch.arange(images.shape[2]), top, tall),
            (torch.arange(images.shape[3]), left, wide),
        )
    ]
    tall_part, wide_part = (send(part, images.device) for part in inside)
    cut = tall_part[:, None, :, None] * wide_part[:, None, None, :]
    color = send(torch.tensor(fill, dtype=torch.uint8), images.device)[None, :, None, None]
    return (images * (1 - cut)).add_(cut * color)  # bytes multiply faster than they are masked
