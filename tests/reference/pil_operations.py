"""Augmentation of one image at a time with PIL, as FixMatch's and SimCLR's public code does it.

What was drawn for an image comes from outside: nothing here is random.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Callable, Sequence

from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

Picture = Image.Image
Box = Sequence[int]
"""Top, left, height, width."""


def auto_contrast(image: Picture) -> Picture:
    return ImageOps.autocontrast(image)


def equalize(image: Picture) -> Picture:
    return ImageOps.equalize(image)


def posterize(image: Picture, bits: int) -> Picture:
    return ImageOps.posterize(image, bits)


def solarize(image: Picture, threshold: int) -> Picture:
    return ImageOps.solarize(image, threshold)


def brightness(image: Picture, factor: float) -> Picture:
    return ImageEnhance.Brightness(image).enhance(factor)


def contrast(image: Picture, factor: float) -> Picture:
    return ImageEnhance.Contrast(image).enhance(factor)


def color(image: Picture, factor: float) -> Picture:
    return ImageEnhance.Color(image).enhance(factor)


def sharpness(image: Picture, factor: float) -> Picture:
    return ImageEnhance.Sharpness(image).enhance(factor)


def rotate(image: Picture, degrees: float, fill: int = 0) -> Picture:
    return image.rotate(degrees, fillcolor=_fill_color(image, fill))


def affine(image: Picture, coefficients: Sequence[float], fill: int = 0) -> Picture:
    """The nearest pixel at (a x + b y + c, d x + e y + f)."""
    return image.transform(
        image.size, Image.Transform.AFFINE, tuple(coefficients), fillcolor=_fill_color(image, fill)
    )


def shear_x(image: Picture, slope: float, fill: int = 0) -> Picture:
    return affine(image, (1, slope, 0, 0, 1, 0), fill)


def shear_y(image: Picture, slope: float, fill: int = 0) -> Picture:
    return affine(image, (1, 0, 0, slope, 1, 0), fill)


def translate_x(image: Picture, pixels: float, fill: int = 0) -> Picture:
    return affine(image, (1, 0, pixels, 0, 1, 0), fill)


def translate_y(image: Picture, pixels: float, fill: int = 0) -> Picture:
    return affine(image, (1, 0, 0, 0, 1, pixels), fill)


def gray(image: Picture) -> Picture:
    return image.convert("L").convert(image.mode)


def hue_of_colorsys(image: Picture, turn: float) -> Picture:
    """With floats all the way, pixel by pixel."""
    pixels = []
    for place in range(image.width * image.height):
        red, green, blue = image.getpixel((place % image.width, place // image.width))
        hue, saturation, value = colorsys.rgb_to_hsv(red / 255, green / 255, blue / 255)
        turned = colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value)
        pixels.append(tuple(int(255 * part + 0.5) for part in turned))
    made = Image.new("RGB", image.size)
    made.putdata(pixels)
    return made


def hue(image: Picture, turn: float) -> Picture:
    """As torchvision does it: hue and saturation are bytes in between."""
    if image.mode == "L":
        return image
    hues, saturations, values = image.convert("HSV").split()
    hues = hues.point([(value + round(turn * 255)) % 256 for value in range(256)])
    return Image.merge("HSV", (hues, saturations, values)).convert("RGB")


def blur(image: Picture, sigma: float) -> Picture:
    """Three box blurs, close to a Gaussian."""
    return image.filter(ImageFilter.GaussianBlur(sigma))


def gaussian_blur(rows: Sequence[Sequence[float]], sigma: float, reach: int) -> list[list[float]]:
    """A Gaussian blur by its definition, edges repeated."""
    height, width = len(rows), len(rows[0])
    around = range(-reach, reach + 1)
    weights = {(i, j): math.exp(-(i * i + j * j) / (2 * sigma**2)) for i in around for j in around}
    whole = math.fsum(weights.values())
    return [
        [
            math.fsum(
                weight * rows[min(max(y + i, 0), height - 1)][min(max(x + j, 0), width - 1)]
                for (i, j), weight in weights.items()
            )
            / whole
            for x in range(width)
        ]
        for y in range(height)
    ]


def mirror(image: Picture) -> Picture:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def shift(
    image: Picture, down: int, right: int, flip: bool, padding: Sequence[int], border: str
) -> Picture:
    """Flip, pad by (rows, columns), crop at an offset from the middle."""
    image = mirror(image) if flip else image
    rows, columns = padding
    padded = pad_reflect(image, rows, columns) if border == "reflect" else pad(image, rows, columns)
    left, top = columns + right, rows + down
    return padded.crop((left, top, left + image.width, top + image.height))


def pad(image: Picture, rows: int, columns: int) -> Picture:
    padded = Image.new(image.mode, (image.width + 2 * columns, image.height + 2 * rows))
    padded.paste(image, (columns, rows))
    return padded


def pad_reflect(image: Picture, rows: int, columns: int) -> Picture:
    """The edge itself is not repeated."""
    padded, (width, height) = pad(image, rows, columns), image.size
    mirrored, over = mirror(image), Image.Transpose.FLIP_TOP_BOTTOM
    padded.paste(mirrored.crop((width - 1 - columns, 0, width - 1, height)), (0, rows))
    padded.paste(mirrored.crop((1, 0, columns + 1, height)), (columns + width, rows))
    whole = padded.crop((0, rows, padded.width, rows + height)).transpose(over)
    padded.paste(whole.crop((0, height - 1 - rows, padded.width, height - 1)), (0, 0))
    padded.paste(whole.crop((0, 1, padded.width, rows + 1)), (0, rows + height))
    return padded


def resized_crop(image: Picture, box: Box, flip: bool) -> Picture:
    top, left, height, width = box
    crop = image.crop((left, top, left + width, top + height))
    made = crop.resize(image.size, Image.Resampling.BILINEAR)
    return mirror(made) if flip else made


def cutout(image: Picture, box: Box, fill: Sequence[int]) -> Picture:
    top, left, height, width = box
    if height < 1 or width < 1:
        return image
    image = image.copy()
    box_color = tuple(fill) if len(fill) == len(image.getbands()) else _fill_color(image, fill[0])
    ImageDraw.Draw(image).rectangle((left, top, left + width - 1, top + height - 1), box_color)
    return image


def _fill_color(image: Picture, value: int) -> int | tuple[int, ...]:
    return value if image.mode == "L" else (value,) * len(image.getbands())


Leveled = Callable[[Picture, float, int], Picture]
"""An image at a signed level, and the fill of geometric operations."""


def _enhance_factor(level: float) -> float:
    return abs(level) * 0.9 / 10 + 0.05


RANDAUGMENT: dict[str, Leveled] = {
    "Identity": lambda image, level, fill: image,
    "AutoContrast": lambda image, level, fill: auto_contrast(image),
    "Brightness": lambda image, level, fill: brightness(image, _enhance_factor(level)),
    "Color": lambda image, level, fill: color(image, _enhance_factor(level)),
    "Contrast": lambda image, level, fill: contrast(image, _enhance_factor(level)),
    "Equalize": lambda image, level, fill: equalize(image),
    "Posterize": lambda image, level, fill: posterize(image, int(abs(level) * 4 / 10) + 4),
    "Rotate": lambda image, level, fill: rotate(image, level * 30 / 10, fill),
    "Sharpness": lambda image, level, fill: sharpness(image, _enhance_factor(level)),
    "ShearX": lambda image, level, fill: shear_x(image, level * 0.3 / 10, fill),
    "ShearY": lambda image, level, fill: shear_y(image, level * 0.3 / 10, fill),
    "Solarize": lambda image, level, fill: solarize(image, 256 - int(abs(level) * 256 / 10)),
    "TranslateX": lambda image, level, fill: translate_x(
        image, int(level * 0.3 / 10 * image.width), fill
    ),
    "TranslateY": lambda image, level, fill: translate_y(
        image, int(level * 0.3 / 10 * image.height), fill
    ),
}


def randaugment(
    image: Picture,
    steps: Sequence[tuple[str, float]],
    box: Box,
    fill: int = 0,
    cutout_fill: Sequence[int] = (127,),
) -> Picture:
    """Operations by name, each at its signed level, then the cutout."""
    for name, level in steps:
        image = RANDAUGMENT[name](image, level, fill)
    return cutout(image, box, cutout_fill)


SIMCLR: dict[int, Callable[[Picture, float], Picture]] = {
    1: brightness,
    2: contrast,
    3: color,
    4: hue,
}


def simclr(
    image: Picture,
    box: Box,
    flip: bool,
    jitter: Sequence[tuple[int, float]],
    is_gray: bool,
    sigma: float,
) -> Picture:
    """Resized crop, flip, jitter in its order, gray, blur."""
    image = resized_crop(image, box, flip)
    for kind, factor in jitter:
        image = SIMCLR[kind](image, factor) if kind else image
    image = gray(image) if is_gray else image
    return blur(image, sigma) if sigma else image
