"""Decode image files to pixels of one size. Files are untrusted: bad ones are refused in words."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from protofission.core.errors import require
from protofission.data.readers.image_formats import (
    RefusedError,
    check_content,
    check_opened,
    eight_bits,
    formats_of,
    plugin_versions,
    unidentified,
)

ORIENTATION = 0x0112
"""The EXIF tag of the camera's orientation."""
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Decoding:
    """The settings by which image files are decoded to arrays of one size.

    An image is turned as EXIF says, put on white where it is transparent, scaled from 16 bits to 8,
    resized (bicubic, antialiased) to cover height x width, and cropped to its center. A JPEG file
    that is far larger is first decoded at a half, a quarter or an eighth of its size.
    """

    height: int
    width: int
    channels: int = 3
    """3, or 1 for gray."""
    pixel_limit: int = 89_478_485
    """An image of more pixels is refused before it is decoded; by default Pillow's own limit."""
    byte_limit: int = 2**28
    """A file of more bytes is refused before it is read."""

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            value = getattr(self, name)
            require(1 <= value <= 4096, f"{name} = {value}: give 1 to 4096 pixels.")
        require(self.channels in (1, 3), f"channels = {self.channels}: give 3, or 1 for gray.")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.channels, self.height, self.width

    def settings(self) -> dict[str, object]:
        """All that the pixels depend on besides the files, as JSON values."""
        return {**asdict(self), "pillow": PIL.__version__, **plugin_versions()}


def height_and_width(size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of a size; one number stands for both."""
    if isinstance(size, int):
        return size, size
    require(len(size) == 2, f"size = {size}: give (height, width), or one number for both.")
    return size


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Silence Pillow's warnings, and make decompression bombs errors; the report names them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def decode(content: bytes, to: Decoding) -> NDArray[np.uint8]:
    """Decode a file's first frame or page to (channels, height, width), uint8.

    Raises:
        RefusedError: it is empty, corrupt, truncated, huge, or no image.
    """
    if not content:
        raise RefusedError("an empty file")
    if len(content) > to.byte_limit:
        raise RefusedError(f"huge: more than {to.byte_limit:,} bytes")
    try:
        check_content(content)
        with Image.open(io.BytesIO(content), formats=formats_of(content)) as image:
            check_opened(image, to.pixel_limit)
            side = 2 * max(to.height, to.width)
            image.draft(None, (side, side))
            image.load()
            plain = eight_bits(image).convert("RGB" if to.channels == 3 else "L")
            turn = TURNS.get(_orientation(image))
            upright = plain if turn is None else plain.transpose(turn)
            pixels = np.asarray(_cover(upright, to.height, to.width))
    except RefusedError:
        raise
    except UnidentifiedImageError:
        raise unidentified(content) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise RefusedError("huge: more pixels than Pillow's limit against bombs") from None
    except Exception as error:  # decoders raise what they like; no file may stop the others
        raise RefusedError(f"corrupt or truncated ({type(error).__name__}: {error})") from None
    return np.ascontiguousarray(pixels.reshape(to.height, to.width, -1).transpose(2, 0, 1))


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1, upright, if EXIF is missing or broken."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # the image itself may be sound
        return 1


def _cover(image: Image.Image, height: int, width: int) -> Image.Image:
    """Crop the largest central part of the wanted proportions, and resize it."""
    scale = max(width / image.width, height / image.height)
    across, down = width / scale, height / scale
    left, top = max(0.0, (image.width - across) / 2), max(0.0, (image.height - down) / 2)
    box = (left, top, min(image.width, left + across), min(image.height, top + down))
    return image.resize((width, height), Image.Resampling.BICUBIC, box)
