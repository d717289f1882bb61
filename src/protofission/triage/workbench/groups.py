"""Sub-classes and clusters as a person left them: those of the model, with names and merges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.errors import require

NO_GROUP_NUMBER = -1
"""The number of an image that is in no sub-class or cluster."""


@dataclass(frozen=True)
class ModelRows:
    """Verdicts of a model on all N images, as plain arrays."""

    classes: Ints
    """(N,): the likeliest class, by its place in the model."""
    subclasses: Ints
    """(N,): the sub-class of that class."""
    accepted: NDArray[np.bool_]
    """(N,)"""
    clusters: Ints
    """(N,): the cluster of an image that is not accepted; -1 without one."""


@dataclass(frozen=True)
class GroupEdits:
    """Changes to the sub-classes and clusters of one version of the model."""

    version: int
    classes: tuple[int, ...]
    """The ids of the model's classes, in its order."""
    subclass_names: tuple[tuple[str, ...], ...]
    """Names of the sub-classes of each class."""
    cluster_names: tuple[str, ...]
    """Names of the clusters; those of splits come last."""
    subclass_merges: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By (class, sub-class), the sub-class that it became part of."""
    subclass_promotions: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By (class, sub-class), the class that it became."""
    dissolved: frozenset[int] = frozenset()
    """Ids of the classes whose sub-classes are no real division."""
    cluster_merges: Mapping[int, int] = field(default_factory=dict)
    cluster_promotions: Mapping[int, int] = field(default_factory=dict)
    """By cluster, the class that it became."""
    junk: frozenset[int] = frozenset()
    """Clusters of no interest."""
    splits: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Clusters and the images that splits put into them, the oldest first."""

    def place(self, class_id: int) -> int:
        """The place of a class in the model."""
        require(
            class_id in self.classes,
            f"Class {class_id} has no sub-classes: the model does not know it before a refit.",
        )
        return self.classes.index(class_id)

    def check_subclass(self, class_id: int, subclass: int) -> None:
        """Refuse a sub-class that is not there, or not any more."""
        count = len(self.subclass_names[self.place(class_id)])
        require(
            0 <= subclass < count,
            f"Class {class_id} has no sub-class {subclass}: give one from 0 to {count - 1}.",
        )
        key = class_id, subclass
        require(
            key not in self.subclass_merges,
            f"Sub-class {subclass} of class {class_id} is part of another one: undo the merge.",
        )
        require(
            class_id not in self.dissolved,
            f"The sub-classes of class {class_id} are dissolved: undo that first.",
        )

    def check_cluster(self, cluster: int) -> None:
        """Refuse a cluster that is not there, or not any more."""
        count = len(self.cluster_names)
        require(
            0 <= cluster < count,
            f"There is no cluster {cluster}: give one from 0 to {count - 1}."
            if count
            else f"There is no cluster {cluster}: the model has none.",
        )
        require(
            cluster not in self.cluster_merges,
            f"Cluster {cluster} is part of another one: undo the merge.",
        )

    def name_subclass(self, class_id: int, subclass: int, name: str) -> GroupEdits:
        """With another name of a sub-class."""
        self.check_subclass(class_id, subclass)
        names, place = list(self.subclass_names), self.place(class_id)
        names[place] = _with_name(names[place], subclass, name)
        return replace(self, subclass_names=tuple(names))

    def merge_subclasses(self, class_id: int, merged: tuple[int, ...], into: int) -> GroupEdits:
        """With sub-classes as parts of another one."""
        for one in (*merged, into):
            self.check_subclass(class_id, one)
        new = {(class_id, one): into for one in merged}
        return replace(self, subclass_merges={**self.subclass_merges, **new})

    def dissolve(self, class_id: int, classes: set[int]) -> GroupEdits:
        """With the sub-classes of a class, and of those that were merged into it, as one."""
        require(
            bool(classes - self.dissolved),
            f"Class {class_id} has no sub-classes to dissolve: the model gives it none.",
        )
        return replace(self, dissolved=self.dissolved | classes)

    def promote_subclass(self, class_id: int, subclass: int, became: int) -> GroupEdits:
        """With a sub-class that became a class."""
        self.check_subclass(class_id, subclass)
        new = {(class_id, subclass): became}
        return replace(self, subclass_promotions={**self.subclass_promotions, **new})

    def promote_clusters(self, clusters: tuple[int, ...], became: int) -> GroupEdits:
        """With clusters that became a class."""
        for one in clusters:
            self.check_cluster(one)
        new = dict.fromkeys(clusters, became)
        return replace(self, cluster_promotions={**self.cluster_promotions, **new})

    def junk_clusters(self, clusters: tuple[int, ...]) -> GroupEdits:
        """With clusters that are of no interest."""
        for one in clusters:
            self.check_cluster(one)
        return replace(self, junk=self.junk | {*clusters})

    def name_cluster(self, cluster: int, name: str) -> GroupEdits:
        """With another name of a cluster."""
        self.check_cluster(cluster)
        return replace(self, cluster_names=_with_name(self.cluster_names, cluster, name))

    def merge_clusters(self, merged: tuple[int, ...], into: int) -> GroupEdits:
        """With clusters as parts of another one."""
        for one in (*merged, into):
            self.check_cluster(one)
        new = dict.fromkeys(merged, into)
        return replace(self, cluster_merges={**self.cluster_merges, **new})

    def split_cluster(self, cluster: int, parts: tuple[tuple[int, ...], ...]) -> GroupEdits:
        """With the parts of a cluster but the first as clusters of their own."""
        self.check_cluster(cluster)
        names, own = list(self.cluster_names), self.cluster_names[cluster]
        numbers = [cluster]
        for number in range(2, len(parts) + 1):
            numbers.append(len(names))
            names.append(f"{own} / {number}")
        new = tuple(zip(numbers, parts, strict=True))
        return replace(self, cluster_names=tuple(names), splits=self.splits + new)

    def subclass_numbers(self, model: ModelRows) -> Ints:
        """(N,): the sub-class of each image in its likeliest class, after merges."""
        found = model.subclasses.copy()
        for place, class_id in enumerate(self.classes):
            own = model.classes == place
            count = len(self.subclass_names[place])
            if class_id in self.dissolved:
                found[own] = 0
                continue
            merged = {
                number: into
                for (own_class, number), into in self.subclass_merges.items()
                if own_class == class_id
            }
            if merged:
                found[own] = _resolve_all(count, merged)[found[own]]
        return found

    def cluster_numbers(self, model: ModelRows) -> Ints:
        """(N,): the cluster of each image after splits and merges; NO_GROUP_NUMBER without one."""
        found = model.clusters.copy()
        for number, rows in self.splits:
            found[np.array(rows)] = number
        if not self.cluster_merges:
            return found
        final = _resolve_all(len(self.cluster_names), self.cluster_merges)
        return np.where(found == NO_GROUP_NUMBER, found, final[found])


def _with_name(names: tuple[str, ...], place: int, name: str) -> tuple[str, ...]:
    return (*names[:place], name, *names[place + 1 :])


def _resolve_all(count: int, merged: Mapping[int, int]) -> Ints:
    """(count,): the number that each is part of in the end."""
    found = np.arange(count)
    for number in range(count):
        while int(found[number]) in merged:
            found[number] = merged[int(found[number])]
    return found
