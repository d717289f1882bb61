"""Memory-mapped arrays: pages that were read count as memory of the process until released."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FAULT = 2**21
"""Bytes that reading one byte may bring into memory: a large page."""


def release(array: object) -> None:
    """Release the pages of a memory-mapped array; later reads come from the file again."""
    pages = getattr(array, "_mmap", None)
    if isinstance(array, np.memmap) and pages is not None and hasattr(pages, "madvise"):
        pages.madvise(mmap.MADV_DONTNEED)


class MappedRows:
    """Reads rows of a memory-mapped array by number, and keeps a bounded part of it in memory."""

    def __init__(self, array: NDArray[Any], bound: int) -> None:
        """An array of at most `bound` bytes may be in memory as a whole."""
        self.array = array
        touched = FAULT + array[:1].nbytes
        self._at_once = None if array.nbytes <= bound else max(1, bound // touched)

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of the rows of these numbers."""
        if self._at_once is None or not len(rows):
            return self.array.take(rows, 0)
        found = np.empty((len(rows), *self.array.shape[1:]), self.array.dtype)
        for start in range(0, len(rows), self._at_once):
            part = slice(start, start + self._at_once)
            found[part] = self.array.take(rows[part], 0)
            release(self.array)
        return found


class JoinedRows:
    """Rows of several arrays, one after another, read as one array; none of them is copied.

    Args:
        parts: arrays of one type and row shape, each with the numbers of the rows that are taken.
    """

    def __init__(self, parts: Sequence[tuple[Any, NDArray[np.int64]]]) -> None:
        self._parts = list(parts)
        self._ends = np.cumsum([len(rows) for _, rows in parts])
        self._first = parts[0][0]

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, ...)."""
        return (len(self), *self._first.shape[1:])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, rows: slice | NDArray[np.int64], /) -> NDArray[Any]:
        """A copy of some rows, by a slice or by their numbers from 0 on."""
        numbers = np.arange(len(self))[rows]
        found = np.empty((len(numbers), *self._first.shape[1:]), self._first.dtype)
        part_of = np.searchsorted(self._ends, numbers, side="right")
        for number, (array, taken) in enumerate(self._parts):
            own = part_of == number
            found[own] = array[taken[numbers[own] - self._ends[number] + len(taken)]]
            release(array)
        return found
