"""Routes that read: images and screens."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Response

from protofission.core.errors import require
from protofission.web.label.answers import Body, check_keys, json_answer, screen_answer
from protofission.web.label.desk import Desk
from protofission.web.label.next_screen import next_screen
from protofission.web.label.problems import problems_screen
from protofission.web.label.row_sets import check_rows, image_lines
from protofission.web.label.screens import (
    class_screen,
    cluster_screen,
    images_screen,
    map_screen,
    overview,
    random_screen,
)

MOST_LINES = 2000
"""Most images in an answer."""

Count = Annotated[int, Query(ge=1, le=500)]


def reading_routes(desk: Desk) -> list[APIRouter]:
    """All routes that read."""
    return [_image_routes(desk), _screen_routes(desk)]


def _image_routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/overview")
    def the_overview() -> Response:
        return screen_answer(overview(desk))

    @router.get("/last")
    def last() -> Response:
        return screen_answer({"last_action": desk.last_action, "refit": desk.refit_status()})

    @router.get("/images")
    def images(
        set: str,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=0, le=MOST_LINES)] = 100,
        only: str = "",
    ) -> Response:
        if only == "rows":
            table, rows = desk.rows_of(set)
            found = {"set": set, "total": len(rows), "last_action": table.last_action}
            return json_answer({**found, "rows": rows.tolist()}, last_action=table.last_action)
        require(not only, "only takes rows, and nothing else.")
        return screen_answer(images_screen(desk, set, offset, limit))

    @router.post("/images")
    def images_of_rows(body: Body) -> Response:
        rows = check_rows(_rows_of(body), desk.number)
        require(len(rows) <= MOST_LINES, f"{len(rows):,} rows: ask for {MOST_LINES} at a time.")
        table = desk.now().table
        lines = image_lines(table, desk.names, rows)
        found = {"total": len(rows), "offset": 0, "last_action": table.last_action}
        return screen_answer({**found, "images": lines})

    return router


def _screen_routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/classes/{class_id}")
    def one_class(class_id: int) -> Response:
        return screen_answer(class_screen(desk, class_id))

    @router.get("/clusters")
    def clusters() -> Response:
        return json_answer(cluster_screen(desk))

    @router.get("/map")
    def map_of_images(only: str = "") -> Response:
        require(only in ("", "state"), "only takes state, and nothing else.")
        return screen_answer(map_screen(desk, with_places=not only))

    @router.get("/similar/{row}")
    def similar(row: int, n: Count = 24) -> Response:
        check_rows([row], desk.number)
        rows, cosines = desk.space.similar(row, n)
        pairs = zip(rows.tolist(), np.round(cosines, 5).tolist(), strict=True)
        return json_answer([{"row": near, "cosine": cosine} for near, cosine in pairs])

    @router.get("/next")
    def next_images(n: Annotated[int, Query(ge=1, le=100)] = 12) -> Response:
        return json_answer(next_screen(desk, n))

    @router.get("/problems")
    def problems() -> Response:
        return screen_answer(problems_screen(desk))

    @router.get("/random")
    def random_queue() -> Response:
        return screen_answer(random_screen(desk))

    return router


def _rows_of(body: dict[str, Any]) -> list[int]:
    check_keys(body, "rows")
    rows = body["rows"]
    require(
        isinstance(rows, list) and all(type(row) is int for row in rows),
        "rows must be a list of whole numbers.",
    )
    return list(rows)
