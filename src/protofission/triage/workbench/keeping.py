"""Keep a refit or go back: the log says which version is in use, and the model's files follow it.

A version is written whole before the log names it, and the log names it before the model's own
files change. Killed in between, the model opens as it was, and `follow_version` does the rest.
"""

from __future__ import annotations

from protofission.core.errors import require
from protofission.triage.workbench.actions import KeepRefit, RevertRefit
from protofission.triage.workbench.versions import (
    candidate_folder,
    current_version,
    read_record,
    settle,
    store_candidate,
    switch,
)
from protofission.triage.workbench.workbench import Workbench


def follow_version(workbench: Workbench) -> None:
    """Make the files of the model those of the version in use; call it at opening, after undo too.

    Raises:
        InputError: they cannot be written.
    """
    state, material = workbench.now
    settle(material.model)
    if current_version(material.model) != state.version:
        switch(material.model, state.version)


def keep_refit(workbench: Workbench) -> int:
    """Use the refit that waits from now on, and return the id of the action."""
    state, material = workbench.now
    model = material.model
    follow_version(workbench)
    record = read_record(candidate_folder(model))
    version = store_candidate(model, state.newest_version)
    names = record.subclass_names, record.cluster_names
    number = workbench.do(KeepRefit(version, record.classes, *names))
    follow_version(workbench)
    return number


def go_back(workbench: Workbench) -> int:
    """Use the model before the last refit that was kept; labels stay. The id of the action."""
    version = workbench.state.version
    require(version > 0, "The model of the fit is in use: there is nothing to go back from.")
    number = workbench.do(RevertRefit(version))
    follow_version(workbench)
    return number
