"""Features of no use: NaN, infinity, and vectors of zeros, which have no direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from protofission.core.errors import InputError, printable
from protofission.core.records import ViewName
from protofission.data.store.manifest import Block, Features, Plan

SHOWN = 10
"""Images that a refusal names."""

_EXPONENT = np.uint16(0x7C00)
_MAGNITUDE = np.uint16(0x7FFF)


class Faults:
    """The images whose features are of no use, gathered block by block and refused together.

    Args:
        paths: where the images of a part came from, if they were files.
    """

    def __init__(self, plan: Plan, paths: Mapping[str, Sequence[str]]) -> None:
        self._plan, self._paths = plan, paths
        self._found: list[str] = []

    def found_in(self, block: Block, features: Mapping[ViewName, Features]) -> bool:
        """Whether a block has such images; where it has no others, they are refused at once."""
        bad: dict[int, str] = {}
        for view, values in features.items():
            bits = np.ascontiguousarray(values).view(np.uint16).reshape(*values.shape[:2], -1)
            endless = ((bits & _EXPONENT) == _EXPONENT).any((1, 2))
            zero = ((bits & _MAGNITUDE) == 0).all(2).any(1) & (len(self._plan.item) == 1)
            for what, rows in (("NaN, infinity or more than 65504", endless), ("only 0", zero)):
                for row in np.flatnonzero(rows).tolist():
                    bad.setdefault(row, f"{what} in its {view} features")
        self._found += [self._words(block, row, bad[row]) for row in sorted(bad)]
        if len(bad) == block.stop - block.start:
            self.refuse()
        return bool(bad)

    def refuse(self) -> None:
        """Refuse the images that were found, if there are any."""
        if not self._found:
            return
        more = len(self._found) - SHOWN
        named = "; ".join([*self._found[:SHOWN], *([f"and {more:,} more"] if more > 0 else [])])
        few = len(self._found) == 1
        raise InputError(
            f"{len(self._found):,} image{' has' if few else 's have'} features of no use: {named}: "
            f"leave {'it' if few else 'them'} out, or choose another encoder."
        )

    def _words(self, block: Block, row: int, what: str) -> str:
        place, paths = block.start + row, self._paths.get(block.part)
        named = f" ({printable(paths[place])})" if paths else ""
        return f"{block.part} image {place}{named} has {what}"
