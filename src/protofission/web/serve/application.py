"""The application of a prediction server: its addresses and their answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from protofission.triage.prediction_blocks import Predictor
from protofission.triage.prediction_table import PREDICTION_COLUMNS, Row
from protofission.web.asgi import Application
from protofission.web.guard import GuardRules, RequestGuard
from protofission.web.sentences import AnswerError, answer_in_sentences
from protofission.web.serve.bearer import want_token
from protofission.web.serve.description import describe_page, describe_server
from protofission.web.serve.metrics import CONTENT_TYPE, ServeMetrics
from protofission.web.serve.model_card import model_card
from protofission.web.serve.options import ServeOptions
from protofission.web.serve.request_images import check_media_type, media_type
from protofission.web.serve.service import PredictionService

PATHS = ("/predict", "/model", "/health", "/metrics", "/openapi.json", "/")
"""All addresses of the server."""


class PredictionServer:
    """A guarded ASGI application that predicts images.

    Args:
        predictor: the model with its encoder.
        rules: those of the guard; the limits of bodies are those of the options.
        token: requests need it, but for /health.
    """

    def __init__(
        self,
        predictor: Predictor,
        options: ServeOptions | None = None,
        rules: GuardRules | None = None,
        token: str | None = None,
    ) -> None:
        options, rules = options or ServeOptions(), rules or GuardRules()
        card = model_card(predictor.bundle, options)
        facts = {"fingerprint": card["fingerprint"], "made_by": card["made_by"]}
        self.metrics = ServeMetrics(PATHS, facts)
        self.service = PredictionService(predictor, options, self.metrics)
        described = describe_server(card)
        self._answers: dict[str, Response] = {
            "/model": json_response(card),
            "/openapi.json": json_response(described),
            "/": HTMLResponse(describe_page(described)),
        }
        inner = Starlette(routes=self._routes(), lifespan=self._live)
        answer_in_sentences(inner)
        bounds = GuardRules(
            rules.names, rules.any_address, options.body_bytes, options.seconds, rules.wants_origin
        )
        guarded = RequestGuard(want_token(inner, token, {"/health"}), bounds)
        self.application: Application = self.metrics.count_requests(guarded)

    def _routes(self) -> list[Route]:
        fixed = [Route(path, self._fixed(path)) for path in self._answers]
        return [
            Route("/predict", self._predict, methods=["POST"]),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            *fixed,
        ]

    @asynccontextmanager
    async def _live(self, _: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.service.close()

    def _fixed(self, path: str) -> Callable[[Request], Any]:
        async def answer(_: Request) -> Response:
            return self._answers[path]

        return answer

    async def _health(self, _: Request) -> Response:
        ready = self.service.ready
        return json_response({"live": True, "ready": ready}, 200 if ready else 503)

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(self.metrics.text(), media_type=CONTENT_TYPE)

    async def _predict(self, request: Request) -> Response:
        self.service.check_open()
        kind = request.headers.get("content-type", "").encode("latin-1")
        check_media_type(media_type(kind))
        with self.service.held_body() as held:
            pieces = []
            try:
                async for piece in request.stream():
                    held.add(len(piece))
                    pieces.append(piece)
            except ClientDisconnect:
                raise AnswerError(400, "The body was cut short.") from None
            body = b"".join(pieces)
            pieces.clear()  # else they are held as long as the body
            name = request.query_params.get("name", "image")
            rows = await self.service.predict(body, kind, name)
        return rows_response(rows)


def rows_response(rows: Sequence[Row]) -> Response:
    """The answer with some rows; 422 with the reason, if none of the images can be read."""
    columns = len(PREDICTION_COLUMNS)
    found = [dict(zip(PREDICTION_COLUMNS, row[:columns], strict=True)) for row in rows]
    answer: dict[str, Any] = {"predictions": found}
    if not all(row.error for row in rows):
        return json_response(answer)
    answer["error"] = (
        f"The image cannot be used: {rows[0].error}."
        if len(rows) == 1
        else f"None of the {len(rows)} images can be used; of the first: {rows[0].error}."
    )
    return json_response(answer, 422)


def json_response(value: Any, status: int = 200) -> Response:
    """A value as JSON, without NaN, in ASCII."""
    text = json.dumps(value, allow_nan=False)
    return Response(text, status, media_type="application/json")
