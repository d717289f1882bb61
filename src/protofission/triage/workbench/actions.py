"""The actions of a person on a triage, as values; in the log each is a kind and a JSON object.

A bulk change is one action, so one undo takes it back. Nothing heavy is imported here.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

from protofission.core.errors import InputError, field_types, require, unknown
from protofission.system.json_files import as_type
from protofission.triage.workbench.action_checks import (
    LARGEST_ROW,
    MOST_GROUPS_OF_ACTION,
    check_classes,
    check_groups,
    check_images,
    check_members,
    check_merge,
    check_name,
    quick_check,
)

NONE = -1
"""The label of an image that is of none of the classes."""
UNLABELED = -2
"""The label of an image that has none."""

LabelSource = Literal["next", "random", "grid", "map", "similar", "problems", "cluster"]
"""The screen that a label comes from; of those chosen by the model, none sets a threshold."""


@dataclass(frozen=True)
class Label:
    """Give images a class, NONE, or with None take their labels back."""

    images: tuple[int, ...]
    class_id: int | None
    source: LabelSource

    def __post_init__(self) -> None:
        check_images(self.images)
        if self.class_id is not None and not NONE <= self.class_id < LARGEST_ROW:
            raise InputError(
                f"class_id = {self.class_id} is no class: give an id, {NONE} for none, or null."
            )


@dataclass(frozen=True)
class LabelEach:
    """Give each image a class of its own, or NONE, such as what the model suggests for it."""

    images: tuple[int, ...]
    classes: tuple[int, ...]
    """The class of each image, in their order."""
    source: LabelSource

    def __post_init__(self) -> None:
        check_images(self.images)
        check_classes(self.classes, len(self.images), NONE)


@dataclass(frozen=True)
class LabelAsNew:
    """Add a class and give it to images; its id is the next one that is free."""

    images: tuple[int, ...]
    name: str
    source: LabelSource

    def __post_init__(self) -> None:
        check_images(self.images)
        check_name(self.name)


@dataclass(frozen=True)
class _OfImages:
    """An action on images."""

    images: tuple[int, ...]

    def __post_init__(self) -> None:
        check_images(self.images)


class Skip(_OfImages):
    """Leave images for later; they are not suggested again."""


class ConfirmLabels(_OfImages):
    """Say that the labels of images are right, whatever the model holds of them."""


class DrawRandom(_OfImages):
    """Put images of the pool, with labels or without, into a random queue before anybody looks."""


@dataclass(frozen=True)
class AddClass:
    """Add a class; its id is the next one that is free."""

    name: str

    def __post_init__(self) -> None:
        check_name(self.name)


@dataclass(frozen=True)
class RenameClass:
    """Give a class another name."""

    class_id: int
    name: str

    def __post_init__(self) -> None:
        check_name(self.name)


@dataclass(frozen=True)
class MergeClasses:
    """Make classes part of another one; their labels follow."""

    classes: tuple[int, ...]
    into: int

    def __post_init__(self) -> None:
        check_merge("classes", self.classes, self.into)


@dataclass(frozen=True)
class NameSubclass:
    """Name a sub-class of a class of the model."""

    class_id: int
    subclass: int
    name: str

    def __post_init__(self) -> None:
        check_name(self.name)


@dataclass(frozen=True)
class MergeSubclasses:
    """Make sub-classes part of another one of the same class."""

    class_id: int
    subclasses: tuple[int, ...]
    into: int

    def __post_init__(self) -> None:
        check_merge("subclasses", self.subclasses, self.into)


@dataclass(frozen=True)
class PromoteSubclass:
    """Make a sub-class a class of its own: its images become labels of a new class."""

    class_id: int
    subclass: int
    name: str
    images: tuple[int, ...] | None = None
    """Its images at that time, which the workbench fills in."""

    def __post_init__(self) -> None:
        check_name(self.name)
        check_members(self.images)


@dataclass(frozen=True)
class DissolveSubclasses:
    """Say that the sub-classes of a class are no real division."""

    class_id: int


@dataclass(frozen=True)
class NameCluster:
    """Name a cluster of rejected images."""

    cluster: int
    name: str

    def __post_init__(self) -> None:
        check_name(self.name)


@dataclass(frozen=True)
class MergeClusters:
    """Make clusters part of another one."""

    clusters: tuple[int, ...]
    into: int

    def __post_init__(self) -> None:
        check_merge("clusters", self.clusters, self.into)


@dataclass(frozen=True)
class SplitCluster:
    """Split a cluster into parts; the first keeps its number and name, others get the next free."""

    cluster: int
    parts: tuple[tuple[int, ...], ...]
    """The images of each part, so that a replay computes nothing."""

    def __post_init__(self) -> None:
        count = len(self.parts)
        require(
            2 <= count <= MOST_GROUPS_OF_ACTION,
            f"A cluster is split into {count} part{'s' * (count != 1)}: give between 2 and "
            f"{MOST_GROUPS_OF_ACTION:,}.",
        )
        for part in self.parts:
            require(len(part) > 0, "A part of the split holds no images: leave it out.")
        check_images(tuple(row for part in self.parts for row in part))


@dataclass(frozen=True)
class PromoteClusters:
    """Make one class of clusters: their images become labels of a new class."""

    clusters: tuple[int, ...]
    name: str
    images: tuple[int, ...] | None = None
    """Their images at that time, which the workbench fills in."""

    def __post_init__(self) -> None:
        check_groups("clusters", self.clusters)
        check_name(self.name)
        check_members(self.images)


@dataclass(frozen=True)
class JunkClusters:
    """Say that clusters are of no interest: their images are labeled NONE."""

    clusters: tuple[int, ...]
    images: tuple[int, ...] | None = None
    """Their images at that time, which the workbench fills in."""

    def __post_init__(self) -> None:
        check_groups("clusters", self.clusters)
        check_members(self.images)


@dataclass(frozen=True)
class KeepRefit:
    """Judge by another model from now on."""

    version: int
    """Its number: above all before; 0 is the model of the fit."""
    classes: tuple[int, ...]
    """The ids of its classes, in its order."""
    subclass_names: tuple[tuple[str, ...], ...]
    """The names of the sub-classes of each class."""
    cluster_names: tuple[str, ...]

    def __post_init__(self) -> None:
        require(1 <= self.version < LARGEST_ROW, f"version = {self.version} must be at least 1.")
        require(
            len(set(self.classes)) == len(self.classes) == len(self.subclass_names) >= 1,
            f"The model has {len(self.classes)} classes and {len(self.subclass_names)} lists of "
            "sub-classes: give one for each, and no class twice.",
        )


@dataclass(frozen=True)
class RevertRefit:
    """Go back to the model before a refit; labels that were given since then stay."""

    version: int
    """The version that is left."""


@dataclass(frozen=True)
class Undo:
    """Take the last action back."""

    action: int
    """Its id in the log."""


@dataclass(frozen=True)
class Redo:
    """Do the action again that was taken back last."""

    action: int
    """Its id in the log."""


Action = (
    Label
    | LabelEach
    | LabelAsNew
    | Skip
    | ConfirmLabels
    | DrawRandom
    | AddClass
    | RenameClass
    | MergeClasses
    | NameSubclass
    | MergeSubclasses
    | PromoteSubclass
    | DissolveSubclasses
    | NameCluster
    | MergeClusters
    | SplitCluster
    | PromoteClusters
    | JunkClusters
    | KeepRefit
    | RevertRefit
    | Undo
    | Redo
)

ACTIONS: dict[str, type[Action]] = {
    "label": Label,
    "label_each": LabelEach,
    "label_as_new": LabelAsNew,
    "skip": Skip,
    "confirm_labels": ConfirmLabels,
    "draw_random": DrawRandom,
    "add_class": AddClass,
    "rename_class": RenameClass,
    "merge_classes": MergeClasses,
    "name_subclass": NameSubclass,
    "merge_subclasses": MergeSubclasses,
    "promote_subclass": PromoteSubclass,
    "dissolve_subclasses": DissolveSubclasses,
    "name_cluster": NameCluster,
    "merge_clusters": MergeClusters,
    "split_cluster": SplitCluster,
    "promote_clusters": PromoteClusters,
    "junk_clusters": JunkClusters,
    "keep_refit": KeepRefit,
    "revert_refit": RevertRefit,
    "undo": Undo,
    "redo": Redo,
}
KIND_OF_ACTION = {own: kind for kind, own in ACTIONS.items()}


def read_action(kind: str, content: Any) -> Action:
    """Read an action from a JSON value, strictly; fields that have a default may be missing.

    Raises:
        InputError: the kind is not known, or the content does not fit.
    """
    if kind not in ACTIONS:
        raise unknown("action", str(kind), ACTIONS)
    own: Any = ACTIONS[kind]
    quick = _QUICK_CHECKS[kind]
    if isinstance(content, dict):
        content = {**_DEFAULTS[kind], **content}
        if content.keys() == quick.keys() and all(quick[k](v) for k, v in content.items()):
            content = {k: tuple(v) if type(v) is list else v for k, v in content.items()}
            quickly: Action = own(**content)
            return quickly
    found: Action = as_type(content, own, "")
    return found


def parse_action(kind: str, content: str) -> Action:
    """Read an action exactly as `action_text` writes it."""
    try:
        action = read_action(kind, json.loads(content))
    except (json.JSONDecodeError, RecursionError):
        raise InputError("its content is no JSON.") from None
    require(action_text(action) == (kind, content), "its content is not as it was written.")
    return action


def action_text(action: Action) -> tuple[str, str]:
    """The kind of an action, and its fields as JSON."""
    kind = KIND_OF_ACTION[type(action)]
    return kind, _ENCODE({name: getattr(action, name) for name in _QUICK_CHECKS[kind]})


_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


_QUICK_CHECKS = {
    kind: {name: quick_check(wanted) for name, wanted in field_types(own).items()}
    for kind, own in ACTIONS.items()
}
_DEFAULTS = {
    kind: {
        field.name: field.default
        for field in dataclasses.fields(own)
        if field.default is not dataclasses.MISSING
    }
    for kind, own in ACTIONS.items()
}
