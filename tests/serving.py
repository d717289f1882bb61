"""Prediction servers of a small model, for tests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asgi_client import Question
from bundles import bundle_at
from pictures import encoded, noise
from protofission.triage.prediction_blocks import Predictor
from protofission.web.serve.application import PredictionServer
from protofission.web.serve.options import ServeOptions

PICTURE = encoded(noise(12, 12))
Make = Callable[..., PredictionServer]


def model_in(factory: pytest.TempPathFactory) -> Path:
    folder = factory.mktemp("models") / "model"
    bundle_at(folder)
    return folder


@contextmanager
def servers(predictor: Predictor) -> Iterator[Make]:
    """Makes servers of some options, and ends them; none of them may keep a place or a byte."""
    made: list[PredictionServer] = []

    def make(token: str | None = None, **options: Any) -> PredictionServer:
        wanted = replace(ServeOptions(threads=2), **options)
        made.append(PredictionServer(predictor, wanted, token=token))
        return made[-1]

    yield make
    for server in made:
        server.service.close()
        assert server.service._queue.waiting == 0
        assert server.service._held == 0


def one(body: bytes = PICTURE, **changes: Any) -> Question:
    """A request with an image as its body."""
    return Question(body=body, content_type="image/png")._replace(**changes)
