"""Connections of a server: bounded in number, closed when a head does not come, errors in JSON."""

from __future__ import annotations

import asyncio
import logging

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from protofission.web.asgi import error_content

MOST_CONNECTIONS = 1024
"""Most connections at a time; further ones are closed at once."""
HEAD_TIME = 20.0
"""Most seconds until the head of a request is whole."""
LINGER_TIME = 0.5
"""Seconds in which further bytes of a client that was refused are read and dropped."""
MOST_HEAD_BYTES = 2**15
"""Most bytes of the head of a request."""

quiet = logging.getLogger("protofission.web.connections")
quiet.setLevel(logging.ERROR)  # a stranger's broken request is told to the stranger


class BoundedConnection(H11Protocol):
    """A connection that no client can hold open by sending nothing."""

    _head_timer: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and wait for a head."""
        super().connection_made(transport)
        self.logger = quiet
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take some bytes of a head or a body."""
        if self._refused:
            return
        super().data_received(data)
        if self._refused:
            return
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self.timeout_keep_alive_task is None:  # a head has begun, and is not whole
            self._await_head()

    def on_response_complete(self) -> None:
        """Await the next head; what is left of a body that nobody reads has as long."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self.loop.call_later(HEAD_TIME, self._close_unread, self.cycle)

    def _close_unread(self, cycle: object) -> None:
        if self.cycle is cycle and self.conn.their_state is h11.SEND_BODY:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or has a huge head; where an answer has begun, just close."""
        content = error_content(
            "This is no HTTP request that the server can read, or its head is larger than "
            f"{MOST_HEAD_BYTES:,} bytes."
        )
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(content))),
            ("x-content-type-options", "nosniff"),
            ("connection", "close"),
        ]
        try:
            start = h11.Response(status_code=400, headers=headers, reason="Bad Request")
            for event in (start, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.write_eof()
        except (h11.LocalProtocolError, OSError):
            self.transport.close()
        # To close with bytes unread would reset the connection, and the answer be lost.
        self._refused = True
        self._stop_waiting()
        self.loop.call_later(LINGER_TIME, self.transport.close)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIME, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
