"""The images to label next, with a suggestion each."""

from __future__ import annotations

from typing import Any

from protofission.triage.workbench.actions import NONE
from protofission.triage.workbench.next_table import next_images
from protofission.web.label.desk import Desk


def next_screen(desk: Desk, number: int) -> list[dict[str, Any]]:
    """Images to label next, the most useful first: those of the verb `next`."""
    state, material, _ = desk.now()
    images, ids = next_images(state, material, number, desk.model_units(material))
    names = [state.classes[own].name for own in ids]
    return [
        {
            "row": found.row,
            "suggestion": NONE if found.suggestion == NONE else ids[found.suggestion],
            "probability": round(found.probability, 5),
            "why": found.words(names),
        }
        for found in images
    ]
