"""Actions in words, for a person who is about to undo one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protofission.core.errors import printable
from protofission.triage.workbench.actions import (
    NONE,
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
from protofission.triage.workbench.state import WorkbenchState

_Wording = Callable[[WorkbenchState, Any], str]

ACTION_WORDS: dict[type[Action], _Wording] = {
    Label: lambda state, own: _label_words(state, own),
    LabelEach: lambda state, own: (
        f"label {_images(own.images)} in {len(set(own.classes)):,} classes"
    ),
    LabelAsNew: lambda state, own: (
        f"label {_images(own.images)} with the new class {_name(own.name)}"
    ),
    Skip: lambda state, own: f"skip {_images(own.images)}",
    ConfirmLabels: lambda state, own: f"confirm the label{_s(own.images)} of {_images(own.images)}",
    DrawRandom: lambda state, own: f"draw {_images(own.images)} at random",
    AddClass: lambda state, own: f"add the class {_name(own.name)}",
    RenameClass: lambda state, own: f"rename a class {_name(own.name)}",
    MergeClasses: lambda state, own: (
        f"merge {', '.join(_class(state, one) for one in own.classes[:5])} into "
        f"{_class(state, own.into)}"
    ),
    NameSubclass: lambda state, own: f"name a sub-class {_name(own.name)}",
    MergeSubclasses: lambda state, own: (
        f"merge {len(own.subclasses) + 1} sub-classes of {_class(state, own.class_id)}"
    ),
    PromoteSubclass: lambda state, own: _promotion_words(own),
    DissolveSubclasses: lambda state, own: (
        f"dissolve the sub-classes of {_class(state, own.class_id)}"
    ),
    NameCluster: lambda state, own: f"name a cluster {_name(own.name)}",
    MergeClusters: lambda state, own: f"merge {len(own.clusters) + 1} clusters",
    SplitCluster: lambda state, own: f"split a cluster into {len(own.parts)}",
    PromoteClusters: lambda state, own: _promotion_words(own),
    JunkClusters: lambda state, own: (
        f"set {_clusters(own.clusters)} of {_images(own.images or ())} aside"
    ),
    KeepRefit: lambda state, own: f"keep version {own.version} of the model",
    RevertRefit: lambda state, own: f"go back from version {own.version} of the model",
    Undo: lambda state, own: f"undo action {own.action}",
    Redo: lambda state, own: f"redo action {own.action}",
}


def describe(state: WorkbenchState, action: Action) -> str:
    """A few words on an action, with the names that classes have now."""
    return ACTION_WORDS[type(action)](state, action)


def _label_words(state: WorkbenchState, action: Label) -> str:
    if action.class_id is None:
        return f"take back the label{_s(action.images)} of {_images(action.images)}"
    name = "none of these" if action.class_id == NONE else _class(state, action.class_id)
    return f"label {_images(action.images)} {name}"


def _promotion_words(action: PromoteSubclass | PromoteClusters) -> str:
    return f"make {_images(action.images or ())} the class {_name(action.name)}"


def _images(images: tuple[int, ...]) -> str:
    return f"{len(images):,} image{_s(images)}"


def _clusters(clusters: tuple[int, ...]) -> str:
    return "a cluster" if len(clusters) == 1 else f"{len(clusters):,} clusters"


def _s(images: tuple[int, ...]) -> str:
    return "s" * (len(images) != 1)


def _name(name: str) -> str:
    return f"“{printable(name)}”"


def _class(state: WorkbenchState, class_id: int) -> str:
    """The name of a class; an action that was undone may be of one that is gone."""
    found = state.classes.get(class_id)
    return f"class {class_id}" if found is None else _name(found.name)
