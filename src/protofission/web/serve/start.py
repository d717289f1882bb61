"""Start a prediction server, and run it until it is told to stop."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path

from protofission.core.errors import printable, quoted, require
from protofission.data.readers.decode import quiet_pillow
from protofission.system.optional_libraries import import_optional
from protofission.web.guard import LOOPBACK_NAMES, GuardRules
from protofission.web.serve.options import ServeOptions
from protofission.web.server import address_of, bind, is_loopback, run_server


def serve(
    model: Path,
    options: ServeOptions,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_remote: bool = False,
    names: Sequence[str] = (),
    token: str | None = None,
    allow_download: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve predictions of a model until SIGINT or SIGTERM.

    Args:
        allow_remote: whether other machines may reach the server.
        names: further names under which it is asked, in the `Host` header.
        token: requests need it.
        allow_download: get the encoder from the hub, if it is not on this machine.
        say: called with sentences for the person who starts it.
    """
    for module in ("uvicorn", "httptools", "starlette", "fastapi", "python_multipart"):
        import_optional(module, "web", "protofission serve")
    for name in names:
        plain = name.isascii() and name.isprintable() and not set(name) & set(" /:@[]")
        require(bool(name) and plain, f"{quoted(name)} is no host name: give it without port.")
    from protofission.triage.prediction_blocks import Predictor
    from protofission.web.serve.application import PredictionServer

    listener = bind(host, port, allow_remote=allow_remote)  # before the model, which takes seconds
    try:
        predictor = Predictor(model, 1, allow_download)
        local = is_loopback(host)
        rules = GuardRules(LOOPBACK_NAMES | set(map(str.lower, names)), any_address=not local)
        server = PredictionServer(predictor, options, rules, token)
        gc.freeze()  # model and libraries live as long as the server

        def started() -> None:
            kinds = len(predictor.bundle.class_names)
            say(
                f"Serving {printable(str(model))} ({kinds} classes) at {address_of(listener)}: "
                "POST /predict. Stop with Ctrl-C."
            )
            if not local and token is None:
                say("Warning: whoever reaches this address may ask: give --token-file.")

        def stopping() -> None:
            server.service.stopping = True

        with quiet_pillow():
            run_server(
                server.application,
                listener,
                started=started,
                stopping=stopping,
                grace=2 * options.seconds + 5,  # for a body, and for its images
            )
    finally:
        listener.close()
