"""The contents of the screens, as plain values of JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.number_words import images
from protofission.pages.score_histogram import BINS, FEW, FEW_BINS, bin_edges, bin_shares
from protofission.triage.calibrated_model import ACCEPT, DECISIONS, NOVEL, REJECT
from protofission.triage.workbench.action_words import describe
from protofission.triage.workbench.actions import NONE, UNLABELED
from protofission.triage.workbench.group_views import cluster_groups, subclass_groups
from protofission.triage.workbench.state import WorkbenchState
from protofission.web.label.desk import Desk
from protofission.web.label.row_sets import (
    CLASS_PARTS,
    ImageTable,
    check_class,
    image_lines,
    rows_of_set,
)

STRIP, COLUMN = 24, 12
"""Images in a strip of a class, and in the column of a sub-class."""
NEAREST, FARTHEST = 8, 4
"""Images on the card of a cluster."""


def overview(desk: Desk) -> dict[str, Any]:
    """Counts, the histogram of scores, the guarantee, classes, and what can be undone."""
    state, material, table = desk.now()
    card = material.bundle.card
    undo, redo = state.next_undo, state.next_redo
    answered = len(state.random_queue) - len(state.random_open)
    return {
        "model": desk.title,
        "version": state.version,
        "last_action": state.last_id,
        "rows": desk.number,
        "num_labeled": state.num_labeled,
        "counts": _counts(table),
        "histogram": _histogram(material.bundle.calibration, table),
        "guarantee": _text(card, "calibration", "guarantee"),
        "strangers": _text(card, "pool", "strangers"),
        "findings": list((card.get("data") or {}).get("findings") or ()),
        "classes": _classes(state, table),
        "changed": _changed(state, desk.fitted_labels(state, material)),
        "refit": desk.refit_status(),
        "can_undo": None if undo is None else describe(state, undo[1]),
        "can_redo": None if redo is None else describe(state, redo[1]),
        "random": {"drawn": len(state.random_queue), "answered": answered},
    }


def _text(card: dict[str, Any], section: str, key: str) -> str | None:
    found = card.get(section)
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, str) else None


def _counts(table: ImageTable) -> dict[str, int]:
    decided = np.bincount(table.decisions[table.num_labeled :], minlength=len(DECISIONS))
    return {
        "accepted": int(decided[ACCEPT]),
        "rejected": int(decided[REJECT]),
        "novel": int(decided[NOVEL]),
        "labeled": int((table.labels >= 0).sum()),
        "none": int((table.labels == NONE).sum()),
        "unlabeled": int((table.labels == UNLABELED).sum()),
        "skipped": int(table.skipped.sum()),
    }


def _histogram(scores: NDArray[np.float32], table: ImageTable) -> dict[str, Any]:
    known = scores.astype(np.float64)
    pool = table.id_scores[table.num_labeled :]
    known, pool = known[np.isfinite(known)], pool[np.isfinite(pool)]
    bins = FEW_BINS if len(known) < FEW else BINS
    edges = bin_edges(np.concatenate([known, pool]), table.threshold, bins)
    return {
        "edges": np.round(edges, 6).tolist(),
        "known": np.round(bin_shares(known, edges), 6).tolist(),
        "pool": np.round(bin_shares(pool, edges), 6).tolist(),
        "threshold": table.threshold if np.isfinite(table.threshold) else None,
    }


def _classes(state: WorkbenchState, table: ImageTable) -> list[dict[str, Any]]:
    most = max(state.classes, default=-1) + 1
    labels = np.bincount(table.labels[table.labels >= 0], minlength=most)
    pool = slice(table.num_labeled, None)
    accepted = table.decisions[pool] == ACCEPT
    kept = np.bincount(table.classes[pool][accepted], minlength=most)
    others = np.bincount(table.classes[pool][~accepted], minlength=most)
    known = {state.resolve(own) for own in state.groups.classes}
    return [
        {
            "id": own.id,
            "name": own.name,
            "labels": int(labels[own.id]),
            "accepted": int(kept[own.id]),
            "rejected": int(others[own.id]),
            "new": own.id not in known,
        }
        for own in state.live_classes
    ]


def _changed(state: WorkbenchState, fitted: Ints) -> str | None:
    """A sentence on what changed since the model was fitted; None if nothing did.

    Args:
        fitted: (N,) the labels that it was fitted to; "none of these" is not among them.
    """
    ids = np.arange(max(state.classes, default=-1) + 1)
    final = np.array([state.resolve(own) if own in state.classes else own for own in ids.tolist()])
    before = np.where(fitted >= 0, final[np.maximum(fitted, 0)], UNLABELED)
    now = (
        np.where(state.label_of == NONE, UNLABELED, state.label_of)
        if state.version
        else (state.label_of)
    )
    moved = int((before != now).sum())
    known = {state.resolve(own) for own in state.groups.classes}
    new = sum(own.id not in known for own in state.live_classes)
    merged = len(state.groups.classes) - len(known)
    parts = []
    if moved:
        parts.append(f"{images(moved)} with another label")
    if new:
        parts.append(f"{new} new class{'es' * (new != 1)}")
    if merged:
        parts.append(f"{merged} class{'es' * (merged != 1)} merged")
    return f"Since the model was fitted: {', '.join(parts)}." if parts else None


def class_screen(desk: Desk, class_id: int) -> dict[str, Any]:
    """Strips of a class, and its sub-classes as columns."""
    state, material, table = desk.now()
    check_class(table, class_id)
    parts = {part: rows_of_set(table, f"class:{class_id}:{part}") for part in CLASS_PARTS}
    return {
        "id": class_id,
        "name": state.classes[class_id].name,
        "last_action": state.last_id,
        "subclasses": [
            {
                "class_id": group.class_id,
                "number": group.number,
                "name": group.name,
                "size": len(group.rows),
                "rows": _typical_first(desk, group.rows)[:COLUMN].tolist(),
                "dissolved": group.dissolved,
                "promoted": group.promoted,
            }
            for group in subclass_groups(state, material.model_rows, class_id)
        ],
        "best": parts["accepted"][:STRIP].tolist(),
        "borderline": parts["borderline"][:STRIP].tolist(),
        "rejected": parts["rejected"][:STRIP].tolist(),
        "labeled": parts["labeled"][:STRIP].tolist(),
        "totals": {part: len(rows) for part, rows in parts.items()},
    }


def _typical_first(desk: Desk, rows: Ints) -> Ints:
    return rows[np.argsort(-desk.space.typicality_of(rows), kind="stable")]


def cluster_screen(desk: Desk) -> list[dict[str, Any]]:
    """Cards of the clusters of what was rejected, the largest first."""
    state, material, table = desk.now()
    stability = desk.stability(table.open_clusters)
    cards = []
    for group in cluster_groups(state, material.model_rows):
        rows = _typical_first(desk, group.rows)
        cards.append(
            {
                "number": group.number,
                "name": group.name,
                "size": len(rows),
                "medoid": int(rows[0]) if len(rows) else None,
                "nearest": rows[1 : NEAREST + 1].tolist(),
                "farthest": rows[NEAREST + 1 :][-FARTHEST:][::-1].tolist(),
                "stability": round(stability[group.number], 3)
                if group.number in stability
                else None,
                "junk": group.junk,
                "promoted": group.promoted,
            }
        )
    return sorted(cards, key=lambda card: -int(str(card["size"])))


def images_screen(desk: Desk, name: str, offset: int, limit: int) -> dict[str, Any]:
    """A window of a set of images."""
    table, rows = desk.rows_of(name)
    return {
        "set": name,
        "total": len(rows),
        "offset": offset,
        "last_action": table.last_action,
        "images": image_lines(table, desk.names, rows[offset : offset + limit]),
    }


def map_screen(desk: Desk, with_places: bool) -> dict[str, Any]:
    """Places of all images on the map, if wanted, and what they are colored by."""
    table = desk.now().table
    found: dict[str, Any] = {
        "decision": table.decisions.tolist(),
        "class": table.classes.tolist(),
        "label": table.labels.tolist(),
        "cluster": table.clusters.tolist(),
        "last_action": table.last_action,
    }
    if with_places:
        x, y = desk.places
        found |= {"x": x.tolist(), "y": y.tolist()}
    return found


def random_screen(desk: Desk) -> dict[str, Any]:
    """The random queue, in the order drawn."""
    state, _, table = desk.now()
    rows = state.random_queue
    labels, skipped = table.labels[rows].tolist(), table.skipped[rows].tolist()
    return {
        "rows": [
            {"row": row, "label": None if label == UNLABELED else label, "skipped": was}
            for row, label, was in zip(rows.tolist(), labels, skipped, strict=True)
        ],
        "left": len(state.random_open),
        "last_action": state.last_id,
    }
