"""Errors of a FastAPI or Starlette application as JSON with one sentence, whatever raised them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protofission.core.errors import InputError, printable
from protofission.web.guard import FAILURE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse

SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not take this method.",
}
"""Sentences of refusals that FastAPI makes itself, by status."""


class AnswerError(Exception):
    """A refusal with a status, a sentence and headers, which a handler of requests raises."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers


def answer_in_sentences(app: Starlette) -> None:
    """Make an application answer every refusal and failure as {"error": "a sentence"}.

    An `InputError` is 400, an `AnswerError` its own status, a parameter that does not fit 422.
    """
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse

    def answer(
        status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> JSONResponse:
        return JSONResponse({"error": sentence}, status, headers)

    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, AnswerError)
        return answer(error.status, error.sentence, error.headers)

    async def wrong_input(_: Request, error: Exception) -> JSONResponse:
        return answer(400, " ".join(str(error).split()))

    async def wrong_request(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        sentence = SENTENCES.get(error.status_code, str(error.detail))
        return answer(error.status_code, sentence, error.headers)

    async def wrong_parameter(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = printable(".".join(map(str, first.get("loc", ()))))[:100]
        return answer(422, f"{place}: {printable(str(first.get('msg', 'not fit')))[:200]}.")

    async def failed(_: Request, error: Exception) -> JSONResponse:
        return answer(500, FAILURE)  # and Starlette raises the error again, for the guard to log

    app.add_exception_handler(Exception, failed)
    app.add_exception_handler(AnswerError, refused)
    app.add_exception_handler(InputError, wrong_input)
    app.add_exception_handler(HTTPException, wrong_request)
    app.add_exception_handler(RequestValidationError, wrong_parameter)
