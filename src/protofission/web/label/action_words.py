"""Actions in words, for the buttons that undo and redo them."""

from __future__ import annotations

from protofission.core.number_words import images
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
    RenameClass,
    RevertRefit,
    Skip,
    SplitCluster,
)
from protofission.triage.workbench.state import WorkbenchState


def action_words(action: Action, state: WorkbenchState) -> str:  # noqa: C901 (a list of kinds)
    """An action as a few words, with the names that classes have now."""

    def name(class_id: int) -> str:
        if class_id == NONE:
            return "none of these"
        found = state.classes.get(class_id)
        return f"class {class_id}" if found is None else found.name

    match action:
        case Label(class_id=int(own)):
            return f"label {images(len(action.images))} {name(own)}"
        case Label():
            return f"take back the labels of {images(len(action.images))}"
        case Skip():
            return f"skip {images(len(action.images))}"
        case ConfirmLabels():
            return f"confirm the labels of {images(len(action.images))}"
        case DrawRandom():
            return f"draw {images(len(action.images))} at random"
        case AddClass():
            return f"add the class {action.name}"
        case RenameClass():
            return f"rename a class to {action.name}"
        case MergeClasses():
            merged = ", ".join(name(own) for own in action.classes[:3])
            more = " and others" if len(action.classes) > 3 else ""
            return f"merge {merged}{more} into {name(action.into)}"
        case NameSubclass():
            return f"name a sub-class {action.name}"
        case MergeSubclasses():
            return f"merge sub-classes of {name(action.class_id)}"
        case PromoteSubclass():
            return f"make a sub-class of {name(action.class_id)} the class {action.name}"
        case DissolveSubclasses():
            return f"dissolve the sub-classes of {name(action.class_id)}"
        case NameCluster():
            return f"name a cluster {action.name}"
        case MergeClusters():
            return f"merge {len(action.clusters) + 1} clusters"
        case SplitCluster():
            return f"split a cluster into {len(action.parts)}"
        case PromoteCluster():
            return f"make a cluster the class {action.name}"
        case JunkCluster():
            return "call a cluster junk"
        case KeepRefit():
            return f"keep version {action.version} of the model"
        case RevertRefit():
            return f"go back from version {action.version} of the model"
    return "the last action"
