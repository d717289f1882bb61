"""Routes that change: actions, undo and redo, random queues, splits of clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fastapi import APIRouter, Response

from protofission.core.errors import require, unknown
from protofission.system.json_files import as_type
from protofission.triage.workbench.actions import ACTIONS, SplitCluster, read_action
from protofission.triage.workbench.keeping import follow_version
from protofission.web.label.answers import Body, as_conflict, check_keys, json_answer, screen_answer
from protofission.web.label.desk import Desk
from protofission.web.label.screens import overview, random_screen

MOST_PARTS = 50
"""Most parts that a cluster is split into at a time."""
OWN_ROUTES = ("undo", "redo", "draw_random", "split_cluster", "keep_refit", "revert_refit")
"""Actions that have routes of their own, because the server computes a part of them."""


def changing_routes(desk: Desk) -> APIRouter:
    """All routes that change the workbench itself."""
    router = APIRouter(prefix="/api")

    @router.post("/actions")
    def act(body: Body) -> Response:
        check_keys(body, "kind", "content")
        kind = as_type(body["kind"], str, "kind").replace("-", "_")
        known = [name for name in ACTIONS if name not in OWN_ROUTES]
        if kind not in known:
            raise unknown("action", kind, known)
        return done(desk, desk.workbench.do(read_action(kind, body["content"])))

    @router.post("/undo")
    def undo(body: Body) -> Response:
        return done(desk, _step(desk, desk.workbench.undo, body))

    @router.post("/redo")
    def redo(body: Body) -> Response:
        return done(desk, _step(desk, desk.workbench.redo, body))

    @router.post("/random")
    def draw(body: Body) -> Response:
        check_keys(body, "n")
        drawn = desk.workbench.draw_random(as_type(body["n"], int, "n"))
        found = random_screen(desk)
        more = {"id": found["last_action"], "drawn": list(drawn), "overview": overview(desk)}
        return screen_answer({**found, **more})

    @router.post("/clusters/{cluster}/split")
    def split(cluster: int, body: Body) -> Response:
        check_keys(body, "parts")
        parts = as_type(body["parts"], int, "parts")
        require(2 <= parts <= MOST_PARTS, f"parts = {parts}: give 2 to {MOST_PARTS}.")
        rows = np.flatnonzero(desk.now().table.open_clusters == cluster)
        require(len(rows) >= 2, f"Cluster {cluster} has {len(rows)} images: there is no splitting.")
        found = desk.space.split(rows, parts)
        require(len(found) >= 2, f"The images of cluster {cluster} are all alike: keep it whole.")
        action = SplitCluster(cluster, tuple(tuple(part.tolist()) for part in found))
        return done(desk, desk.workbench.do(action))

    return router


def done(desk: Desk, number: int) -> Response:
    """The answer to a change: its id, and the overview after it."""
    after = overview(desk)
    found = {"id": number, "last_action": after["last_action"], "overview": after}
    return json_answer(found, last_action=after["last_action"])


def _step(desk: Desk, change: Callable[[int | None], int], body: dict[str, Any]) -> int:
    """Undo or redo; that there is nothing, or something else by now, is no fault of the request."""
    expected = body.pop("expected", None)
    check_keys(body)
    if expected is not None:
        as_type(expected, int, "expected")
    with desk.versions:
        with as_conflict():
            number = change(expected)
        follow_version(desk.workbench)
    return number
