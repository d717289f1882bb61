"""The state of a workbench: a fold of its log over the images and names that the fit kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.errors import InputError, printable, unknown
from protofission.triage.workbench.actions import (
    UNLABELED,
    Action,
    DrawRandom,
    KeepRefit,
    Redo,
    Undo,
)
from protofission.triage.workbench.book import Book, ClassState
from protofission.triage.workbench.cells import (
    BLANK,
    CONFIRMED,
    DRAWN,
    SKIPPED,
    labeled_cell,
    labels_of_cells,
    sources_of_cells,
    with_labels,
)
from protofission.triage.workbench.effects import effect_of
from protofission.triage.workbench.groups import GroupEdits

_NO_CELLS = np.zeros(0, np.int64)


class _Change(NamedTuple):
    """An action that was done, and what it takes to undo it."""

    id: int
    action: Action
    rows: Ints | None
    cells: Ints
    """The cells of the rows before."""
    book: Book
    """The book before."""
    drawn: int
    """The number of drawn images before."""


@dataclass(eq=False)
class WorkbenchState:
    """Labels, classes and groups of N images after some actions.

    The state of a `Workbench` does not change any more: each action makes a new one.
    """

    num_labeled: int
    """L, images that the user's folders gave a label; they are first."""
    _cells: Ints
    _book: Book
    _drawn: list[int] = field(default_factory=list)
    _done: list[_Change] = field(default_factory=list)
    _undone: list[tuple[int, Action]] = field(default_factory=list)
    last_id: int = 0
    """The id of the last action."""
    newest_version: int = 0
    """The highest version of the model ever, also if it was undone: no number is used twice."""
    _label_of: Ints | None = None

    @staticmethod
    def start(
        labels: Ints,
        num_images: int,
        class_names: Sequence[str],
        subclass_names: Sequence[Sequence[str]] | None = None,
        cluster_names: Sequence[str] = (),
    ) -> WorkbenchState:
        """The state before any action.

        Args:
            labels: (L,) of the first images, as places in `class_names`.
            num_images: N.
            subclass_names: of each class; by default classes have no sub-classes.
        """
        cells = np.full(num_images, BLANK, np.int64)
        cells[: len(labels)] = with_labels(np.array(labeled_cell(0, "folder")), labels)
        subclasses = [()] * len(class_names) if subclass_names is None else subclass_names
        book = Book.start(class_names, tuple(map(tuple, subclasses)), tuple(cluster_names))
        return WorkbenchState(len(labels), cells, book)

    def copy(self) -> WorkbenchState:
        """A state that can be changed apart from this one."""
        return replace(
            self,
            _cells=self._cells.copy(),
            _drawn=self._drawn.copy(),
            _done=self._done.copy(),
            _undone=self._undone.copy(),
        )

    @property
    def num_images(self) -> int:
        """N, all images."""
        return len(self._cells)

    @property
    def label_of(self) -> Ints:
        """(N,): the id of each image's class, NONE or UNLABELED; it cannot be written to."""
        if self._label_of is None:
            found = labels_of_cells(self._cells)
            found.flags.writeable = False
            self._label_of = found
        return self._label_of

    @property
    def source_of(self) -> Ints:
        """(N,): the source of each image's label, as a place in LABEL_SOURCES."""
        return sources_of_cells(self._cells)

    @property
    def skipped(self) -> NDArray[np.bool_]:
        """(N,): images that were left for later and not labeled since."""
        return self._marked(SKIPPED)

    @property
    def confirmed(self) -> NDArray[np.bool_]:
        """(N,): images whose label a person confirmed."""
        return self._marked(CONFIRMED)

    @property
    def drawn(self) -> NDArray[np.bool_]:
        """(N,): images of the random queue."""
        return self._marked(DRAWN)

    @property
    def random_queue(self) -> Ints:
        """Images that were drawn at random, in order of drawing, answered or not."""
        return np.array(self._drawn, np.int64)

    @property
    def random_queues(self) -> tuple[Ints, ...]:
        """The images of each draw, in order."""
        draws = (change.action for change in self._done)
        return tuple(
            np.array(draw.images, np.int64) for draw in draws if isinstance(draw, DrawRandom)
        )

    @property
    def random_open(self) -> Ints:
        """Images of the random queue that have no label and were not skipped."""
        queue = self.random_queue
        left: Ints = queue[(self.label_of[queue] == UNLABELED) & ~self.skipped[queue]]
        return left

    @property
    def classes(self) -> Mapping[int, ClassState]:
        """All classes by id, those that were merged included."""
        return self._book.classes

    @property
    def live_classes(self) -> list[ClassState]:
        """The classes that are not part of others, by id."""
        return [own for own in self._book.classes.values() if own.merged_into is None]

    @property
    def groups(self) -> GroupEdits:
        """Changes to the sub-classes and clusters of the model."""
        return self._book.groups

    @property
    def version(self) -> int:
        """The version of the model that is kept; 0 is that of the fit."""
        return self._book.groups.version

    @property
    def undo_stack(self) -> list[int]:
        """Ids of the actions that can be undone; the last is the next."""
        return [change.id for change in self._done]

    @property
    def redo_stack(self) -> list[int]:
        """Ids of the actions that can be done again; the last is the next."""
        return [number for number, _ in self._undone]

    @property
    def next_undo(self) -> tuple[int, Action] | None:
        """The action that an undo would take back, with its id."""
        return self._done[-1][:2] if self._done else None

    @property
    def next_redo(self) -> tuple[int, Action] | None:
        """The action that a redo would do again, with its id."""
        return self._undone[-1] if self._undone else None

    def resolve(self, class_id: int) -> int:
        """The class that a class is part of in the end; itself if it is not merged."""
        return self._book.resolve(class_id)

    def class_named(self, name: str) -> ClassState:
        """The class that has a name now."""
        found = self._book.id_of_name.get(name)
        if found is None:
            raise unknown("class", printable(name), self._book.id_of_name)
        return self._book.classes[found]

    def content(self) -> dict[str, object]:
        """All of the state in values that can be compared, but for the highest numbers so far."""
        return {
            "cells": self._cells.tolist(),
            "book": self._book,
            "drawn": list(self._drawn),
            "done": self.undo_stack,
            "undone": self.redo_stack,
        }

    def apply(self, action_id: int, action: Action) -> None:
        """Apply an action in place.

        Raises:
            InputError: it does not fit; the state is as it was.
        """
        if action_id <= self.last_id:
            raise InputError(f"Action {action_id} follows {self.last_id}: ids must rise.")
        if isinstance(action, Undo):
            _check_next("undone", action.action, self.next_undo)
            self._undone.append(self._take_back())
        elif isinstance(action, Redo):
            _check_next("done again", action.action, self.next_redo)
            self._do(*self._undone[-1])
            self._undone.pop()
        else:
            self._check_version(action)
            self._do(action_id, action)
            self._undone.clear()
            if isinstance(action, KeepRefit):
                self.newest_version = action.version
        self._label_of = None
        self.last_id = action_id

    def _check_version(self, action: Action) -> None:
        """Refuse a version of the model whose number was used before."""
        if isinstance(action, KeepRefit) and action.version <= self.newest_version:
            raise InputError(
                f"Version {action.version} of the model is not above {self.newest_version}: give "
                "the next number."
            )

    def _marked(self, mark: int) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (self._cells & mark) != 0
        return found

    def _do(self, action_id: int, action: Action) -> None:
        effect = effect_of(action, self._cells, self._book)
        rows, old = effect.rows, _NO_CELLS
        if rows is not None:
            old = self._cells[rows]
            self._cells[rows] = effect.cells
        self._done.append(_Change(action_id, action, rows, old, self._book, len(self._drawn)))
        self._book = effect.book
        self._drawn.extend(effect.drawn)

    def _take_back(self) -> tuple[int, Action]:
        change = self._done.pop()
        if change.rows is not None:
            self._cells[change.rows] = change.cells
        self._book = change.book
        del self._drawn[change.drawn :]
        return change.id, change.action


def fold(state: WorkbenchState, actions: Iterable[tuple[int, Action]]) -> WorkbenchState:
    """Apply actions to a state in place, and return it."""
    for action_id, action in actions:
        state.apply(action_id, action)
    return state


def _check_next(what: str, wanted: int, found: tuple[int, Action] | None) -> None:
    if found is None:
        raise InputError(f"There is no action that can be {what}.")
    if found[0] != wanted:
        raise InputError(f"Action {wanted} cannot be {what} before action {found[0]} is.")
