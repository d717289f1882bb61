"""Names of heads: a seen one has its class's, a novel one that of most of its images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from protofission.core.metrics import Counts


def head_order(counts: Counts, num_seen: int) -> list[int]:
    """The order of heads as columns of the confusion matrix: novel ones under their classes.

    The matching is that of the strict protocol: novel classes with novel heads.

    Args:
        counts: (classes, heads), one head for each class.
    """
    _, matched = linear_sum_assignment(counts[num_seen:, num_seen:], maximize=True)
    return [*range(num_seen), *(num_seen + matched).tolist()]


@dataclass(frozen=True)
class Meaning:
    """The title of a head, and the class that it stands for."""

    title: str
    stands_for: int | None
    """The class whose images belong on the head; none if the head has no image to tell."""


def meaning(head: int, counts: Counts, num_seen: int, names: Sequence[str]) -> Meaning:
    """The meaning of a head: its class if it is a seen one, else that of most of its images."""
    if head < num_seen:
        return Meaning(names[head], head)
    if not counts[:, head].any():
        return Meaning("novel cluster (no images)", None)
    most = int(np.argmax(counts[:, head]))
    known = ", a known class" if most < num_seen else ""
    return Meaning(f"novel cluster (mostly {names[most]}{known})", most)
