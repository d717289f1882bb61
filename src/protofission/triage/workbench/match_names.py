"""Carry the names that a person gave to sub-classes and clusters over to those of a refit.

Old and new groups are matched one to one so that they share as many images as possible. A name goes
on if the two share at least half of the images of the smaller one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from protofission.core.array_types import Ints
from protofission.core.errors import quoted

LEAST_SHARED = 0.5
"""Least share of the smaller group that two groups have in common, if they are one."""
NO_SUCCESSOR = -1
SHOWN_PLACES = 3
"""Most places that a sentence names."""


@dataclass(frozen=True, eq=False)
class NamedGroup:
    """A group of images that a person named."""

    name: str
    rows: Ints


@dataclass(frozen=True, eq=False)
class NameMatch:
    """A name, and the new group that it is now the name of."""

    name: str
    successor: int
    """The number of the new group, or NO_SUCCESSOR."""
    size: int
    """Images of the old group."""
    shared: int
    """Images of the old group that are in the new one."""
    sentence: str


def match_groups(old: Sequence[Ints], new: Sequence[Ints]) -> Ints:
    """(old,): the new group that each old one became, or NO_SUCCESSOR.

    Args:
        old: rows of each group; a row is in one group at most.
        new: the same.
    """
    shared = count_shared(old, new)
    sizes = np.array([len(rows) for rows in old]), np.array([len(rows) for rows in new])
    smaller = np.minimum.outer(sizes[0], sizes[1]) if len(old) and len(new) else shared
    one = (shared > 0) & (shared >= LEAST_SHARED * smaller)
    found = np.full(len(old), NO_SUCCESSOR)
    for place, successor in zip(*linear_sum_assignment(-(shared * one)), strict=True):
        if one[place, successor]:
            found[place] = successor
    return found


def count_shared(old: Sequence[Ints], new: Sequence[Ints]) -> Ints:
    """(old, new): the number of images that two groups have in common."""
    found = np.zeros((len(old), len(new)), np.int64)
    if not len(old) or not len(new):
        return found
    rows = np.concatenate(new)
    group = np.full(int(max(rows.max(initial=-1), *(own.max(initial=-1) for own in old))) + 1, -1)
    group[rows] = np.repeat(np.arange(len(new)), [len(own) for own in new])
    for place, own in enumerate(old):
        inside = group[own]
        found[place] = np.bincount(inside[inside >= 0], minlength=len(new))
    return found


def match_names(
    old: Sequence[NamedGroup], new: Sequence[Ints], place_of: Sequence[str]
) -> list[NameMatch]:
    """Find the new group of each name, with a sentence on its images.

    Args:
        new: rows of each new group.
        place_of: (N,): the place of each image now, in words.
    """
    successors = match_groups([group.rows for group in old], new)
    return [
        _match(group, int(successor), new, place_of)
        for group, successor in zip(old, successors, strict=True)
    ]


def _match(
    group: NamedGroup, successor: int, new: Sequence[Ints], place_of: Sequence[str]
) -> NameMatch:
    shown, size = quoted(group.name), len(group.rows)
    if successor == NO_SUCCESSOR:
        where = Counter(place_of[row] for row in group.rows.tolist()).most_common()
        told = ", ".join(f"{place} ({count:,})" for place, count in where[:SHOWN_PLACES])
        rest = sum(count for _, count in where[SHOWN_PLACES:])
        told += f" and elsewhere ({rest:,})" if rest else ""
        said = f": its {size:,} image{'s are' if size != 1 else ' is'} now {told}" if size else ""
        return NameMatch(group.name, successor, size, 0, f"{shown} has no successor{said}.")
    shared = int(np.isin(group.rows, new[successor]).sum())
    joined = len(new[successor]) - shared
    more = f", and {joined:,} other{'s' * (joined != 1)} joined" if joined else ""
    return NameMatch(
        group.name,
        successor,
        size,
        shared,
        f"{shown} keeps {shared:,} of {size:,} image{'s' * (size != 1)}{more}.",
    )
