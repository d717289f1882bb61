"""The problems screen: unreadable files, copies, near-duplicates, and labels in doubt."""

from __future__ import annotations

from typing import Any

import numpy as np

from protofission.triage.prediction_table import escape_text
from protofission.web.label.desk import Desk

MOST_PROBLEMS = 1000
"""Most entries of each kind on the screen."""
SAME = 1 - 1e-6
"""The least cosine of features of copies: those of one picture in two files."""


def problems_screen(desk: Desk) -> dict[str, Any]:
    """The problems with files and labels; labels in doubt by how much, the worst first."""
    moment = desk.now()
    copies, near = _duplicates(desk)
    found: dict[str, list[Any]] = {
        "unreadable": [
            {"path": escape_text(path), "reason": escape_text(reason)}
            for path, reason in moment.material.unreadable.items()
        ],
        "copies": copies,
        "near_duplicates": near,
        "doubts": _doubts(desk),
    }
    return {
        "last_action": moment.state.last_id,
        "totals": {kind: len(entries) for kind, entries in found.items()},
        **{kind: entries[:MOST_PROBLEMS] for kind, entries in found.items()},
    }


def _duplicates(desk: Desk) -> tuple[list[list[int]], list[list[int]]]:
    """Groups of copies, and of images that are nearly the same."""
    copies: list[list[int]] = []
    near: list[list[int]] = []
    for group in desk.workbench.material.duplicates:
        rows = np.array(group)
        units = desk.space.units[rows]
        same = bool(((units @ units[0]) >= SAME).all())
        (copies if same else near).append(list(group))
    return copies, near


def _doubts(desk: Desk) -> list[dict[str, Any]]:
    """Labels in doubt that are still as they were at the fit."""
    state, material, table = desk.now()
    found = material.label_verdicts
    doubts = found.doubts
    rows = np.flatnonzero(found.doubtful)
    rows = rows[np.argsort(-doubts[rows], kind="stable")]
    confirmed = state.confirmed
    return [
        {
            "row": row,
            "label": label,
            "likeliest": state.resolve(int(found.likeliest[row])),
            "probability": round(float(found.probability[row]), 5),
            "doubt": round(float(doubts[row]), 5),
            "confirmed": bool(confirmed[row]),
        }
        for row in rows.tolist()
        if (label := int(table.labels[row])) == state.resolve(int(found.labels[row]))
    ]
