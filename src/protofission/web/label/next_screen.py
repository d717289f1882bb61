"""The images to label next, with a suggestion each."""

from __future__ import annotations

from typing import Any

import numpy as np

from protofission.core.array_types import Ints
from protofission.triage.workbench.actions import UNLABELED
from protofission.triage.workbench.next_labels import Prospects, choose_next
from protofission.web.label.desk import Desk


def next_screen(desk: Desk, number: int) -> list[dict[str, Any]]:
    """Images to label next, the most useful first; those of the random queue are not among them."""
    state, material, table = desk.now()
    living = np.array([state.resolve(own) for own in state.groups.classes], np.int64)
    ids, place = np.unique(living, return_inverse=True)
    given = material.verdicts.probs.numpy()
    probs = np.zeros((len(given), len(ids)), given.dtype)
    np.add.at(probs.T, place, given.T)
    decided = (table.labels != UNLABELED) | table.skipped
    decided[table.random] = True
    prospects = Prospects(
        units=desk.space.units,
        probs=probs,
        id_scores=table.id_scores,
        threshold=table.threshold,
        clusters=table.clusters,
        decided=decided,
        groups=duplicate_numbers(material.duplicates, desk.number),
    )
    names = [state.classes[own].name for own in ids.tolist()]
    return [
        {
            "row": found.row,
            "suggestion": int(ids[found.suggestion]) if found.suggestion >= 0 else -1,
            "probability": round(found.probability, 5),
            "why": found.words(names),
        }
        for found in choose_next(prospects, number)
    ]


def duplicate_numbers(groups: tuple[tuple[int, ...], ...], number: int) -> Ints:
    """(N,): numbers that near-duplicates share, and that are of one image else."""
    found = np.arange(number)
    for group in groups:
        found[list(group)] = group[0]
    return found
