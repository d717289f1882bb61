"""The effect of an action on cells and book, computed before anything is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, assert_never

import numpy as np

from protofission.core.array_types import Ints
from protofission.core.errors import InputError, require
from protofission.triage.workbench.actions import (
    NONE,
    UNLABELED,
    Action,
    AddClass,
    ConfirmLabels,
    DissolveSubclasses,
    DrawRandom,
    JunkClusters,
    KeepRefit,
    Label,
    LabelAsNew,
    LabelEach,
    LabelSource,
    MergeClasses,
    MergeClusters,
    MergeSubclasses,
    NameCluster,
    NameSubclass,
    PromoteClusters,
    PromoteSubclass,
    Redo,
    RenameClass,
    RevertRefit,
    Skip,
    SplitCluster,
    Undo,
)
from protofission.triage.workbench.book import Book
from protofission.triage.workbench.cells import (
    CONFIRMED,
    DRAWN,
    SKIPPED,
    labeled_cell,
    labels_of_cells,
    with_labels,
)
from protofission.triage.workbench.groups import GroupEdits


class Effect(NamedTuple):
    """The changes that an action makes."""

    book: Book
    rows: Ints | None = None
    """Images whose cells change."""
    cells: Ints | int = 0
    """Their new cells."""
    drawn: tuple[int, ...] = ()
    """Images that join the random queue."""


def effect_of(action: Action, cells: Ints, book: Book) -> Effect:
    """The effect of any action but Undo and Redo.

    Args:
        cells: (N,) of all images; they stay as they are.

    Raises:
        InputError: the action does not fit.
    """
    match action:
        case Label() | LabelEach() | LabelAsNew() | Skip() | ConfirmLabels() | DrawRandom():
            return _effect_on_images(action, cells, book)
        case AddClass() | RenameClass() | MergeClasses():
            return _effect_on_classes(action, cells, book)
        case PromoteSubclass() | PromoteClusters() | JunkClusters():
            return _effect_of_members(action, cells, book)
        case KeepRefit():
            names = action.subclass_names, action.cluster_names
            return Effect(book.keep_model(GroupEdits(action.version, action.classes, *names)))
        case RevertRefit():
            return Effect(book.revert_model(action.version))
        case Undo() | Redo():
            raise AssertionError("the state undoes actions itself")
        case SplitCluster():
            for part in action.parts:
                _rows(part, cells)
            return Effect(replace(book, groups=_edited(book, action)))
        case _:
            return Effect(replace(book, groups=_edited(book, action)))


def _edited(
    book: Book,
    action: NameSubclass
    | MergeSubclasses
    | DissolveSubclasses
    | NameCluster
    | MergeClusters
    | SplitCluster,
) -> GroupEdits:
    groups = book.groups
    match action:
        case NameSubclass():
            return groups.name_subclass(action.class_id, action.subclass, action.name)
        case MergeSubclasses():
            return groups.merge_subclasses(action.class_id, action.subclasses, action.into)
        case DissolveSubclasses():
            own = {one for one in groups.classes if book.resolve(one) == action.class_id}
            return groups.dissolve(action.class_id, own)
        case NameCluster():
            return groups.name_cluster(action.cluster, action.name)
        case MergeClusters():
            return groups.merge_clusters(action.clusters, action.into)
        case SplitCluster():
            return groups.split_cluster(action.cluster, action.parts)
        case _:
            assert_never(action)


def _effect_on_images(
    action: Label | LabelEach | LabelAsNew | Skip | ConfirmLabels | DrawRandom,
    cells: Ints,
    book: Book,
) -> Effect:
    rows = _rows(action.images, cells)
    old = cells[rows]
    match action:
        case Label(class_id=class_id, source=source):
            if class_id is None:
                return Effect(book, rows, old & DRAWN)
            _check_labels((class_id,), source, old, book)
            return Effect(book, rows, labeled_cell(class_id, source) | (old & DRAWN))
        case LabelEach(classes=classes, source=source):
            _check_labels(classes, source, old, book)
            bare = labeled_cell(UNLABELED, source) | (old & DRAWN)
            return Effect(book, rows, with_labels(bare, np.array(classes, np.int64)))
        case LabelAsNew(name=name, source=source):
            class_id, book = book.add_class(name, "added")
            _check_labels((class_id,), source, old, book)
            return Effect(book, rows, labeled_cell(class_id, source) | (old & DRAWN))
        case Skip():
            return Effect(book, rows, old | SKIPPED)
        case ConfirmLabels():
            first = action.images[int((labels_of_cells(old) < 0).argmax())]
            require(
                bool((labels_of_cells(old) >= 0).all()),
                f"Image {first} has no label of a class that could be confirmed: label it.",
            )
            return Effect(book, rows, old | CONFIRMED)
        case DrawRandom():
            taken = (old & DRAWN) != 0  # those with a label may be drawn: they count as answered
            require(
                not bool(taken.any()),
                f"Image {action.images[int(taken.argmax())]} was drawn already: draw from the "
                "others.",
            )
            return Effect(book, rows, old | DRAWN, action.images)
        case _:
            assert_never(action)


def _check_labels(classes: tuple[int, ...], source: LabelSource, old: Ints, book: Book) -> None:
    """Refuse labels of a class that is not there, and those of a queue without the image."""
    for class_id in {*classes} - {NONE}:
        book.live_class(class_id)
    require(
        source != "random" or bool((old & DRAWN).all()),
        "An image was not drawn at random: draw a random queue, and label the images in it.",
    )


def _effect_on_classes(
    action: AddClass | RenameClass | MergeClasses, cells: Ints, book: Book
) -> Effect:
    match action:
        case AddClass():
            return Effect(book.add_class(action.name, "added")[1])
        case RenameClass():
            return Effect(book.rename_class(action.class_id, action.name))
        case MergeClasses():
            merged = book.merge_classes(action.classes, action.into)
            rows = np.flatnonzero(np.isin(labels_of_cells(cells), action.classes))
            return Effect(merged, rows, with_labels(cells[rows], action.into))
        case _:
            assert_never(action)


def _effect_of_members(
    action: PromoteSubclass | PromoteClusters | JunkClusters, cells: Ints, book: Book
) -> Effect:
    """The effect of an action that labels all images of a group."""
    require(action.images is not None, "The images of the group are missing.")
    rows = _rows(action.images or (), cells)
    groups = book.groups
    match action:
        case PromoteSubclass():
            class_id, book = book.add_class(action.name, "subclass")
            groups = groups.promote_subclass(action.class_id, action.subclass, class_id)
        case PromoteClusters():
            class_id, book = book.add_class(action.name, "cluster")
            groups = groups.promote_clusters(action.clusters, class_id)
        case JunkClusters():
            class_id, groups = NONE, groups.junk_clusters(action.clusters)
        case _:
            assert_never(action)
    new = labeled_cell(class_id, "cluster") | (cells[rows] & DRAWN)
    return Effect(replace(book, groups=groups), rows, new)


def _rows(images: tuple[int, ...], cells: Ints) -> Ints:
    highest = max(images)
    if highest >= len(cells):  # no sentence is made where none is needed: this is done often
        raise InputError(
            f"There is no image {highest}: rows are numbered from 0 to {len(cells) - 1}."
        )
    return np.array(images, np.int64)
