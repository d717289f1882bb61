"""Arrays that lie in files: their pages count as memory of the process until they are released."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

FAULT = 2**21
"""Bytes that the touch of one byte may bring in: a large page."""


def release(array: NDArray[Any]) -> None:
    """Give back the pages of a memory-mapped array; what is read again comes from the file."""
    pages = getattr(array, "_mmap", None)
    if isinstance(array, np.memmap) and pages is not None and hasattr(pages, "madvise"):
        pages.madvise(mmap.MADV_DONTNEED)


class Rows:
    """Rows of a memory-mapped array by number, of which a bounded part is held in memory."""

    def __init__(self, array: NDArray[Any], bound: int) -> None:
        """The array as it is where it is no larger than `bound` bytes."""
        self.array = array
        touched = FAULT + array[:1].nbytes
        self._at_once = None if array.nbytes <= bound else max(1, bound // touched)

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of some rows."""
        if self._at_once is None or not len(rows):
            return self.array.take(rows, 0)
        found = np.empty((len(rows), *self.array.shape[1:]), self.array.dtype)
        for start in range(0, len(rows), self._at_once):
            part = slice(start, start + self._at_once)
            found[part] = self.array.take(rows[part], 0)
            release(self.array)
        return found
