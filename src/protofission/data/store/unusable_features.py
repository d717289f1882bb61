"""Find and refuse unusable features: NaN, infinity, and zero vectors, which have no direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from protofission.core.errors import InputError, printable
from protofission.core.records import ViewName
from protofission.data.store.manifest import Block, Features, StorePlan

SHOWN_IMAGES = 10
"""The number of images that a refusal names."""

_EXPONENT = np.uint16(0x7C00)
_MAGNITUDE = np.uint16(0x7FFF)


class UnusableFeatures:
    """The images with unusable features: collected block by block, refused together.

    Args:
        paths: the files of the images, by part, if they were files.
    """

    def __init__(self, plan: StorePlan, paths: Mapping[str, Sequence[str]]) -> None:
        self._plan, self._paths = plan, paths
        self._found: list[str] = []

    def check_block(self, block: Block, features: Mapping[ViewName, Features]) -> bool:
        """Collect the images of a block whose features are unusable.

        Returns:
            Whether there are any.

        Raises:
            InputError: all images of the block are unusable.
        """
        bad: dict[int, str] = {}
        for view, values in features.items():
            bits = np.ascontiguousarray(values).view(np.uint16).reshape(*values.shape[:2], -1)
            infinite = ((bits & _EXPONENT) == _EXPONENT).any((1, 2))
            zero = ((bits & _MAGNITUDE) == 0).all(2).any(1) & (len(self._plan.item) == 1)
            for what, rows in (("NaN, infinity or more than 65504", infinite), ("only 0", zero)):
                for row in np.flatnonzero(rows).tolist():
                    bad.setdefault(row, f"{what} in its {view} features")
        self._found += [self._words(block, row, bad[row]) for row in sorted(bad)]
        if len(bad) == block.stop - block.start:
            self.refuse()
        return bool(bad)

    def refuse(self) -> None:
        """Refuse the images that were found.

        Raises:
            InputError: there are any.
        """
        if not self._found:
            return
        more = len(self._found) - SHOWN_IMAGES
        named = "; ".join(
            [*self._found[:SHOWN_IMAGES], *([f"and {more:,} more"] if more > 0 else [])]
        )
        few = len(self._found) == 1
        raise InputError(
            f"{len(self._found):,} image{' has' if few else 's have'} unusable features: {named}: "
            f"leave {'it' if few else 'them'} out, or choose another encoder."
        )

    def _words(self, block: Block, row: int, what: str) -> str:
        place, paths = block.start + row, self._paths.get(block.part)
        named = f" ({printable(paths[place])})" if paths else ""
        return f"{block.part} image {place}{named} has {what}"
