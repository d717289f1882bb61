"""The pages and the HTTP API of the workbench."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response

from protofission.core.errors import InputError, require, unknown
from protofission.system.json_files import as_type
from protofission.triage.workbench.actions import ACTIONS, SplitCluster, read_action
from protofission.web.label.answers import (
    RefusedRequestError,
    StaticPages,
    answer_errors,
    json_answer,
    picture_answer,
    read_body,
)
from protofission.web.label.desk import Desk
from protofission.web.label.pictures import Pictures
from protofission.web.label.problems import problems_screen
from protofission.web.label.row_sets import check_rows, cluster_members, image_lines
from protofission.web.label.screens import (
    class_screen,
    cluster_screen,
    images_screen,
    map_screen,
    overview,
    random_screen,
)

STATIC = Path(__file__).with_name("static")
ENTRANCE = "workbench.html"
MOST_LINES = 2000
"""Most images in an answer."""
MOST_PARTS = 50
"""Most parts that a cluster is split into at a time."""
OWN_ROUTES = ("undo", "redo", "draw_random", "split_cluster", "keep_refit", "revert_refit")
"""Actions that have routes of their own, because the server computes a part of them."""

Body = Annotated[dict[str, Any], Depends(read_body)]
Count = Annotated[int, Query(ge=1, le=500)]


def build_app(desk: Desk, pictures: Pictures, routers: list[APIRouter]) -> FastAPI:
    """The application behind the door: pages, pictures and the API."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    answer_errors(app)
    for router in (_pages(desk, pictures), _reading(desk), _changing(desk), *routers):
        app.include_router(router)
    return app


def _pages(desk: Desk, pictures: Pictures) -> APIRouter:
    router, static = APIRouter(), StaticPages(STATIC)

    def check_row(row: int) -> int:
        if not 0 <= row < desk.number:
            raise RefusedRequestError(404, f"There is no image {row}.")
        return row

    @router.get("/")
    def entrance(request: Request) -> Response:
        return static.answer(request, ENTRANCE)

    @router.get("/static/{name}")
    def static_file(request: Request, name: str) -> Response:
        return static.answer(request, name)

    @router.get("/thumb/{row}")
    def thumbnail(request: Request, row: int) -> Response:
        return picture_answer(request, pictures.thumbnail(check_row(row)))

    @router.get("/image/{row}")
    def image(request: Request, row: int) -> Response:
        return picture_answer(request, pictures.picture(check_row(row)))

    return router


def _reading(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api")

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
        return _screen(images_screen(desk, set, offset, limit))

    @router.post("/images")
    def images_of_rows(body: Body) -> Response:
        rows = check_rows(_rows_of(body), desk.number)
        require(len(rows) <= MOST_LINES, f"{len(rows):,} rows: ask for {MOST_LINES} at a time.")
        _, table = desk.table()
        lines = image_lines(table, desk.names, rows)
        found = {"total": len(rows), "offset": 0, "last_action": table.last_action}
        return _screen({**found, "images": lines})

    @router.get("/classes/{class_id}")
    def one_class(class_id: int) -> Response:
        return _screen(class_screen(desk, class_id))

    @router.get("/clusters")
    def clusters() -> Response:
        return json_answer(cluster_screen(desk))

    @router.get("/map")
    def map_of_images(only: str = "") -> Response:
        require(only in ("", "state"), "only takes state, and nothing else.")
        return _screen(map_screen(desk, with_places=not only))

    @router.get("/similar/{row}")
    def similar(row: int, n: Count = 24) -> Response:
        check_rows([row], desk.number)
        rows, cosines = desk.space.similar(row, n)
        pairs = zip(rows.tolist(), np.round(cosines, 5).tolist(), strict=True)
        return json_answer([{"row": near, "cosine": cosine} for near, cosine in pairs])

    @router.get("/problems")
    def problems() -> Response:
        return _screen(problems_screen(desk))

    @router.get("/random")
    def random_queue() -> Response:
        return _screen(random_screen(desk))

    return router


def _changing(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.post("/actions")
    def act(body: Body) -> Response:
        _check_keys(body, "kind", "content")
        kind = as_type(body["kind"], str, "kind")
        known = [name for name in ACTIONS if name not in OWN_ROUTES]
        if kind not in known:
            raise unknown("action", kind[:60], known)
        return done(desk, desk.workbench.do(read_action(kind, body["content"])))

    @router.post("/undo")
    def undo(body: Body) -> Response:
        _check_keys(body)
        return done(desk, _possible(desk.workbench.undo, desk.state.next_undo, "to undo"))

    @router.post("/redo")
    def redo(body: Body) -> Response:
        _check_keys(body)
        return done(desk, _possible(desk.workbench.redo, desk.state.next_redo, "to do again"))

    @router.post("/random")
    def draw(body: Body) -> Response:
        _check_keys(body, "n")
        number = desk.workbench.draw_random(as_type(body["n"], int, "n"))
        return _screen({"id": number, **random_screen(desk)})

    @router.post("/clusters/{cluster}/split")
    def split(cluster: int, body: Body) -> Response:
        _check_keys(body, "parts")
        parts = as_type(body["parts"], int, "parts")
        require(2 <= parts <= MOST_PARTS, f"parts = {parts}: give 2 to {MOST_PARTS}.")
        _, table = desk.table()
        rows = np.flatnonzero(cluster_members(table) == cluster)
        require(len(rows) >= 2, f"Cluster {cluster} has {len(rows)} images: there is no splitting.")
        found = desk.space.split(rows, parts)
        require(len(found) >= 2, f"The images of cluster {cluster} are all alike: keep it whole.")
        action = SplitCluster(cluster, tuple(tuple(part.tolist()) for part in found))
        return done(desk, desk.workbench.do(action))

    return router


def done(desk: Desk, number: int) -> Response:
    """The answer to a change: its id, and the overview after it."""
    after = desk.overview()
    found = {"id": number, "last_action": after["last_action"], "overview": after}
    return json_answer(found, last_action=after["last_action"])


def _screen(content: dict[str, Any]) -> Response:
    return json_answer(content, last_action=content["last_action"])
