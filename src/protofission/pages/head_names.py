"""The class that a head stands for: its own if it is seen, else that of most of its images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from protofission.core.metrics import Counts


def head_order(counts: Counts, num_seen: int) -> list[int]:
    """The order of heads as columns of the confusion matrix: novel ones by their matched classes.

    The matching is that of the strict protocol: novel classes with novel heads.

    Args:
        counts: (classes, heads), one head for each class.
    """
    _, matched = linear_sum_assignment(counts[num_seen:, num_seen:], maximize=True)
    return [*range(num_seen), *(num_seen + matched).tolist()]


@dataclass(frozen=True)
class Meaning:
    """The title of a head on a page, and the class that it stands for."""

    title: str
    stands_for: int | None
    """The class whose images belong on the head; None for a novel head without images."""


def meaning(head: int, counts: Counts, num_seen: int, names: Sequence[str]) -> Meaning:
    """The meaning of a head: its class if it is a seen one, else that of most of its images."""
    if head < num_seen:
        return Meaning(names[head], head)
    if not counts[:, head].any():
        return Meaning("novel cluster (no images)", None)
    most = int(np.argmax(counts[:, head]))
    known = ", a known class" if most < num_seen else ""
    return Meaning(f"novel cluster (mostly {names[most]}{known})", most)
