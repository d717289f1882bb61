"""Sub-classes and clusters with the images that are in them now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protofission.core.array_types import Ints
from protofission.triage.workbench.actions import UNLABELED
from protofission.triage.workbench.groups import NO_GROUP_NUMBER, ModelRows
from protofission.triage.workbench.state import WorkbenchState


@dataclass(frozen=True, eq=False)
class SubclassGroup:
    """A sub-class and its images."""

    class_id: int
    """The class of the model; a class that others were merged into has groups of all of them."""
    number: int
    name: str
    rows: Ints
    """Accepted images without a label, and images that are labeled so."""
    dissolved: bool
    """Whether it stands for the whole class, whose sub-classes are no real division."""
    promoted: int | None
    """The class that it became."""


@dataclass(frozen=True, eq=False)
class ClusterGroup:
    """A cluster and its images."""

    number: int
    name: str
    rows: Ints
    """Images that are not accepted and have no label."""
    junk: bool
    """Whether it is of no interest."""
    promoted: int | None
    """The class that it became."""


def subclass_of_rows(state: WorkbenchState, model: ModelRows) -> Ints:
    """(N,): the sub-class of each image in its likeliest class; NO_GROUP_NUMBER without one.

    An image is in one if it is accepted and has no label, or if it is labeled with that class.
    """
    labels, groups = state.label_of, state.groups
    final = np.array([state.resolve(one) for one in groups.classes])[model.classes]
    inside = np.where(labels == UNLABELED, model.accepted, labels == final)
    return np.where(inside, groups.subclass_numbers(model), NO_GROUP_NUMBER)


def cluster_of_rows(state: WorkbenchState, model: ModelRows) -> Ints:
    """(N,): the cluster of each image that is not accepted and has no label; else -1."""
    numbers = state.groups.cluster_numbers(model)
    return np.where(state.label_of == UNLABELED, numbers, NO_GROUP_NUMBER)


def subclass_groups(state: WorkbenchState, model: ModelRows, class_id: int) -> list[SubclassGroup]:
    """The sub-classes of a class, and of the classes that were merged into it."""
    groups, numbers = state.groups, subclass_of_rows(state, model)
    found = []
    for place, own in enumerate(groups.classes):
        if state.resolve(own) != class_id:
            continue
        rows_of = _rows_of_numbers(np.where(model.classes == place, numbers, NO_GROUP_NUMBER))
        if own in groups.dissolved:
            name = state.classes[own].name
            found.append(SubclassGroup(own, 0, name, rows_of.get(0, _NO_ROWS), True, None))
            continue
        found += [
            SubclassGroup(
                own,
                number,
                name,
                rows_of.get(number, _NO_ROWS),
                False,
                groups.subclass_promotions.get((own, number)),
            )
            for number, name in enumerate(groups.subclass_names[place])
            if (own, number) not in groups.subclass_merges
        ]
    return found


def cluster_groups(state: WorkbenchState, model: ModelRows) -> list[ClusterGroup]:
    """The clusters that are not part of others, by number."""
    groups, rows_of = state.groups, _rows_of_numbers(cluster_of_rows(state, model))
    return [
        ClusterGroup(
            number,
            name,
            rows_of.get(number, _NO_ROWS),
            number in groups.junk,
            groups.cluster_promotions.get(number),
        )
        for number, name in enumerate(groups.cluster_names)
        if number not in groups.cluster_merges
    ]


_NO_ROWS = np.zeros(0, np.int64)


def _rows_of_numbers(numbers: Ints) -> dict[int, Ints]:
    """The rows that have each number, in order; those without a number are left out."""
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    parts = np.split(order, starts[1:])
    return {
        int(number): rows
        for number, rows in zip(found, parts, strict=True)
        if number != NO_GROUP_NUMBER
    }
