"""Answers of the workbench: JSON, pictures and pages; errors as one sentence."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

from protofission.core.errors import InputError, printable, require
from protofission.system.json_files import parse_json
from protofission.system.plain_files import read_plain
from protofission.web.asgi import Application, Message, Receive, Scope, Send
from protofission.web.label.pictures import MissingImageError, Picture
from protofission.web.sentences import AnswerError, answer_in_sentences

LAST_ACTION = "X-Last-Action"
"""The header of every answer that says up to which action its content goes, at least."""
LONGEST_SENTENCE = 500
"""Most characters of an error."""
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
"""Types of the files that pages are made of, by their endings."""
ALWAYS_ASKED = "private, no-cache"


def json_answer(content: Any, status: int = 200, last_action: int | None = None) -> Response:
    """JSON without NaN, in which no browser finds HTML."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    headers = {} if last_action is None else {LAST_ACTION: str(last_action)}
    return Response(text, status, headers, "application/json")


def screen_answer(content: dict[str, Any]) -> Response:
    """A screen, which says up to which action it goes."""
    return json_answer(content, last_action=content["last_action"])


def error_answer(status: int, sentence: str) -> Response:
    """A sentence on what is wrong."""
    return json_answer({"error": sentence[:LONGEST_SENTENCE]}, status)


async def read_body(request: Request) -> dict[str, Any]:
    """The JSON object in the body of a request; the guard has bounded its size."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise AnswerError(415, "The body must be JSON: send it as application/json.")
    content = await request.body()
    try:
        found = parse_json(content) if content.strip() else {}
    except InputError as error:
        raise InputError(f"The body cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise InputError("The body must be a JSON object.")
    return found


Body = Annotated[dict[str, Any], Depends(read_body)]
"""The JSON object in the body of a request, as an argument of a route."""


def check_keys(body: dict[str, Any], *wanted: str) -> None:
    """Refuse a body that has not these keys, or others."""
    for key in wanted:
        require(key in body, f"{key} is missing in the body.")
    for key in body:
        require(key in wanted, f"{printable(key)[:60]} is not known in the body.")


@contextmanager
def as_conflict() -> Iterator[None]:
    """Refuse as a conflict, with 409: that something is not possible now is not asked wrongly."""
    try:
        yield
    except InputError as error:
        if _is_of_disk(error):
            raise
        raise AnswerError(409, str(error)) from None


def _is_of_disk(error: BaseException) -> bool:
    """Whether an error in words is of a disk: its cause is then SQLite's or the system's."""
    return isinstance(error.__context__, sqlite3.Error | OSError)


def picture_answer(request: Request, picture: Picture) -> Response:
    """A picture, or nothing where the browser has it."""
    return _tagged(request, picture.content, picture.kind, f'"{picture.version}"', ALWAYS_ASKED)


class StaticPages:
    """The files of the pages, read once; a file is found by its name alone."""

    def __init__(self, folder: Path) -> None:
        self._files = {
            path.name: (content, MEDIA_TYPES[path.suffix], f'"{sha256(content).hexdigest()[:32]}"')
            for path in sorted(folder.glob("*"))
            if path.suffix in MEDIA_TYPES and path.is_file()
            for content in [read_plain(path)]
        }

    def answer(self, request: Request, name: str) -> Response:
        """A file of the pages."""
        if name not in self._files:
            raise AnswerError(404, "There is no such file of the pages.")
        return _tagged(request, *self._files[name], ALWAYS_ASKED)


def _tagged(request: Request, content: bytes, kind: str, tag: str, kept: str) -> Response:
    headers = {"ETag": tag, "Cache-Control": kept}
    known = [part.strip() for part in request.headers.get("if-none-match", "").split(",")]
    if tag in known:
        return Response(status_code=304, headers=headers)
    return Response(content, 200, headers, kind)


def answer_errors(app: FastAPI) -> None:
    """Answer every error in one sentence of JSON."""

    async def refuse_input(_: Request, error: Exception) -> Response:
        return error_answer(507 if _is_of_disk(error) else 400, str(error))

    async def refuse_values(_: Request, error: Exception) -> Response:
        wrong = error.errors()[0] if isinstance(error, RequestValidationError) else {}
        place = printable(str(wrong.get("loc", ("a value",))[-1]))[:60]
        shown, why = printable(str(wrong.get("input", "")))[:60], str(wrong.get("msg", "no fit"))
        return error_answer(400, f"{place} = {shown} is refused: {why[:1].lower()}{why[1:]}.")

    async def refuse_image(_: Request, error: Exception) -> Response:
        return error_answer(404, str(error))

    async def refuse_disk(_: Request, error: Exception) -> Response:
        why = getattr(error, "strerror", None) or type(error).__name__
        return error_answer(507, f"The disk cannot be used ({why}): make room, then do it again.")

    answer_in_sentences(app)
    app.add_exception_handler(InputError, refuse_input)
    app.add_exception_handler(RequestValidationError, refuse_values)
    app.add_exception_handler(MissingImageError, refuse_image)
    app.add_exception_handler(OSError, refuse_disk)


class LastActionHeader:
    """Says in each answer up to which action it goes: that before the request, if nothing else."""

    def __init__(self, app: Application, last_action: Callable[[], int]) -> None:
        self.app, self.last_action = app, last_action

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, and add the header to its answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        name, value = LAST_ACTION.lower().encode(), str(self.last_action()).encode()

        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if all(key.lower() != name for key, _ in headers):
                    message = {**message, "headers": [*headers, (name, value)]}
            await send(message)

        await self.app(scope, receive, send_with_header)
