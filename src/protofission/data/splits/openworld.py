"""Open-world protocols: a share of the seen images is labeled, all others form the pool."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from protofission.core.errors import require
from protofission.data.splits.labeling import Labeling, all_but, join
from protofission.data.splits.spec import Parts, SplitSpec, check_share, first_classes
from protofission.data.splits.split import Indices


@dataclass(frozen=True, kw_only=True)
class OrcaSplit(SplitSpec):
    """ORCA's: the first classes are seen, each seen image is labeled by a draw of its own.

    As in its code, NumPy's legacy generator draws one number for each *seen* image in file order; a
    number below `labeled_share` makes the image labeled. The rest is the unlabeled pool, and the
    test set as well. Images without a label are in the pool only.
    """

    name: str = field(default="orca", init=False)
    num_seen: int | None = None
    """S: the first S classes are seen; by default half of them."""
    labeled_share: float = 0.5
    """The chance that a seen image is labeled."""
    pool_has_labeled: bool = False
    """Whether the labeled images are in the pool as well, as in FixMatch; never in the test set."""

    def _check(self) -> None:
        check_share("labeled_share", self.labeled_share)

    def _parts(self, data: Labeling) -> Parts:
        seen = first_classes(self.num_seen, data.num_classes // 2, data.num_classes)
        candidates = np.flatnonzero((data.train >= 0) & (data.train < len(seen)))
        draws = np.random.RandomState(self.seed).random_sample(len(candidates))
        labeled = candidates[draws < self.labeled_share]
        return _pool_is_test(data, seen, labeled, self.pool_has_labeled)


@dataclass(frozen=True, kw_only=True)
class GcdSplit(SplitSpec):
    """GCD's and SimGCD's: half of the seen images are labeled, whatever their class.

    As in their code, the first 80 of 100 classes are seen, the first half otherwise; of the n seen
    images, `int(labeled_share * n)` are drawn by NumPy's legacy generator and labeled. The rest is
    the pool and, as in their tables, the test set. Their code always draws with seed 0; here the
    seed counts.
    """

    name: str = field(default="gcd", init=False)
    num_seen: int | None = None
    """S: the first S classes are seen; by default 80 of 100, or half of any other number."""
    labeled_share: float = 0.5
    """The share of the seen images that are labeled."""

    def _check(self) -> None:
        check_share("labeled_share", self.labeled_share)

    def _parts(self, data: Labeling) -> Parts:
        default = 80 if data.num_classes == 100 else data.num_classes // 2
        seen = first_classes(self.num_seen, default, data.num_classes)
        candidates = np.flatnonzero((data.train >= 0) & (data.train < len(seen)))
        size = int(self.labeled_share * len(candidates))
        drawn = np.random.RandomState(self.seed).permutation(len(candidates))[:size]
        return _pool_is_test(data, seen, candidates[drawn], pool_has_labeled=False)


@dataclass(frozen=True, kw_only=True)
class OpenLdnSplit(SplitSpec):
    """OpenLDN's: a share of each seen class is labeled; the test set is the official one.

    As in its code, each class, novel ones included, is shuffled by NumPy's legacy generator. Of its
    n images, the first `ceil(labeled_share * n)` are labeled if it is seen, and the last
    `int(validation_share * n)`, at least one, are validation images. The rest, and images without a
    label, are the pool. Its code draws anew in every run: the seed is ours. There, labeled images
    can be validation images as well; here that is refused.
    """

    name: str = field(default="openldn", init=False)
    num_seen: int | None = None
    """S: the first S classes are seen; by default half of them, rounded up."""
    labeled_share: float = 0.5
    """The share of each seen class that is labeled."""
    validation_share: float = 0.01
    """The share of every class that is held out for validation."""

    def _check(self) -> None:
        check_share("labeled_share", self.labeled_share)
        check_share("validation_share", self.validation_share, ends="0")

    def _parts(self, data: Labeling) -> Parts:
        default = data.num_classes - data.num_classes // 2
        seen = first_classes(self.num_seen, default, data.num_classes)
        generator = np.random.RandomState(self.seed)
        labeled, validation = [], []
        for label in range(data.num_classes):
            order = data.members(label)
            generator.shuffle(order)
            wanted = math.ceil(len(order) * self.labeled_share) if label in seen else 0
            left_out = max(int(len(order) * self.validation_share), 1)
            data.check_enough(
                label,
                len(order),
                max(wanted, label in seen) + left_out,
                "lower labeled_share or validation_share, or add images",
            )
            labeled.append(order[:wanted])
            validation.append(order[len(order) - left_out :])
        chosen, left = join(labeled), join(validation)
        return Parts(
            seen=seen,
            labeled=chosen,
            unlabeled=all_but(len(data.train), chosen, left),
            validation=left,
            test=data.official_test(),
            test_on="test",
        )


def _pool_is_test(
    data: Labeling, seen: tuple[int, ...], labeled: Indices, pool_has_labeled: bool
) -> Parts:
    """The parts of a protocol whose test set is the pool; each seen class needs a labeled image."""
    for label in seen:
        require(
            bool((data.train[labeled] == label).any()),
            f"{data.describe(label)} has no labeled image among its {len(data.members(label)):,}: "
            "raise labeled_share or add images.",
        )
    rest = all_but(len(data.train), labeled)
    return Parts(
        seen=seen,
        labeled=labeled,
        unlabeled=np.arange(len(data.train)) if pool_has_labeled else rest,
        test=rest[data.train[rest] >= 0],
        test_on="train",
    )
