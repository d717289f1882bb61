"""Small image files for the tests of folders, lists and decoding."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def noise(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """A picture that equals no other, (height, width, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def encoded(image: Image.Image | NDArray[Any], kind: str = "PNG", **options: Any) -> bytes:
    """The content of an image file."""
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def write(path: Path, content: bytes) -> Path:
    """A file, with the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def picture(path: Path, seed: int, side: int = 8) -> Path:
    """A PNG file whose pixels its seed tells."""
    return write(path, encoded(noise(side, side, seed)))
