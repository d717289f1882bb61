"""The names of the sub-classes and clusters of a refit: given ones are carried over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from protofission.core.array_types import Ints
from protofission.core.errors import quoted
from protofission.core.records import NO_CLASS
from protofission.triage.bundle import Bundle
from protofission.triage.bundle_card import numbered_subclasses
from protofission.triage.fold_ensemble import FoldEnsemble
from protofission.triage.workbench.calibration_labels import RefitLabels
from protofission.triage.workbench.group_views import cluster_groups, subclass_groups
from protofission.triage.workbench.groups import ModelRows
from protofission.triage.workbench.match_names import (
    NO_SUCCESSOR,
    NamedGroup,
    NameMatch,
    match_names,
)
from protofission.triage.workbench.state import WorkbenchState

NUMBERED_CLUSTER = re.compile(r"novel \d+( / \d+)*")
"""Names of clusters, and of parts of them, that nobody gave."""


@dataclass(frozen=True, eq=False)
class CarriedNames:
    """The names of all groups of a refit, and a sentence on each that a person gave."""

    subclasses: tuple[tuple[str, ...], ...]
    clusters: tuple[str, ...]
    matches: tuple[NameMatch, ...]

    @property
    def sentences(self) -> list[str]:
        """Fate of each given name."""
        return [match.sentence for match in self.matches]


def carry_names(
    state: WorkbenchState,
    old: ModelRows,
    bundle: Bundle,
    labels: RefitLabels,
    new: ModelRows,
    ensemble: FoldEnsemble,
) -> CarriedNames:
    """Name the sub-classes and clusters of a refit.

    Args:
        old: verdicts of the model before on all images.
        bundle: the model before.
        new: verdicts of the refit on all images.
        ensemble: the refit's model.
    """
    subclasses = [
        list(numbered_subclasses(name, count))
        for name, count in zip(labels.class_names, ensemble.subclass_counts, strict=True)
    ]
    clusters = [f"novel {number}" for number in range(1, ensemble.num_clusters + 1)]
    flat = [(place, own) for place, names in enumerate(subclasses) for own in range(len(names))]
    label_of = np.full(len(new.classes), NO_CLASS)
    label_of[labels.rows] = labels.labels
    place_of = _places(new, label_of, labels, subclasses, clusters)
    inside = np.where(label_of == NO_CLASS, new.accepted, label_of == new.classes)
    inside[labels.pool[labels.strangers]] = False
    starts = np.cumsum([0, *ensemble.subclass_counts])[new.classes]
    parts = _rows_by_number(np.where(inside, starts + new.subclasses, NO_CLASS), len(flat))
    matches = match_names(_named_subclasses(state, old, bundle), parts, place_of)
    for match in matches:
        if match.successor != NO_SUCCESSOR:
            place, own = flat[match.successor]
            subclasses[place][own] = match.name
    free = label_of == NO_CLASS
    free[labels.pool[labels.strangers]] = False
    found = _rows_by_number(np.where(free, new.clusters, NO_CLASS), len(clusters))
    of_clusters = match_names(_named_clusters(state, old), found, place_of)
    for match in of_clusters:
        if match.successor != NO_SUCCESSOR:
            clusters[match.successor] = match.name
    return CarriedNames(tuple(map(tuple, subclasses)), tuple(clusters), (*matches, *of_clusters))


def _named_subclasses(state: WorkbenchState, old: ModelRows, bundle: Bundle) -> list[NamedGroup]:
    """Sub-classes that a person named, with their images; those that became classes are not."""
    numbered = {
        number: set(numbered_subclasses(name, len(own)))
        for number, name, own in zip(
            state.groups.classes, bundle.class_names, bundle.subclass_names, strict=True
        )
    }
    return [
        NamedGroup(group.name, group.rows)
        for own in state.live_classes
        for group in subclass_groups(state, old, own.id)
        if group.promoted is None
        and not group.dissolved
        and group.name not in numbered[group.class_id]
    ]


def _named_clusters(state: WorkbenchState, old: ModelRows) -> list[NamedGroup]:
    return [
        NamedGroup(group.name, group.rows)
        for group in cluster_groups(state, old)
        if group.promoted is None and not group.junk and not NUMBERED_CLUSTER.fullmatch(group.name)
    ]


def _places(
    new: ModelRows,
    label_of: Ints,
    labels: RefitLabels,
    subclasses: Sequence[Sequence[str]],
    clusters: Sequence[str],
) -> list[str]:
    """(N,): where each image is now, in words."""
    strangers = set(labels.pool[labels.strangers].tolist())
    found = []
    columns = zip(
        label_of.tolist(),
        new.classes.tolist(),
        new.subclasses.tolist(),
        new.accepted.tolist(),
        new.clusters.tolist(),
        strict=True,
    )
    for row, (label, name, own, accepted, cluster) in enumerate(columns):
        if row in strangers:
            found.append("answered with none of these")
        elif label not in (NO_CLASS, name):
            found.append(f"labeled {quoted(labels.class_names[label])}")
        elif accepted or label != NO_CLASS:
            found.append(f"in {quoted(subclasses[name][own])}")
        elif cluster != NO_CLASS:
            found.append(f"in {quoted(clusters[cluster])}")
        else:
            found.append("rejected")
    return found


def _rows_by_number(numbers: Ints, count: int) -> list[Ints]:
    """The rows that have each number."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(numbers[order], np.arange(count)))[1:]
