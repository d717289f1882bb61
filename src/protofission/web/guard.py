"""The guard of a server: allowed hosts and origins, bounded bodies, and headers for browsers.

A page of another site can make a browser ask a server on this machine, under the server's address
(its `Origin` tells) or under a name of the site's own that leads here (its `Host` tells). Both are
refused before an application sees anything.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from protofission.core.errors import check_positive, printable, quoted
from protofission.web.asgi import (
    Application,
    Header,
    Message,
    Receive,
    Scope,
    Send,
    header_values,
    send_error,
)

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names of this machine for itself."""
CONTENT_POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
SECURITY_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every answer; an application cannot take them back."""
HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
CLOSED: Header = (b"connection", b"close")
FAILURE = "The server failed at this request; its log says why."
MOST_DRAINED = 2**24
"""Most bytes of a body beyond its limit that are read and dropped, so that its sender hears why."""
DRAIN_TIME = 2.0
"""Most seconds that these are waited for."""

logger = logging.getLogger("protofission.web")


class RefusedBodyError(Exception):
    """A body that is too large or too slow; the guard answers, whatever the application does."""


@dataclass(frozen=True)
class GuardRules:
    """The requests that a guard lets through."""

    names: Collection[str] = LOOPBACK_NAMES
    """Names in the `Host` header, without port."""
    any_address: bool = False
    """Whether a `Host` may be any IP address: a site that leads its name here has to use a name."""
    body_limit: int = 2**20
    """Most bytes of a body."""
    body_time: float = 30.0
    """Most seconds in which a body arrives."""
    wants_origin: bool = False
    """Whether a request that may change something needs an `Origin`, as every browser sends it."""

    def __post_init__(self) -> None:
        check_positive(body_limit=self.body_limit, body_time=self.body_time)


class RequestGuard:
    """An ASGI application around another, which lets through what its rules allow."""

    def __init__(self, app: Application, rules: GuardRules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or hand it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        guarded = GuardedAnswer(send)
        body = GuardedBody(receive, self.rules)
        if refusal := self._refusal(scope):
            await send_error(guarded, 403, refusal, [CLOSED])
            return
        if wrong := self._length_refusal(scope):
            if not header_values(scope, b"expect"):  # it waits for our word before it sends
                await body.drain()
            await send_error(guarded, *wrong, [CLOSED])
            return
        await self._hand_on(scope, body, guarded)

    async def _hand_on(self, scope: Scope, body: GuardedBody, send: GuardedAnswer) -> None:
        async def send_unless_refused(message: Message) -> None:
            if body.refusal is None or send.started:
                await send(message)

        try:
            await self.app(scope, body.receive, send_unless_refused)
        except Exception as error:
            if body.refusal is None:
                logger.exception("%s %s failed", scope["method"], printable(scope["path"]))
                if send.finished:
                    return
                if send.started:
                    raise  # the connection is closed, so that nobody takes a half for the whole
                await send_error(send, 500, FAILURE, [CLOSED])
            elif send.started:
                raise RefusedBodyError(body.refusal[1]) from error
        if body.refusal is not None and not send.started:
            if body.refusal[0] == 413:
                await body.drain()
            await send_error(send, *body.refusal, [CLOSED])

    def _refusal(self, scope: Scope) -> str | None:
        """The reason why a request is not of a page or a program that may ask."""
        hosts = [value.decode("latin-1") for value in header_values(scope, b"host")]
        if len(hosts) != 1:
            return "A request needs one Host header."
        name = host_name(hosts[0])
        if name not in self.rules.names and not (self.rules.any_address and is_address(name)):
            shown = quoted(hosts[0], 100)
            return f"This server does not answer under the name {shown}: use the address it said."
        if scope["method"] in HARMLESS:
            return None
        origins = [value.decode("latin-1") for value in header_values(scope, b"origin")]
        if not origins and self.rules.wants_origin:
            return "A request that changes something needs an Origin header."
        if origins and origins not in ([f"http://{hosts[0]}"], [f"https://{hosts[0]}"]):
            return "A page of another site may not ask this server."
        return None

    def _length_refusal(self, scope: Scope) -> tuple[int, str] | None:
        lengths = header_values(scope, b"content-length")
        if any(not length.isdigit() or len(length) > 18 for length in lengths):
            return 400, "The Content-Length is no number of bytes."
        if any(int(length) > self.rules.body_limit for length in lengths):
            return 413, too_large(self.rules.body_limit)
        return None


class GuardedBody:
    """The body of a request, of which no more is handed on than the rules allow.

    Args:
        receive: gives its messages.
    """

    def __init__(self, receive: Receive, rules: GuardRules) -> None:
        self._receive, self._rules = receive, rules
        self._size, self._whole = 0, False
        self._deadline: float | None = None
        self.refusal: tuple[int, str] | None = None
        """Status and sentence, once it is refused."""

    async def receive(self) -> Message:
        """The next message of a request, for an application.

        Raises:
            RefusedBodyError: the body is too large, or too slow.
        """
        if self.refusal is not None:
            return {"type": "http.disconnect"}
        if self._whole:
            return await self._receive()  # waits for the end of the connection
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + self._rules.body_time
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            seconds = f"{self._rules.body_time:g}"
            self._refuse(408, f"The body did not arrive within {seconds} s: send it faster.")
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._size > self._rules.body_limit:
                self._refuse(413, too_large(self._rules.body_limit))
        else:
            self._whole = True
        return message

    def _refuse(self, status: int, sentence: str) -> None:
        self.refusal = status, sentence
        raise RefusedBodyError(sentence)

    async def drain(self) -> None:
        """Drop some more of a body: a connection that is closed too early loses the answer."""
        left = max(0, self._rules.body_limit - self._size) + MOST_DRAINED
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIME):
                while left > 0 and not self._whole:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self._whole = not message.get("more_body", False)


class GuardedAnswer:
    """Sends an answer with the headers for browsers, which are not the application's to choose."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        """Whether the status has been sent."""
        self.finished = False
        """Whether all of the body has been sent."""

    async def __call__(self, message: Message) -> None:
        """Send a message of an answer."""
        if message["type"] == "http.response.start":
            self.started = True
            ours = {name for name, _ in SECURITY_HEADERS}
            own = [(name.lower(), value) for name, value in message.get("headers", ())]
            theirs = [(name, value) for name, value in own if name not in ours]
            if not any(name == b"cache-control" for name, _ in theirs):
                theirs.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*theirs, *SECURITY_HEADERS]}
        elif message["type"] == "http.response.body":
            self.finished = not message.get("more_body", False)
        await self._send(message)


def too_large(limit: int) -> str:
    """The refusal of a body that is larger than the limit."""
    return f"The body has more than {limit:,} bytes, the most that this server takes."


def host_name(host: str) -> str:
    """The name in a `Host` header, in small letters, without port, brackets and last dot."""
    name, _, rest = host[1:].partition("]") if host.startswith("[") else host.partition(":")
    valid = not rest or rest.removeprefix(":").isdigit()
    return name.lower().removesuffix(".") if valid else ""


def is_address(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
