"""Thumbnails: small pictures as data URIs, links to their files, and a budget for many."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image

from protofission.pages.contact_sheets import Pixels, png_uri

LARGEST_SIDE = 112
"""Pixels of the longer side of a stored thumbnail; larger images are shrunk to it."""
CRISP_SIDE = 56
"""Images up to this side are stored as they are, and magnified with square pixels."""
ENCODINGS = ((1.0, 80), (1.0, 65), (1.0, 50), (1.0, 30), (0.7, 40), (0.5, 40), (0.25, 30))
"""Share of the side and JPEG quality, the best first: the first that fits is taken."""


def thumbnail_uri(image: Pixels, limit: int) -> str:
    """A picture as a data URI of at most `limit` characters, or the smallest there is.

    Args:
        image: (channels, height, width).
    """
    pixels = np.moveaxis(image, 0, -1)
    pixels = np.repeat(pixels[:, :, :1], 3, axis=2) if pixels.shape[2] < 3 else pixels[:, :, :3]
    pixels = np.ascontiguousarray(pixels)
    if is_crisp(image) and len(uri := png_uri(pixels)) <= limit:
        return uri
    picture = Image.fromarray(pixels)
    picture.thumbnail((LARGEST_SIDE, LARGEST_SIDE), Image.Resampling.LANCZOS)
    for share, quality in ENCODINGS:
        if len(uri := _jpeg_uri(picture, share, quality)) <= limit:
            break
    return uri


def is_crisp(image: Pixels) -> bool:
    """Whether an image is so small that it is magnified with square pixels."""
    return bool(max(image.shape[1:]) <= CRISP_SIDE)


def _jpeg_uri(picture: Image.Image, share: float, quality: int) -> str:
    if share < 1:
        width, height = (max(1, round(share * side)) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.LANCZOS)
    content = BytesIO()
    picture.save(content, "JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + b64encode(content.getvalue()).decode()


def file_link(file: Path, folder: Path) -> str:
    """The link from a page in a folder to a file: relative, or a URI where the drives differ.

    Args:
        file: absolute, as is `folder`; a name may have any characters and bytes.
    """
    try:
        relative = os.path.relpath(file, folder)
    except ValueError:
        return file.as_uri()
    return quote(os.fsencode(Path(relative).as_posix()))


def fair_limit(wanted: Sequence[int], total: int) -> int:
    """The largest limit with which the wants, each cut to it, sum to at most the total."""
    sizes = np.asarray(wanted, np.int64)
    low, high = 0, int(sizes.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        fits = int(np.minimum(sizes, middle).sum()) <= total
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
