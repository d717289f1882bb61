"""Actions in words, for a person who is about to undo one."""

from __future__ import annotations

from typing import assert_never

from protofission.core.errors import printable
from protofission.triage.workbench.actions import (
    NONE,
    Action,
    AddClass,
    ConfirmLabels,
    DissolveSubclasses,
    DrawRandom,
    JunkCluster,
    KeepRefit,
    Label,
    MergeClasses,
    MergeClusters,
    MergeSubclasses,
    NameCluster,
    NameSubclass,
    PromoteCluster,
    PromoteSubclass,
    Redo,
    RenameClass,
    RevertRefit,
    Skip,
    SplitCluster,
    Undo,
)
from protofission.triage.workbench.state import WorkbenchState


def describe(state: WorkbenchState, action: Action) -> str:
    """A few words on an action, with the names that classes have now."""
    match action:
        case Label(images=images, class_id=None):
            return f"take back the label{_s(images)} of {_images(images)}"
        case Label(images=images, class_id=class_id):
            name = "none of these" if class_id == NONE else _class(state, class_id)
            return f"label {_images(images)} {name}"
        case Skip(images=images):
            return f"skip {_images(images)}"
        case ConfirmLabels(images=images):
            return f"confirm the label{_s(images)} of {_images(images)}"
        case DrawRandom(images=images):
            return f"draw {_images(images)} at random"
        case AddClass(name=name):
            return f"add the class {_name(name)}"
        case RenameClass(name=name):
            return f"rename a class {_name(name)}"
        case MergeClasses(classes=merged, into=into):
            many = f"{len(merged)} classes" if len(merged) > 1 else _class(state, merged[0])
            return f"merge {many} into {_class(state, into)}"
        case NameSubclass(name=name):
            return f"name a sub-class {_name(name)}"
        case MergeSubclasses(class_id=class_id, subclasses=merged):
            return f"merge {len(merged) + 1} sub-classes of {_class(state, class_id)}"
        case PromoteSubclass(name=name, images=images) | PromoteCluster(name=name, images=images):
            return f"make {_images(images or ())} the class {_name(name)}"
        case DissolveSubclasses(class_id=class_id):
            return f"dissolve the sub-classes of {_class(state, class_id)}"
        case NameCluster(name=name):
            return f"name a cluster {_name(name)}"
        case MergeClusters(clusters=merged):
            return f"merge {len(merged) + 1} clusters"
        case SplitCluster(parts=parts):
            return f"split a cluster into {len(parts)}"
        case JunkCluster(images=images):
            return f"set {_images(images or ())} of a cluster aside"
        case KeepRefit(version=version):
            return f"keep version {version} of the model"
        case RevertRefit(version=version):
            return f"go back from version {version} of the model"
        case Undo() | Redo():
            return "undo" if isinstance(action, Undo) else "redo"
        case _:
            assert_never(action)


def _images(images: tuple[int, ...]) -> str:
    return f"{len(images):,} image{_s(images)}"


def _s(images: tuple[int, ...]) -> str:
    return "s" * (len(images) != 1)


def _name(name: str) -> str:
    return f"“{printable(name)}”"


def _class(state: WorkbenchState, class_id: int | None) -> str:
    """The name of a class; an action that was undone may be of one that is gone."""
    found = None if class_id is None else state.classes.get(class_id)
    return f"class {class_id}" if found is None else _name(found.name)
