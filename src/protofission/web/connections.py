"""Connections of a server: bounded in number, closed when a head does not come, errors in JSON."""

from __future__ import annotations

import asyncio
import logging

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from protofission.web.asgi import error_content

MOST_CONNECTIONS = 1024
"""Most connections at a time; further ones are closed at once."""
HEAD_TIME = 20.0
"""Most seconds until the head of a request is whole."""
UNREAD_TIME = 30.0
"""Most seconds that what was answered waits for a client to read it."""
LINGER_TIME = 0.5
"""Seconds in which further bytes of a client that was refused are read and dropped."""
MOST_HEAD_BYTES = 2**15
"""Most bytes of the head of a request."""

quiet = logging.getLogger("protofission.web.connections")
quiet.setLevel(logging.ERROR)  # a stranger's broken request is told to the stranger


class LargeHeadError(Exception):
    """The head of a request has too many bytes."""


class BoundedConnection(HttpToolsProtocol):
    """A connection that no client can hold open by sending nothing, or by reading nothing."""

    most_connections = MOST_CONNECTIONS
    """Most connections at a time, of this process."""
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _refused = False
    _in_head = True
    """Whether the next byte is of a head, or before it."""
    _in_body = False
    """Whether the next byte is of a body."""
    _head_bytes = 0
    """Bytes of the address and of all headers of a request."""
    _unfinished_bytes = 0
    """Bytes of a head that is not whole, or of what stands between and after pieces of a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and wait for a head."""
        super().connection_made(transport)
        self.logger = quiet
        if len(self.connections) > self.most_connections:
            transport.abort()
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take some bytes of a head or a body."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._unfinished_bytes += len(data)
        try:
            self._feed(memoryview(data))  # which sets them to 0 where a head ends
        except httptools.HttpParserError:
            self.send_400_response("")
        if self._refused:
            return
        if self._unfinished_bytes > MOST_HEAD_BYTES:
            self.send_400_response("")
        elif self._in_head and self._answered():
            self._await_head()

    def _feed(self, data: memoryview) -> None:
        """Parse some bytes; a request for another protocol is read as if it asked for none.

        The parser takes what follows such a head as no HTTP, its body too. So it reads the head
        again, without the header; clients of HTTP/2 send it with their first request.
        """
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
            kept = [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
            version = self.parser.get_http_version().encode()
            first = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parser.feed_data(b"\r\n".join([first, *kept, b"", b""]))

    def on_message_begin(self) -> None:
        """Begin the head of a request."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what follows a body in pieces is none."""
        self._count_head(len(name) + len(value))
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer a request."""
        if self._reads_again():
            return
        super().on_headers_complete()
        self._in_head, self._in_body, self._unfinished_bytes = False, True, 0
        self._stop_waiting()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body of a request."""
        if self._reads_again():
            return
        self._in_head, self._in_body, self._unfinished_bytes = True, False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Await the next head; what is left of a body that nobody reads has as long."""
        others = bool(self.pipeline)
        super().on_response_complete()
        if self._refused and not others:
            self.transport.close()
        if self.transport.is_closing():
            self._await_reader()
        elif self._in_body and self._answered():
            self.loop.call_later(HEAD_TIME, self._close_unread, self.cycle)

    def pause_writing(self) -> None:
        """Wait for a client that does not read."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Go on, since it has read."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_awaiting_reader()

    def timeout_keep_alive_handler(self) -> None:
        """Close, since no further request came."""
        super().timeout_keep_alive_handler()
        self._await_reader()

    def _close_unread(self, cycle: object) -> None:
        if self.cycle is cycle and self._in_body:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_waiting()
        super().connection_lost(exc)
        self._stop_awaiting_reader()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or has a huge head; where an answer has begun, just close."""
        self._refused = True
        self._stop_waiting()
        if self._in_body and self.pipeline:
            self.pipeline.popleft()  # the broken one; those before it are answered
            return
        if self._in_body:
            begun = self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if begun:
                self.transport.close()
                return
        elif not self._answered():
            return
        content = error_content(
            "This is no HTTP request that the server can read, or its head is larger than "
            f"{MOST_HEAD_BYTES:,} bytes."
        )
        self.transport.write(
            b"%scontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-content-type-options: nosniff\r\nconnection: close\r\n\r\n%s"
            % (STATUS_LINE[400], len(content), content)
        )
        # To close with bytes unread would reset the connection, and the answer be lost.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_TIME, self.transport.close)

    def _answered(self) -> bool:
        """Whether every request that has come is answered."""
        return self.cycle is None or self.cycle.response_complete

    def _reads_again(self) -> bool:
        """Whether the head that is whole is read once more, without its wish for a protocol."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _count_head(self, number: int) -> None:
        self._head_bytes += number
        if self._head_bytes > MOST_HEAD_BYTES:
            raise LargeHeadError

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIME, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _await_reader(self) -> None:
        if self._unread_timer is None and self.transport.get_write_buffer_size():
            self._unread_timer = self.loop.call_later(UNREAD_TIME, self.transport.abort)

    def _stop_awaiting_reader(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
