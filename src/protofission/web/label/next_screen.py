"""The images to label next, with a suggestion each."""

from __future__ import annotations

from typing import Any

from protofission.triage.workbench.next_labels import choose_next
from protofission.triage.workbench.next_table import prospects_of
from protofission.web.label.desk import Desk


def next_screen(desk: Desk, number: int) -> list[dict[str, Any]]:
    """Images to label next, the most useful first: those of the verb `next`."""
    state, material, _ = desk.now()
    prospects, ids = prospects_of(state, material, desk.model_units(material))
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
