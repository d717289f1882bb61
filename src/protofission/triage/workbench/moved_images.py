"""Images that a refit decides otherwise than the model before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protofission.core.array_types import Ints
from protofission.core.errors import printable
from protofission.triage.folds import Mask

SHOWN_CLASSES_OF_MOVE = 5
"""Most classes that a sentence names."""
MOST_MOVED_ROWS = 1000
"""Most rows of each kind in a report."""


@dataclass(frozen=True, eq=False)
class Decided:
    """Decisions on n images."""

    accepted: Mask
    classes: Ints
    """(n,): ids of the likeliest classes."""


@dataclass(frozen=True, eq=False)
class MovedImages:
    """Images without a label that are decided otherwise than before."""

    accepted: Ints
    """Rows that are accepted now, and were not."""
    rejected: Ints
    """Rows that are not accepted any more."""
    renamed: Ints
    """Rows that are accepted before and now, into another class."""
    images: int
    """All images that were compared."""
    classes: tuple[Ints, Ints, Ints]
    """Ids of the class of each of these rows: now, before, and now."""

    def sentences(self, names: Mapping[int, str]) -> list[str]:
        """Each kind of change with its numbers by class; the largest first."""
        told = (
            ("accepted that was not before", "accepted that were not before"),
            ("rejected that was accepted before", "rejected that were accepted before"),
            ("accepted into another class than before",) * 2,
        )
        kinds = zip((self.accepted, self.rejected, self.renamed), self.classes, told, strict=True)
        lines = []
        for rows, classes, words in kinds:
            if not len(rows):
                continue
            one = len(rows) == 1
            counts = Counter(classes.tolist()).most_common()
            shown = [
                f"{printable(names[number])} {count:,}"
                for number, count in counts[:SHOWN_CLASSES_OF_MOVE]
            ]
            rest = sum(count for _, count in counts[SHOWN_CLASSES_OF_MOVE:])
            shown += [f"others {rest:,}"] if rest else []
            lines.append(
                f"{len(rows):,} of {self.images:,} images without a label "
                f"{'is' if one else 'are'} {words[0] if one else words[1]}: {', '.join(shown)}."
            )
        same = "No image is without a label."
        if self.images:
            same = f"None of the {self.images:,} images without a label is decided otherwise."
        return lines or [same]

    def facts(self) -> dict[str, Any]:
        """Numbers, and the first rows of each kind, as plain JSON values."""
        kinds = {"accepted": self.accepted, "rejected": self.rejected, "renamed": self.renamed}
        return {
            name: {"count": len(rows), "rows": rows[:MOST_MOVED_ROWS].tolist()}
            for name, rows in kinds.items()
        }


def moved_images(rows: Ints, before: Decided, after: Decided) -> MovedImages:
    """Compare the decisions on images before and after.

    Args:
        rows: (n,), the numbers of the images.
    """
    up, down = after.accepted & ~before.accepted, before.accepted & ~after.accepted
    other = before.accepted & after.accepted & (before.classes != after.classes)
    return MovedImages(
        rows[up],
        rows[down],
        rows[other],
        len(rows),
        (after.classes[up], before.classes[down], after.classes[other]),
    )
