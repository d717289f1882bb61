"""Pixels of the user's images, decoded from their files when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.errors import InputError
from protofission.data.readers.decode import Decoding, decode, quiet_pillow
from protofission.data.readers.image_formats import RefusedError
from protofission.system.processors import processors

GONE = 224
"""The gray of an image that is gone."""


class UserPixels:
    """(N, 3, side, side) bytes, read by rows; an image that is gone is gray with a dark cross.

    Args:
        read_file: gives the content of an image's file; raises InputError where it is gone.
        rows: (N,): the images, as `read_file` numbers them.
        side: height and width that images are decoded to.
    """

    def __init__(self, read_file: Callable[[int], bytes], rows: Ints, side: int) -> None:
        self._read_file, self._rows = read_file, rows
        self._decoding = Decoding(side, side)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, 3, side, side)."""
        return len(self._rows), *self._decoding.shape

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: slice | NDArray[np.int64], /) -> NDArray[np.uint8]:
        """The pixels of some images, decoded now."""
        numbers = self._rows[rows].tolist()
        found = np.empty((len(numbers), *self._decoding.shape), np.uint8)
        with quiet_pillow(), ThreadPoolExecutor(processors()) as threads:
            for place, pixels in enumerate(threads.map(self._decode, numbers)):
                found[place] = pixels
        return found

    def _decode(self, row: int) -> NDArray[np.uint8]:
        try:
            return decode(self._read_file(row), self._decoding)
        except (InputError, RefusedError):
            return cross(self._decoding.height)


def cross(side: int) -> NDArray[np.uint8]:
    """(3, side, side): the picture of an image that is gone."""
    found = np.full((3, side, side), GONE, np.uint8)
    diagonal = np.arange(side)
    found[:, diagonal, diagonal] = found[:, diagonal, diagonal[::-1]] = GONE // 2
    return found
