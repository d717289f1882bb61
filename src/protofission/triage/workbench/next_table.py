"""The images of a workbench to label next, as a CSV file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.errors import InputError, printable, require
from protofission.system.paths import path_of
from protofission.system.whole_files import write_whole
from protofission.triage.calibrated_model import JUDGED_AT_ONCE
from protofission.triage.fold_ensemble import FoldEnsemble
from protofission.triage.prediction_table import csv_line, header_of, shortest_floats
from protofission.triage.workbench.actions import NONE, UNLABELED
from protofission.triage.workbench.material import Material
from protofission.triage.workbench.next_labels import NextImage, Prospects, choose_next
from protofission.triage.workbench.state import WorkbenchState
from protofission.triage.workbench.workbench import Workbench


class NextRow(NamedTuple):
    """An image to label next."""

    path: str
    suggestion: str
    probability: float
    id_score: float
    reason: str


NEXT_COLUMNS = NextRow._fields
NONE_OF_THESE = "none of these"
"""The suggestion for an image that is probably of no known class."""


def next_rows(model: Path, number: int) -> list[NextRow]:
    """The images to label next, by the model and the labels of its workbench.

    A workbench that is open may go on; no file of the model is changed.

    Raises:
        InputError: the number is below 1, or the folder holds no model that keeps its features.
    """
    require(number >= 1, f"n = {number} images to label must be 1 or more.")
    with Workbench.open(path_of(model), read_only=True) as workbench:
        state, material = workbench.now
    found, ids = next_images(state, material, number)
    names = [state.classes[own].name for own in ids]
    return [_row(one, material, names) for one in found]


def next_table(model: Path, number: int) -> bytes:
    """The CSV file of `next_rows`."""
    lines = map(csv_line, next_rows(model, number))
    return header_of("csv", NEXT_COLUMNS) + "".join(lines).encode()


def write_next(model: Path, number: int, out: Path, *, force: bool = False) -> int:
    """Write the file of the images to label next; return their number.

    Args:
        force: write over a file that is there.

    Raises:
        InputError: as by `next_table`; or the file is there, or cannot be written.
    """
    out = path_of(out)
    if os.path.lexists(out) and not force:
        raise InputError(
            f"{printable(str(out))} is there already: name another file, or write over it with "
            "--force."
        )
    content = next_table(model, number)
    write_whole(out, content)
    return content.count(b"\n") - 1  # a new line in a path is escaped


def next_images(
    state: WorkbenchState,
    material: Material,
    number: int,
    units: NDArray[np.float32] | None = None,
) -> tuple[list[NextImage], list[int]]:
    """The images to label next, and the ids of the classes that their suggestions number.

    Args:
        units: the `whitened_units` of the material, if they are known.
    """
    prospects, ids = prospects_of(state, material, units)
    return choose_next(prospects, number), ids.tolist()


def prospects_of(
    state: WorkbenchState, material: Material, units: NDArray[np.float32] | None = None
) -> tuple[Prospects, Ints]:
    """All images as the model sees them, and the ids of the classes of their probabilities.

    Classes that a person merged are one. Images with a label, skipped ones, copies of labeled ones
    and those of a random queue are decided: these wait for an answer in their own place.

    Args:
        units: the `whitened_units` of the material, if they are known.
    """
    found, model = material.verdicts, material.bundle.calibrated_model
    living = np.array([state.resolve(own) for own in state.groups.classes], np.int64)
    ids, places = np.unique(living, return_inverse=True)
    probs = np.zeros((material.num_images, len(ids)))
    np.add.at(probs.T, places, found.probs.double().numpy().T)
    groups = np.arange(material.num_images)
    for rows in material.duplicates:
        groups[list(rows)] = rows[0]
    prospects = Prospects(
        units=whitened_units(material) if units is None else units,
        probs=probs,
        id_scores=found.id_scores.double().numpy(),
        threshold=float(model.threshold),
        clusters=found.clusters.numpy(),
        decided=(state.label_of != UNLABELED) | state.skipped | state.drawn | material.repeated,
        groups=groups,
    )
    return prospects, ids


@torch.no_grad()
def whitened_units(material: Material) -> NDArray[np.float32]:
    """(N, d): the images in the space in which the rejected ones were clustered."""
    model = material.bundle.calibrated_model
    if not isinstance(model, FoldEnsemble):
        raise InputError(
            f"{printable(str(material.model))} holds a model of an older protofission: fit it "
            "again to choose images."
        )
    every = np.arange(material.num_images)
    parts = [
        model.clusters.units(torch.from_numpy(material.features.rows(some))).numpy()
        for some in np.array_split(every, max(-(-len(every) // JUDGED_AT_ONCE), 1))
    ]
    return np.concatenate(parts)


def _row(found: NextImage, material: Material, names: list[str]) -> NextRow:
    suggestion = NONE_OF_THESE if found.suggestion == NONE else names[found.suggestion]
    probability, score = shortest_floats([found.probability, found.id_score])
    reason = found.words(names)
    return NextRow(material.paths[found.row], suggestion, probability, score, reason)
