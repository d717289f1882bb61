"""Cells of the comparison: known classes, labels, a pool with strangers, and test images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]

MOST_KNOWN, MOST_STRANGE, MOST_POOL = 20, 40, 2700
TEST_SHARE, FEWEST_TEST, FEWEST_POOL = 0.3, 20, 10


class Cell(NamedTuple):
    """One comparison."""

    set: str
    draw: int
    labels: int
    """Labels of each class."""
    share: float
    """Share of strangers in the pool."""


class Scene(NamedTuple):
    """The rows of a cell; classes are 0 ... S - 1 where known, and S, S + 1, ... of strangers."""

    known: int
    strange: int
    labeled: Floats
    labels: Ints
    pool: Floats
    pool_truth: Ints
    test: Floats
    truth: Ints

    @property
    def is_known(self) -> NDArray[np.bool_]:
        return self.truth < self.known


def draw_scene(cell: Cell, features: Floats, labels: Ints) -> Scene:
    """Draw a cell from a set; the rows depend on the labels of the set alone, not on features."""
    names = np.unique(labels)
    order = np.random.default_rng([cell.draw, 77]).permutation(names)
    known = min(len(names) // 2, MOST_KNOWN)
    strange = min(len(names) - known, MOST_STRANGE)
    random = np.random.default_rng([cell.draw, cell.labels, round(100 * cell.share)])
    parts: dict[str, list[tuple[int, int]]] = {"labels": [], "known": [], "strange": [], "test": []}
    for number, name in enumerate(order[: known + strange]):
        rows = random.permutation(np.flatnonzero(labels == name))
        test = max(FEWEST_TEST, round(TEST_SHARE * len(rows)))
        given = cell.labels if number < known else 0
        if len(rows) < test + given + 1:
            raise ValueError(f"class {name} of {cell.set} has {len(rows)} images: too few")
        parts["test"] += [(row, number) for row in rows[:test]]
        parts["labels"] += [(row, number) for row in rows[test : test + given]]
        parts["known" if given else "strange"] += [(row, number) for row in rows[test + given :]]
    insiders, outsiders = (random.permutation(np.array(parts[n])) for n in ("known", "strange"))
    size = min(MOST_POOL, len(insiders) / (1 - cell.share), len(outsiders) / cell.share)
    pool = np.concatenate(
        [insiders[: round(size * (1 - cell.share))], outsiders[: round(size * cell.share)]]
    )
    if len(pool) < FEWEST_POOL:
        raise ValueError(f"a pool of {len(pool)} images is too small")
    rows, test = np.array(parts["labels"]), np.array(parts["test"])
    return Scene(
        known,
        strange,
        *(features[rows[:, 0]], rows[:, 1]),
        *(features[pool[:, 0]], pool[:, 1]),
        *(features[test[:, 0]], test[:, 1]),
    )
