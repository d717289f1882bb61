"""Run a server: bind an address or say why not, print where it is, and stop gracefully."""

from __future__ import annotations

import errno
import ipaddress
import math
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from protofission.core.errors import InputError, printable, require
from protofission.system.optional_libraries import import_optional
from protofission.web.asgi import Application

BACKLOG = 1024
"""Connections that may wait to be accepted."""
KEEP_ALIVE = 20
"""Seconds that a connection may be idle between two requests."""
TAKEN = 32
"""Connections that are accepted at a time."""
OTHER_FILES = 128 + 6 * TAKEN
"""Files that a server may open beside its connections; some are taken before others are refused."""
GRACE = 35.0
"""Seconds in which requests in flight are finished when the server stops."""


def bind(host: str, port: int, *, allow_remote: bool = False) -> socket.socket:
    """Listen at an address; port 0 takes a free one.

    Args:
        allow_remote: whether other machines may reach the server.

    Raises:
        InputError: others could reach it and may not, or the address cannot be had.
    """
    require(0 <= port <= 65535, f"port = {port}: give 0 to 65535; 0 takes a free one.")
    require(
        allow_remote or is_loopback(host),
        f"host = {printable(host)} would let other machines reach the server: give --allow-remote "
        "if they are meant to, or leave 127.0.0.1.",
    )
    shown = f"{printable(host)}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError):
        raise InputError(f"host = {printable(host)} is no address of this machine.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # else two servers could bind one port, and the second fail later
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            why = "is in use: stop the other server, or give another --port (0 takes a free one)"
        elif error.errno in (errno.EACCES, errno.EPERM):
            why = "is not for this user: give a --port from 1024 on"
        else:
            why = f"cannot be listened at ({error.strerror or error}): give another --host"
        raise InputError(f"{shown} {why}.") from None
    listener.setblocking(False)
    return listener


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, seen from itself alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address_of(listener: socket.socket) -> str:
    """The address of a server, as http://HOST:PORT; one that listens everywhere is here too."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def connections_within_files(most: int) -> int:
    """Bound a number of connections by what the system's limit of open files has room for.

    The limit is raised where it may be: without files left, asyncio would try to accept without
    pause, and log a traceback each time.
    """
    if sys.platform == "win32":
        return most
    import resource

    wanted = most + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(most, soft - OTHER_FILES))
    return most


def run_server(
    app: Application,
    listener: socket.socket,
    *,
    started: Callable[[], None] | None = None,
    stopping: Callable[[], None] | None = None,
    grace: float = GRACE,
) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight are finished, a second SIGINT drops them.

    The signal is then raised again, for the handler that was there before: on the command line
    it ends the command with its usual exit code.

    Args:
        app: it should be within a `RequestGuard`.
        started: called once requests are answered, for instance to print the address.
        stopping: called by the signal; it must return at once.
        grace: most seconds that requests in flight take.
    """
    uvicorn = import_optional("uvicorn", "web", "A server")
    from protofission.web.connections import MOST_CONNECTIONS, BoundedConnection

    most = connections_within_files(MOST_CONNECTIONS)

    class Connection(BoundedConnection):
        most_connections = most

    class Stoppable(uvicorn.Server):  # type: ignore[misc, name-defined]
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            listener.listen(BACKLOG)  # asyncio lets as many wait as it accepts at a time
            if self.started and started is not None:
                started()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if stopping is not None:
                stopping()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=TAKEN,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(grace),
    )
    try:
        Stoppable(config).run(sockets=[listener])
    finally:
        listener.close()
