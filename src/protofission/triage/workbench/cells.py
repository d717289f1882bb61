"""The cell of an image: its label, the label's source and its marks, in one number.

So an action on a million images is one assignment, and its undo another.
"""

from __future__ import annotations

from typing import get_args

from protofission.core.array_types import Ints
from protofission.triage.workbench.actions import UNLABELED, LabelSource

LABEL_SOURCES = ("none", "folder", *get_args(LabelSource))
"""Sources of labels, by their numbers: of no label, of the user's folders, of the screens."""

CONFIRMED, SKIPPED, DRAWN = 1, 2, 4
"""Marks: the label was confirmed, the image was skipped, it was drawn at random."""
_SOURCE_BIT, _LABEL_BIT, _SOURCE_MASK = 3, 8, 31
_NUMBER_OF_SOURCE = {name: number for number, name in enumerate(LABEL_SOURCES)}

BLANK = 0
"""The cell of an image without a label, a source and marks."""


def labeled_cell(label: int, source: str) -> int:
    """The cell of an image with a label and no marks."""
    return ((label - UNLABELED) << _LABEL_BIT) | (_NUMBER_OF_SOURCE[source] << _SOURCE_BIT)


def labels_of_cells(cells: Ints) -> Ints:
    """The labels of cells."""
    return (cells >> _LABEL_BIT) + UNLABELED


def sources_of_cells(cells: Ints) -> Ints:
    """The sources of cells, as places in LABEL_SOURCES."""
    return (cells >> _SOURCE_BIT) & _SOURCE_MASK


def with_labels(cells: Ints, labels: Ints | int) -> Ints:
    """Cells with other labels; sources and marks stay."""
    return (cells & ((1 << _LABEL_BIT) - 1)) | ((labels - UNLABELED) << _LABEL_BIT)
