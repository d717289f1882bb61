"""Open the workbench of a model: bind an address, read the model, and serve until stopped."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from protofission.core.errors import printable
from protofission.system.optional_libraries import import_optional
from protofission.web.guard import LOOPBACK_NAMES, GuardRules, RequestGuard
from protofission.web.server import address_of, bind, is_loopback, run_server

MOST_BODY_BYTES = 2**23
"""Largest body of a request: the row numbers of a million images."""
BROWSER_WAIT = 0.2
"""Seconds after the start at which a browser is opened."""


def label(
    model: Path,
    pool: Path | None = None,
    *,
    labeled: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_remote: bool = False,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the workbench of a model until SIGINT or SIGTERM.

    Args:
        model: the folder of a model that keeps its features.
        pool: the folder of the pool, if it was moved; `labeled` likewise.
        port: 0 takes a free one.
        allow_remote: whether other machines may reach it, at the `host` that is given.
        browser: open one, if there is one.
        say: prints a line.
    """
    for library in ("fastapi", "httptools", "uvicorn"):
        import_optional(library, "web", "The workbench")
    listener = bind(host, port, allow_remote=allow_remote)
    try:
        _serve(listener, model, pool, labeled, host, browser, say)
    finally:
        listener.close()


def _serve(
    listener: socket.socket,
    model: Path,
    pool: Path | None,
    labeled: Path | None,
    host: str,
    browser: bool,
    say: Callable[[str], None],
) -> None:
    from protofission.data.readers.decode import quiet_pillow
    from protofission.triage.workbench.workbench import Workbench
    from protofission.web.label.access import Access, Door
    from protofission.web.label.server_parts import ServerParts

    address = address_of(listener)

    def announce(token: str) -> None:
        say(f"For another browser: {address}/?token={token}")

    access = Access(int(listener.getsockname()[1]), announce)

    def started() -> None:
        url = f"{address}/?token={access.token}"
        say(f"The workbench of {printable(str(model))}: {url}")
        if not is_loopback(host):
            other = f"http://{socket.gethostname()}:{listener.getsockname()[1]}"
            say(f"Other machines reach it as {other}, with that token; nothing is encrypted.")
        say("Stop it with Ctrl-C; every answer is kept as it is given.")
        if browser and has_browser():
            threading.Timer(BROWSER_WAIT, open_browser, [url]).start()

    with (
        Workbench.open(model, labeled, pool) as workbench,
        closing(ServerParts(workbench, labeled, pool)) as parts,
        quiet_pillow(),  # for the whole process: filters of warnings are of all threads
    ):
        guarded = RequestGuard(Door(parts.app, access), rules_for(host))
        run_server(guarded, listener, started=started)


def rules_for(host: str) -> GuardRules:
    """The rules of the guard; from other machines, the names of this one are let through."""
    if is_loopback(host):
        return GuardRules(body_limit=MOST_BODY_BYTES, wants_origin=True)
    names = {*LOOPBACK_NAMES, host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return GuardRules(
        names=frozenset(names), any_address=True, body_limit=MOST_BODY_BYTES, wants_origin=True
    )


def has_browser() -> bool:
    """Whether there is a browser with a window, not one in this terminal."""
    if sys.platform == "darwin":
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(url: str) -> None:
    """Open a page in a browser; if there is none after all, the address is printed anyway."""
    with suppress(Exception):  # whatever a browser's launcher raises
        webbrowser.open(url)
