"""Splits by name: each is a protocol with options, and the same on every machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from protofission.core.errors import InputError, unknown
from protofission.data.splits.animals import Ds3lCodeSplit, OliverSplit
from protofission.data.splits.coarse import CoarseSplit
from protofission.data.splits.full import FullSplit
from protofission.data.splits.labeling import Labeling
from protofission.data.splits.mismatch import ControlledSplit, Ds3lSplit
from protofission.data.splits.openset import IoMatchSplit, OpenMatchSplit
from protofission.data.splits.openworld import GcdSplit, OpenLdnSplit, OrcaSplit
from protofission.data.splits.spec import SplitSpec, build_spec
from protofission.data.splits.split import SPLIT_PARTS, Indices, Split

SPLITS: dict[str, type[SplitSpec]] = {
    "orca": OrcaSplit,
    "ds3l": Ds3lSplit,
    "ds3l-code": Ds3lCodeSplit,
    "oliver": OliverSplit,
    "openmatch": OpenMatchSplit,
    "iomatch": IoMatchSplit,
    "gcd": GcdSplit,
    "openldn": OpenLdnSplit,
    "controlled": ControlledSplit,
    "coarse": CoarseSplit,
    "full": FullSplit,
}


def find_split(
    name: str, options: Mapping[str, object] | None = None, *, seed: int = 0
) -> SplitSpec:
    """The protocol of a name; each option is a value of its type, or text such as "0.3" or "2,3,5".

    Raises:
        InputError: an unknown name or option, or a value that does not fit.
    """
    if name not in SPLITS:
        raise unknown("split", name, SPLITS)
    return build_spec(SPLITS[name], {"seed": seed, **(options or {})})


def verify(split: Split, data: Labeling) -> None:
    """Make the split again from its name, options and seed, and compare.

    Raises:
        InputError: the two differ; the sentence lists the differences.
    """
    found = differences(split, data)
    if found:
        raise InputError(
            f"The split {split.name!r} is not the one that its name, options and seed make of "
            f"this data set: {'; '.join(found)}."
        )


def differences(split: Split, data: Labeling) -> list[str]:
    """Differences, in words, of a split from the one that its name, options and seed make."""
    made = find_split(split.name, split.options, seed=split.seed).split(data)
    found = []
    for key in ("sizes", "classes", "test_on", "seen_classes", "novel_classes"):
        here, there = getattr(split, key), getattr(made, key)
        if here != there:
            found.append(f"{key} is {here}, but should be {there}")
    for part in SPLIT_PARTS:
        extra = np.setdiff1d(getattr(split, part), getattr(made, part))
        missing = np.setdiff1d(getattr(made, part), getattr(split, part))
        if len(extra) or len(missing):
            first = min([*extra[:1].tolist(), *missing[:1].tolist()])
            found.append(
                f"{part} has {len(extra):,} images too many and lacks {len(missing):,}, "
                f"the first of them {first}"
            )
        elif split.counts.get(part) != made.counts[part]:
            found.append(f"the counts of {part} are not those of its images")
    return found


def orca_split(
    labels: Indices,
    num_classes: int,
    *,
    num_seen: int | None = None,
    labeled_share: float = 0.5,
    seed: int = 0,
    pool_has_labeled: bool = False,
) -> Split:
    """ORCA's split of (N,) labels in file order; see `OrcaSplit`."""
    spec = OrcaSplit(
        num_seen=num_seen,
        labeled_share=labeled_share,
        seed=seed,
        pool_has_labeled=pool_has_labeled,
    )
    return spec.split(Labeling(labels, num_classes))
