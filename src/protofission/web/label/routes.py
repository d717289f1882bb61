"""The pages and the HTTP API of the workbench."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response

from protofission.core.errors import InputError, printable, require, unknown
from protofission.system.json_files import as_type
from protofission.triage.workbench.actions import ACTIONS, SplitCluster, read_action
from protofission.web.label.answers import (
    StaticPages,
    answer_errors,
    json_answer,
    picture_answer,
    read_body,
)
from protofission.web.label.desk import Desk
from protofission.web.label.pictures import Pictures
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
from protofission.web.sentences import AnswerError

STATIC = Path(__file__).with_name("static")
ENTRANCE = "index.html"
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
            raise AnswerError(404, f"There is no image {row}.")
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

    @router.get("/overview")
    def the_overview() -> Response:
        return _screen(overview(desk))

    @router.get("/last")
    def last() -> Response:
        return _screen({"last_action": desk.last_action, "refit": desk.refit_status()})

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
        table = desk.now().table
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
        check_keys(body, "kind", "content")
        kind = as_type(body["kind"], str, "kind").replace("-", "_")
        known = [name for name in ACTIONS if name not in OWN_ROUTES]
        if kind not in known:
            raise unknown("action", kind[:60], known)
        return done(desk, desk.workbench.do(read_action(kind, body["content"])))

    @router.post("/undo")
    def undo(body: Body) -> Response:
        return done(desk, _step(desk.workbench.undo, body))

    @router.post("/redo")
    def redo(body: Body) -> Response:
        return done(desk, _step(desk.workbench.redo, body))

    @router.post("/random")
    def draw(body: Body) -> Response:
        check_keys(body, "n")
        drawn = desk.workbench.draw_random(as_type(body["n"], int, "n"))
        found = random_screen(desk)
        more = {"id": found["last_action"], "drawn": list(drawn), "overview": overview(desk)}
        return _screen({**found, **more})

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


def check_keys(body: dict[str, Any], *wanted: str) -> None:
    """Refuse a body that has not these keys, or others."""
    for key in wanted:
        require(key in body, f"{key} is missing in the body.")
    for key in body:
        require(key in wanted, f"{printable(key)[:60]} is not known in the body.")


def _step(change: Callable[[int | None], int], body: dict[str, Any]) -> int:
    """Undo or redo; that there is nothing, or something else by now, is no fault of the request."""
    expected = body.pop("expected", None)
    check_keys(body)
    if expected is not None:
        as_type(expected, int, "expected")
    try:
        return change(expected)
    except InputError as error:
        if error.__context__ is not None:  # the log cannot be written
            raise
        raise AnswerError(409, str(error)) from None


def _rows_of(body: dict[str, Any]) -> list[int]:
    check_keys(body, "rows")
    rows = body["rows"]
    require(
        isinstance(rows, list) and all(type(row) is int for row in rows),
        "rows must be a list of whole numbers.",
    )
    return list(rows)


def _screen(content: dict[str, Any]) -> Response:
    return json_answer(content, last_action=content["last_action"])
