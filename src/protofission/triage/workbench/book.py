"""The classes of a workbench, and the groups of its model: all that is not of single images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from protofission.core.errors import InputError, quoted, require
from protofission.triage.workbench.groups import GroupEdits

MOST_WORKBENCH_CLASSES = 10_000
"""Most classes, those that were merged included."""

Origin = Literal["fit", "added", "subclass", "cluster"]


@dataclass(frozen=True)
class ClassState:
    """A class."""

    id: int
    name: str
    origin: Origin
    """The fit, or the kind of action that made it."""
    merged_into: int | None = None
    """The class that it became part of."""


@dataclass(frozen=True)
class Book:
    """Classes and groups; each change makes a new book, so the old one is all that undo takes."""

    classes: Mapping[int, ClassState]
    id_of_name: Mapping[str, int]
    """Ids of the classes that are not merged."""
    groups: GroupEdits
    former: tuple[GroupEdits, ...] = ()
    """The groups of the models before, the oldest first."""

    @staticmethod
    def start(
        class_names: Iterable[str],
        subclass_names: tuple[tuple[str, ...], ...],
        cluster_names: tuple[str, ...],
    ) -> Book:
        """The book of a fit; classes have the ids from 0 on."""
        classes = {place: ClassState(place, name, "fit") for place, name in enumerate(class_names)}
        ids = {own.name: own.id for own in classes.values()}
        return Book(classes, ids, GroupEdits(0, tuple(classes), subclass_names, cluster_names))

    def known_class(self, class_id: int) -> ClassState:
        """A class by its id; it may be merged."""
        found = self.classes.get(class_id)
        if found is None:
            raise InputError(f"There is no class {class_id}: give the id of one that is there.")
        return found

    def live_class(self, class_id: int) -> ClassState:
        """A class by its id, which is not part of another."""
        found = self.known_class(class_id)
        if found.merged_into is not None:
            raise InputError(
                f"Class {class_id}, {quoted(found.name)}, is part of class "
                f"{self.resolve(class_id)} now: give that one."
            )
        return found

    def resolve(self, class_id: int) -> int:
        """The class that a class is part of in the end; itself if it is not merged."""
        while (into := self.known_class(class_id).merged_into) is not None:
            class_id = into
        return class_id

    def add_class(self, name: str, origin: Origin) -> tuple[int, Book]:
        """The id of a new class, and the book with it."""
        self._check_free(name)
        number = len(self.classes)
        require(
            number < MOST_WORKBENCH_CLASSES,
            f"There are {number:,} classes already: merge some and refit, this is the most.",
        )
        classes = {**self.classes, number: ClassState(number, name, origin)}
        return number, replace(self, classes=classes, id_of_name={**self.id_of_name, name: number})

    def rename_class(self, class_id: int, name: str) -> Book:
        """With another name of a class."""
        own = self.live_class(class_id)
        if name == own.name:
            return self
        self._check_free(name)
        ids = {key: value for key, value in self.id_of_name.items() if value != class_id}
        classes = {**self.classes, class_id: replace(own, name=name)}
        return replace(self, classes=classes, id_of_name={**ids, name: class_id})

    def merge_classes(self, merged: tuple[int, ...], into: int) -> Book:
        """With classes as parts of another one."""
        self.live_class(into)
        new = {one: replace(self.live_class(one), merged_into=into) for one in merged}
        ids = {key: value for key, value in self.id_of_name.items() if value not in new}
        return replace(self, classes={**self.classes, **new}, id_of_name=ids)

    def keep_model(self, groups: GroupEdits) -> Book:
        """With the groups of another model; the former stay for a way back."""
        for class_id in groups.classes:
            self.known_class(class_id)
        return replace(self, groups=groups, former=(*self.former, self.groups))

    def revert_model(self, version: int) -> Book:
        """With the groups of the model before a version."""
        require(
            version == self.groups.version and bool(self.former),
            f"Version {version} of the model cannot be left: {self.groups.version} is in use"
            f"{'' if self.former else ', the one of the fit'}.",
        )
        return replace(self, groups=self.former[-1], former=self.former[:-1])

    def _check_free(self, name: str) -> None:
        taken = self.id_of_name.get(name)
        require(
            taken is None,
            f"Class {taken} is called {quoted(name)} already: give another name, or merge.",
        )
