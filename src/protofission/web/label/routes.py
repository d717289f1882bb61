"""The application of the workbench: its pages, pictures and HTTP API."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response

from protofission.web.label.answers import StaticPages, answer_errors, picture_answer
from protofission.web.label.changing_routes import changing_routes
from protofission.web.label.desk import Desk
from protofission.web.label.pictures import Pictures
from protofission.web.label.reading_routes import reading_routes
from protofission.web.sentences import AnswerError

STATIC = Path(__file__).with_name("static")
ENTRANCE = "index.html"


def build_app(desk: Desk, pictures: Pictures, more: Iterable[APIRouter]) -> FastAPI:
    """The application behind the door; `more` are routes of work in the background."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    answer_errors(app)
    for router in (_pages(desk, pictures), *reading_routes(desk), changing_routes(desk), *more):
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
