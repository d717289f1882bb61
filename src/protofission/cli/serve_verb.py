"""The verb serve: predictions by HTTP."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from protofission.cli.arguments import (
    AllowDownload,
    Flag,
    Model,
    OptionalPath,
    OptionalWhole,
    Whole,
)

TOKEN_VARIABLE = "PROTOFISSION_TOKEN"
HostNames = Annotated[
    tuple[str, ...], Parameter(name="--host-name", negative="", show_default=False)
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServeLimits:
    """Bounds of requests, of what waits, and of what is computed at once."""

    body_megabytes: Whole = 32
    """Most megabytes of a request."""
    images: Whole = 64
    """Most images of a request."""
    megapixels: Whole = 50
    """Most millions of pixels of an image."""
    queue: Whole = 256
    """Most images that wait; further requests are refused with 429."""
    seconds: float = 30.0
    """Most seconds of a request."""
    batch: OptionalWhole = None
    """Most images that are encoded together; by default as many as suit the encoder."""
    threads: OptionalWhole = None
    """Threads that encode; by default one per processor."""


DEFAULT_LIMITS = ServeLimits()


def serve(
    model: Model,
    /,
    *,
    port: Whole = 8000,
    host: str = "127.0.0.1",
    allow_remote: Flag = False,
    host_name: HostNames = (),
    token_file: OptionalPath = None,
    limits: ServeLimits = DEFAULT_LIMITS,
    allow_download: AllowDownload = False,
) -> None:
    """Serve predictions by HTTP: POST /predict, GET /model, /health, /metrics, /openapi.json.

    Takes an image as a body, or many in a form or in JSON, and gives the rows of `protofission
    predict`. Requests that come together are encoded together. What is too large, too much or too
    late is refused in a sentence. Ctrl-C or SIGTERM finishes the requests that were begun.

    For example:

        protofission serve model
        curl -H 'Content-Type: image/jpeg' --data-binary @a.jpg http://127.0.0.1:8000/predict
        curl -F image=@a.jpg -F image=@b.png http://127.0.0.1:8000/predict
        protofission serve model --host 0.0.0.0 --allow-remote --token-file token

    Parameters
    ----------
    port
        Port to listen at; 0 takes a free one.
    host
        Address to listen at; one that other machines reach needs --allow-remote.
    allow_remote
        Let other machines reach the server.
    host_name
        A further name under which the server is asked, such as that of a proxy; repeat for more.
    token_file
        File with a token that requests then need, as Authorization: Bearer TOKEN; by default the
        variable PROTOFISSION_TOKEN, if it is set.
    """
    from protofission.web.serve.options import MEGA, ServeOptions, read_token
    from protofission.web.serve.start import serve as run

    options = ServeOptions(
        body_bytes=limits.body_megabytes * MEGA,
        images=limits.images,
        pixels=limits.megapixels * MEGA,
        queue=limits.queue,
        held_bytes=max(ServeOptions.held_bytes, limits.body_megabytes * MEGA),
        seconds=limits.seconds,
        batch=limits.batch,
        threads=limits.threads,
    )
    run(
        model,
        options,
        host=host,
        port=port,
        allow_remote=allow_remote,
        names=host_name,
        token=read_token(token_file, os.environ.get(TOKEN_VARIABLE)),
        allow_download=allow_download,
        say=lambda sentence: print(sentence, flush=True),
    )
