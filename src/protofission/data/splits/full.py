"""All labels: for pretraining evaluated by nearest neighbors, and for supervised upper bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from protofission.data.splits.labeling import Labeling, all_but
from protofission.data.splits.spec import Parts, SplitSpec


@dataclass(frozen=True, kw_only=True)
class FullSplit(SplitSpec):
    """Ours: all classes are seen, every image that has a label is labeled; the rest is the pool.

    The test set is the official one.
    """

    name: str = field(default="full", init=False)

    def _check(self) -> None:
        """Accept everything: the split has no options."""

    def _parts(self, data: Labeling) -> Parts:
        labeled = np.flatnonzero(data.train >= 0)
        return Parts(
            seen=tuple(range(data.num_classes)),
            labeled=labeled,
            unlabeled=all_but(len(data.train), labeled),
            test=data.official_test(),
            test_on="test",
        )
