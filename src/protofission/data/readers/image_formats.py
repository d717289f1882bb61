"""Formats of image files: those that are opened, and what is refused in each before it is decoded.

A TIFF file can announce tables and tiles that are far larger than its image, and a PNM file can
keep a slow decoder busy: both are looked at before Pillow allocates or decodes anything.
"""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from PIL import Image

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM", "TIFF")
"""Pillow's names of the formats that every Pillow opens; PPM stands for PBM, PGM and PNM too."""
FORMAT_NAMES = "JPEG, PNG, WebP, BMP, GIF, PNM, TIFF, AVIF or HEIC"
PLUGINS = ("pillow-heif", "pillow-avif-plugin")
"""Packages that open further formats, if they are installed."""
HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1", b"mif2"}
AVIF_BRANDS = {b"avif", b"avis"}
TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""The first bytes of a TIFF file, and of a BigTIFF one."""
BITS, PHOTOMETRIC, TILE_WIDTH, TILE_LENGTH, SAMPLE_FORMAT = 258, 262, 322, 323, 339
"""Tags of a TIFF image."""
BYTE_TYPES = (1, 2, 6, 7)
"""Types of TIFF tags whose values are bytes: profiles and texts, which stay packed."""
MOST_TAG_VALUES = 2**20
"""Most numbers in a tag of a TIFF image, such as the places of its strips."""
MOST_SLOW_PIXELS = 2**24
"""Most pixels of a PNM file that Pillow decodes number by number, some seconds of work."""
MOST_COMMENTS = 1000
"""Most comments of a PNM file of text, which take Pillow the square of their number."""
SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N", "I")
"""Pillow's modes of gray images of more than 8 bits."""

logging.getLogger("PIL").addHandler(logging.NullHandler())  # the reason is told by us


class RefusedError(Exception):
    """A file cannot be used as an image; the message says why, without the file's name."""


def formats_of(content: bytes) -> tuple[str, ...]:
    """Pillow's names of the formats that a file may have; AVIF and HEIC are opened on demand.

    Raises:
        RefusedError: the plugin for its format is not installed.
    """
    brands = _brands(content)
    if brands & AVIF_BRANDS:
        return _plugin("AVIF", "pillow-avif-plugin")
    if brands & HEIC_BRANDS:
        return _plugin("HEIF", "pillow-heif")
    return FORMATS


def plugin_versions() -> dict[str, str]:
    """Versions of the plugins that are installed: the files that can be read depend on them."""
    found = {}
    for name in PLUGINS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def check_content(content: bytes) -> None:
    """Refuse a file that would make Pillow allocate or work out of all proportion.

    Raises:
        RefusedError: a TIFF file with a huge table, or a PNM file with very many comments.
    """
    if content.startswith(TIFF_STARTS) and _most_tag_values(content) > MOST_TAG_VALUES:
        raise RefusedError(f"huge: a TIFF table of more than {MOST_TAG_VALUES:,} numbers")
    if content[:2] in (b"P1", b"P2", b"P3") and content.count(b"#") > MOST_COMMENTS:
        raise RefusedError(f"a PNM file with more than {MOST_COMMENTS:,} comments")


def check_opened(image: Image.Image, pixel_limit: int) -> None:
    """Refuse an image that is opened and not yet decoded, if it is huge or has no white.

    Raises:
        RefusedError: more pixels, or larger tiles, than the limit, or numbers that are no
            brightness, or colors that Pillow cannot turn into RGB.
    """
    width, height = image.size
    if width * height > pixel_limit:
        raise RefusedError(f"huge: {width} x {height} pixels")
    slow = any(tile[0].startswith("ppm") for tile in getattr(image, "tile", ()))
    if slow and width * height > MOST_SLOW_PIXELS:
        raise RefusedError(
            f"huge: {width} x {height} pixels of text, or scaled, in a PNM file: save it as PNG"
        )
    tags: Any = getattr(image, "tag_v2", None)
    if image.format == "TIFF" and tags is not None:
        across, down = (int(tags.get(tag, 1)) for tag in (TILE_WIDTH, TILE_LENGTH))
        if across * down > max(pixel_limit, 1):
            raise RefusedError(f"huge: tiles of {across} x {down} pixels")
        if set(tags.get(SAMPLE_FORMAT, (1,))) != {1} or max(tags.get(BITS, (1,))) > 16:
            raise RefusedError(
                "a TIFF image of floating-point, signed or 32-bit values, for which white is not "
                "fixed: save it with 8 or 16 bits"
            )
    if image.mode in ("F", "LAB"):
        what = "floating-point values" if image.mode == "F" else "L*a*b* colors"
        raise RefusedError(f"an image of {what}: save it as RGB or gray, with 8 or 16 bits")


def eight_bits(image: Image.Image) -> Image.Image:
    """The image with values from 0 to 255, its transparent parts on white.

    Gray values of 16 bits are divided by 257 and rounded, those of a TIFF file of 12 bits by
    4095 / 255: black stays 0 and white becomes 255. Where a TIFF file says that white is zero,
    they are turned round.
    """
    if image.mode in SIXTEEN_BITS:
        tags: Any = getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}
        bits, inverted = max(tags.get(BITS, (16,))), tags.get(PHOTOMETRIC, 1) == 0
        values = np.rint(np.asarray(image).astype(np.float64) * (255 / (2**bits - 1)))
        values = values.clip(0, 255).astype(np.uint8)
        return Image.fromarray(255 - values if inverted else values)
    if image.has_transparency_data:
        over = image.convert("RGBA")
        white = Image.new("RGBA", over.size, "white")
        return Image.alpha_composite(white, over)
    return image


def unidentified(content: bytes) -> RefusedError:
    """The refusal of a file that Pillow cannot identify."""
    if content.startswith(TIFF_STARTS):
        return RefusedError(
            "a TIFF image of a kind that Pillow cannot read, or a broken one: save it as PNG"
        )
    return RefusedError(f"not a {FORMAT_NAMES} image, or a broken one")


@cache
def _ready(name: str, module: str) -> bool:
    """Whether Pillow opens AVIF or HEIF, by itself or by a plugin, which is registered then."""
    with suppress(ImportError, AttributeError):
        if name == "AVIF" and import_module("PIL.AvifImagePlugin").SUPPORTED:
            return True
    try:
        plugin = import_module(module)
    except ImportError:
        return False
    if name == "HEIF":
        plugin.register_heif_opener()
    return True


def _plugin(name: str, package: str) -> tuple[str, ...]:
    module = {"HEIF": "pillow_heif", "AVIF": "pillow_avif"}[name]
    if not _ready(name, module):
        kind = "a HEIC" if name == "HEIF" else "an AVIF"
        raise RefusedError(f"{kind} image, which needs {package}: pip install {package}")
    return (name,)


def _brands(content: bytes) -> set[bytes]:
    """The brands in the first box of an ISO media file; of another file none."""
    if content[4:8] != b"ftyp":
        return set()
    end = min(int.from_bytes(content[:4], "big"), 1024)
    return {content[8:12], *(content[at : at + 4] for at in range(16, end - 3, 4))}


def _most_tag_values(content: bytes) -> int:
    """The largest number of values in a tag of a TIFF file's first directory."""
    order = "<" if content[:1] == b"I" else ">"
    big = b"+" in content[2:4]
    first, entries, entry = ("Q", "Q", "HHQ8x") if big else ("I", "H", "HHI4x")
    most = 0
    with suppress(struct.error):  # a directory that is cut short is refused by Pillow
        (place,) = struct.unpack_from(order + first, content, 8 if big else 4)
        (number,) = struct.unpack_from(order + entries, content, place)
        place += struct.calcsize(order + entries)
        for at in range(min(number, 65_535)):
            size = struct.calcsize(order + entry)
            _, kind, count = struct.unpack_from(order + entry, content, place + at * size)
            most = max(most, 0 if kind in BYTE_TYPES else count)
    return most
