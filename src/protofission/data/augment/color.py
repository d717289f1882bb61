"""Color operations on batches of uint8 images, each image with a parameter of its own.

Images are (n, channels, height, width) with 1 or 3 channels; parameters are (n,), float64, on the
CPU, whatever the images' device. Each operation gives the bytes that PIL gives, except `turn_hue`
and `blur`, which are more exact than PIL's. All but `blur` use integer and single IEEE operations
only, so every device gives the same bytes; `blur` may differ by one level.

An operation that maps each value of a channel to another one is a lookup table: `look_up` applies
the (n, channels, 256) tables that the functions `*_tables` return.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from protofission.core.devices import send
from protofission.data.augment.operations import ByteImages


def look_up(images: ByteImages, tables: Tensor) -> ByteImages:
    """Replace each pixel by its entry in the (n, channels, 256) tables of its image."""
    return tables.gather(2, images.flatten(2).long()).view_as(images)


def autocontrast_tables(images: ByteImages, values: Tensor) -> Tensor:
    """Tables of AutoContrast: a channel's darkest value becomes 0, its brightest 255."""
    low, high = (part.double()[..., None] for part in _extremes(images))
    # Divide, not 255 / span: that is a product with the reciprocal, which rounds otherwise.
    scale = torch.full_like(high, 255).div((high - low).clamp_min(1))
    stretched = _range(images).double() * scale + -low * scale  # PIL's order of operations
    return _or_identity(stretched.clamp(0, 255).byte(), high > low)


def equalize_tables(images: ByteImages, values: Tensor) -> Tensor:
    """Tables of Equalize: a channel's histogram becomes as even as its values allow."""
    n, channels = images.shape[:2]
    histogram = _histogram(images)
    brightest = _extremes(images)[1].long()[..., None]
    below = histogram.cumsum(2) - histogram
    step = below.gather(2, brightest) // 255
    tables = ((step // 2 + below) // step.clamp_min(1)).clamp_max(255).byte()
    return _or_identity(tables, step > 0).view(n, channels, 256)


def posterize_tables(images: ByteImages, bits: Tensor) -> Tensor:
    """Tables of Posterize: only the highest `bits` bits of a value are kept."""
    masks = (256 - 2 ** (8 - bits.long())).byte()
    return _same_for_channels(images, _range(images) & _on(images, masks)[:, None])


def solarize_tables(images: ByteImages, thresholds: Tensor) -> Tensor:
    """Tables of Solarize: values at or above a threshold are inverted."""
    values = _range(images)
    above = (values >= _on(images, thresholds.short())[:, None]).byte()
    return _same_for_channels(images, values ^ (above * 255))


def brightness_tables(images: ByteImages, factors: Tensor) -> Tensor:
    """Tables of Brightness: factor 0 gives black, 1 the image."""
    values = _range(images).float()[None]
    return _same_for_channels(images, _blend(torch.zeros_like(values), values, factors))


def contrast_tables(images: ByteImages, factors: Tensor) -> Tensor:
    """Tables of Contrast: factor 0 gives the image's mean gray, 1 the image."""
    total, count = luma(images).flatten(1).sum(1), images.shape[2] * images.shape[3]
    means = torch.div(2 * total + count, 2 * count, rounding_mode="floor").float()
    return _same_for_channels(images, _blend(means[:, None], _range(images).float()[None], factors))


def luma(images: ByteImages) -> Tensor:
    """(n, height, width), int32: the gray value of each pixel, ITU-R 601-2 as PIL rounds it."""
    if images.shape[1] == 1:
        return images[:, 0].int()
    red, green, blue = images.int().unbind(1)
    return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16


def to_gray(images: ByteImages, values: Tensor) -> ByteImages:
    """The images without color, all channels equal."""
    return luma(images).byte()[:, None].expand_as(images)


def saturate(images: ByteImages, factors: Tensor) -> ByteImages:
    """PIL's Color: factor 0 gives a gray image, 1 the image."""
    return _blend(luma(images).float()[:, None], images.float(), factors)


def sharpen(images: ByteImages, factors: Tensor) -> ByteImages:
    """PIL's Sharpness: factor 0 gives the image smoothed by 3 x 3, 1 the image.

    The 3 x 3 mean counts the center 5 times; the outermost pixels stay, as in PIL.
    """
    wide = images.short()
    across = wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]
    sums = across[..., :-2, :] + across[..., 1:-1, :] + across[..., 2:, :]
    sums += 4 * wide[..., 1:-1, 1:-1]
    sharp = images.float()
    smooth = sharp.clone()
    smooth[..., 1:-1, 1:-1] = (sums.float() / 13 + 0.5).floor()
    return _blend(smooth, sharp, factors)


def turn_hue(images: ByteImages, turns: Tensor) -> ByteImages:
    """Turn every pixel's hue (HSV) by a share of the color circle, in [-1/2, 1/2]."""
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


def blur(images: ByteImages, sigmas: Tensor) -> ByteImages:
    """Gaussian blur with repeated edges, by a kernel of a tenth of the shorter side, at most 17 px.

    The tenth is SimCLR's; at its sigmas, up to 2, the weights beyond 17 px are next to nothing.
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


def _on(images: ByteImages, values: Tensor) -> Tensor:
    return send(values, images.device)


def _range(images: ByteImages) -> Tensor:
    """(256,), uint8: 0 ... 255."""
    return torch.arange(256, dtype=torch.uint8, device=images.device)


def _extremes(images: ByteImages) -> tuple[Tensor, Tensor]:
    """(n, channels), each: the least and the greatest value."""
    return images.amin((2, 3)), images.amax((2, 3))


def _histogram(images: ByteImages) -> Tensor:
    """(n, channels, 256), int64: the number of pixels of each value."""
    n, channels = images.shape[:2]
    offsets = torch.arange(n * channels, dtype=torch.int32, device=images.device) * 256
    places = (images.reshape(n * channels, -1) + offsets[:, None]).flatten()
    if places.device.type == "cpu":
        counts = places.bincount(minlength=n * channels * 256)
    else:  # there, bincount waits for the largest value
        counts = places.new_zeros(n * channels * 256, dtype=torch.long)
        counts.index_add_(0, places, torch.ones_like(places, dtype=torch.long))
    return counts.view(n, channels, 256)


def _or_identity(tables: Tensor, wanted: Tensor) -> Tensor:
    return torch.where(wanted, tables, _range(tables))


def _same_for_channels(images: ByteImages, tables: Tensor) -> Tensor:
    return tables[:, None].expand(-1, images.shape[1], -1)


def _blend(start: Tensor, end: Tensor, factors: Tensor) -> Tensor:
    """PIL's blend, in its own float32 steps; factors beyond [0, 1] extrapolate."""
    by_image = send(factors.float(), end.device).view(-1, *(1,) * (start.ndim - 1))
    # PIL cuts fractions off; going through int16 is faster than going to bytes at once.
    return (start + by_image * (end - start)).clamp_(0, 255).short().byte()
