"""Sets of images that a screen asks for by name, in the order in which it shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Floats, Ints
from protofission.core.errors import InputError, printable, quoted, require, unknown
from protofission.triage.calibrated_model import ACCEPT, DECISIONS
from protofission.triage.workbench.actions import NONE, UNLABELED

BORDERLINE_SHARE, BORDERLINE_FEWEST = 0.1, 24
"""The share of a class's images, and the fewest, that are called borderline."""
LONGEST_SET = 60
"""Most characters of the name of a set."""
SET_NAMES = (
    *("all", "unlabeled", "labeled", "none", "skipped", "random", "decision:reject", "label:3"),
    *("class:3:accepted", "subclass:3:0", "cluster:2"),
)
"""Examples of all kinds of sets, for a refusal."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ImageTable:
    """The facts of all N images after an action, an array each."""

    last_action: int
    num_labeled: int
    """L: the images that were labeled when the model was fitted come first."""
    classes: Ints
    """(N,): the likeliest class that is left after merges."""
    model_classes: Ints
    """(N,): the likeliest class of the model itself, which may be part of another one now."""
    probability: Floats
    id_scores: Floats
    decisions: Ints
    """(N,): indices into DECISIONS."""
    labels: Ints
    """(N,): a class, NONE or UNLABELED."""
    skipped: Mask
    subclasses: Ints
    """(N,): sub-classes of `model_classes`, after merges."""
    members: Ints
    """(N,): the same of images that are accepted or labeled so, else -1."""
    clusters: Ints
    """(N,): clusters after merges and splits, or -1."""
    open_clusters: Ints
    """(N,): the same of images without a label, else -1."""
    typicality: Floats
    """(N,): higher is more typical of the image's cluster."""
    random: Ints
    """Images that were drawn at random, in that order."""
    threshold: float
    living: frozenset[int]
    """Classes that are left after merges."""

    @property
    def pool(self) -> Mask:
        """(N,): images of the pool."""
        return np.arange(len(self.labels)) >= self.num_labeled

    def to_decide(self, class_id: int) -> Mask:
        """(N,): images of the pool without a label that look most like a class."""
        found: Mask = self.pool & (self.labels == UNLABELED) & (self.classes == class_id)
        return found


def rows_of_set(table: ImageTable, name: str) -> Ints:
    """The rows of a set in the order of its screen.

    Raises:
        InputError: there is no such set.
    """
    require(len(name) <= LONGEST_SET, "The name of a set of images is too long.")
    kind, *parts = name.split(":")
    if kind not in IMAGE_SETS or len(parts) != IMAGE_SETS[kind][0]:
        raise unknown("set of images", printable(name), SET_NAMES)
    return IMAGE_SETS[kind][1](table, *parts)


def _where(mask: Mask) -> Ints:
    return np.flatnonzero(mask)


def _best_first(mask: Mask, keys: Floats) -> Ints:
    rows = np.flatnonzero(mask)
    return rows[np.argsort(-keys[rows], kind="stable")]


def _number(text: str, what: str) -> int:
    require(
        text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 10,
        f"{what} {quoted(text)} is no whole number.",
    )
    return int(text)


def check_class(table: ImageTable, number: int) -> int:
    """Refuse a class that is not there, or not any more."""
    require(number in table.living, f"There is no class {number}: it was merged, or never made.")
    return number


def _class_set(table: ImageTable, class_id: str, part: str) -> Ints:
    number = check_class(table, _number(class_id, "The class"))
    open_ones, accepted = table.to_decide(number), table.decisions == ACCEPT
    match part:
        case "accepted":
            return _best_first(open_ones & accepted, table.id_scores)
        case "rejected":
            return _best_first(open_ones & ~accepted, table.id_scores)
        case "borderline":
            return borderline(table, open_ones)
        case "labeled":
            return _where(table.labels == number)
    raise unknown("part of a class", printable(part), CLASS_PARTS)


CLASS_PARTS = ("accepted", "borderline", "rejected", "labeled")


def borderline(table: ImageTable, among: Mask) -> Ints:
    """Images nearest to the threshold on both sides, the nearest first."""
    rows = np.flatnonzero(among)
    if not np.isfinite(table.threshold):
        return rows[:0]
    # By ranks, not by scores: these are far from even on the two sides.
    order = rows[np.argsort(table.id_scores[rows], kind="stable")]
    place = int(np.searchsorted(table.id_scores[order], table.threshold))
    distance = np.abs(np.arange(len(order)) + 0.5 - place)
    most = min(len(order), max(BORDERLINE_FEWEST, round(BORDERLINE_SHARE * len(order))))
    return order[np.argsort(distance, kind="stable")[:most]]


def _decision_set(table: ImageTable, decision: str) -> Ints:
    if decision not in DECISIONS:
        raise unknown("decision", printable(decision), DECISIONS)
    chosen = table.pool & (table.decisions == DECISIONS.index(decision))
    return _best_first(chosen, table.id_scores)


def _label_set(table: ImageTable, class_id: str) -> Ints:
    return _where(table.labels == check_class(table, _number(class_id, "The class")))


def _subclass_set(table: ImageTable, class_id: str, number: str) -> Ints:
    own, part = _number(class_id, "The class"), _number(number, "Sub-class")
    require(part >= 0, f"There is no sub-class {part}: give one from 0 on.")
    return _best_first((table.model_classes == own) & (table.members == part), table.id_scores)


def _cluster_set(table: ImageTable, number: str) -> Ints:
    own = _number(number, "Cluster")
    require(own >= 0, f"There is no cluster {own}: give one from 0 on.")
    return _best_first(table.open_clusters == own, table.typicality)


IMAGE_SETS: dict[str, tuple[int, Callable[..., Ints]]] = {
    "all": (0, lambda table: np.arange(len(table.labels))),
    "unlabeled": (0, lambda table: _where(table.labels == UNLABELED)),
    "labeled": (0, lambda table: _where(table.labels >= 0)),
    "none": (0, lambda table: _where(table.labels == NONE)),
    "skipped": (0, lambda table: _where(table.skipped)),
    "random": (0, lambda table: table.random),
    "decision": (1, _decision_set),
    "label": (1, _label_set),
    "class": (2, _class_set),
    "subclass": (2, _subclass_set),
    "cluster": (1, _cluster_set),
}
"""Kinds of sets: the number of parts after the colon, and the function that gives the rows."""


def image_lines(table: ImageTable, names: Sequence[str], rows: Ints) -> list[list[object]]:
    """The facts of some images, a list each, as the page reads them."""
    labels = table.labels[rows].tolist()
    return [
        list(line)
        for line in zip(
            rows.tolist(),
            [names[row] for row in rows.tolist()],
            table.classes[rows].tolist(),
            _rounded(table.probability[rows]),
            _rounded(table.id_scores[rows]),
            [DECISIONS[d] for d in table.decisions[rows].tolist()],
            [None if label == UNLABELED else label for label in labels],
            [None if cluster < 0 else cluster for cluster in table.clusters[rows].tolist()],
            [None if part < 0 else part for part in table.subclasses[rows].tolist()],
            strict=True,
        )
    ]


def _rounded(values: Floats) -> list[float | None]:
    """Values with five digits; null where one is not finite."""
    return [
        value if finite else None
        for value, finite in zip(
            np.round(values, 5).tolist(), np.isfinite(values).tolist(), strict=True
        )
    ]


def check_rows(rows: Sequence[int], number: int) -> Ints:
    """Rows as an array, refused if one is not among `number` images."""
    for row in rows:
        if not 0 <= row < number:
            raise InputError(f"There is no image {row}: rows run from 0 to {number - 1}.")
    return np.array(rows, np.int64)
