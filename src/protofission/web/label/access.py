"""Access to the workbench: a token that works once, and a cookie.

Nothing behind the door is asked before the cookie is known: every request without it gets one and
the same answer, whatever its path and its method.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable
from urllib.parse import parse_qs

from protofission.web.asgi import Application, Receive, Scope, Send, header_values, send_error

MOST_SESSIONS = 32
"""Most browsers that are let in; the one that came first is then let out."""
LONGEST_SECRET = 128
"""Most characters of a token or a cookie that are looked at."""
CLOSED = "Open the address that protofission printed in the terminal."
FOREIGN = "This request came from another page: use the page of the workbench."
ENTRY = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>protofission</title>"
    '<meta http-equiv=refresh content="0;url=/"><p><a href="/">Open the workbench</a></p></html>'
)
"""The answer to the token. A redirect would not do: a cookie that is SameSite=Strict is left out of
one that began on another site, and a click on the printed address may."""


class Access:
    """Tokens that work once, and the cookies of the browsers that came with one.

    Args:
        port: of the server; cookies do not know ports, so the cookie's name has it.
        announce: called with each new token: at the start, and after each exchange.
    """

    def __init__(self, port: int, announce: Callable[[str], None] = lambda token: None) -> None:
        self.cookie_name = f"protofission_{port}"
        self._announce = announce
        self._lock = threading.Lock()
        self._sessions: deque[bytes] = deque(maxlen=MOST_SESSIONS)
        self._token = secrets.token_urlsafe(32)

    @property
    def token(self) -> str:
        """The token that works now, once."""
        return self._token

    def exchange(self, token: str) -> str | None:
        """A new cookie for the token, which is spent by this; None for any other text."""
        with self._lock:
            if not _equal(token, self._token.encode()):
                return None
            session = secrets.token_urlsafe(32)
            self._sessions.append(session.encode())
            self._token = secrets.token_urlsafe(32)
        self._announce(self._token)
        return session

    def knows(self, cookie: str | None) -> bool:
        """Whether this is the cookie of a browser that was let in."""
        if cookie is None:
            return False
        with self._lock:
            known = list(self._sessions)
        return sum(_equal(cookie, session) for session in known) > 0  # all are compared

    def set_cookie(self, session: str) -> str:
        """The header that gives a browser its cookie."""
        return f"{self.cookie_name}={session}; Path=/; HttpOnly; SameSite=Strict"


def _equal(given: str, secret: bytes) -> bool:
    """Compare in a time that does not depend on where two texts differ."""
    text = given[:LONGEST_SECRET].encode(errors="replace")
    return secrets.compare_digest(text, secret)


class Door:
    """Lets requests with the cookie through to an application, and answers all others itself.

    It stands within a `Guard`, which has looked at the host, the origin and the length.
    """

    def __init__(self, app: Application, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the cookie, or take the token."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        known = self.access.knows(cookie_of(scope, self.access.cookie_name))
        if not known and scope["method"] == "GET" and scope["path"] == "/":
            session = self.access.exchange(_token_of(scope["query_string"]))
            if session is not None:
                await _let_in(send, self.access.set_cookie(session))
                return
        if not known:
            # The connection ends, and with it the body of a stranger, which nobody reads.
            await send_error(send, 403, CLOSED, [(b"connection", b"close")])
        elif not _is_own_page(scope):
            await send_error(send, 403, FOREIGN)
        else:
            await self.app(scope, receive, send)


def cookie_of(scope: Scope, name: str) -> str | None:
    """The cookie of a name that a request has, if any."""
    for value in header_values(scope, b"cookie"):
        for part in value.decode("latin-1").split(";"):
            key, _, text = part.strip().partition("=")
            if key == name:
                return text
    return None


def _is_own_page(scope: Scope) -> bool:
    """Whether no other page asks: a browser tells who does, and other programs need not.

    SameSite does not keep out a page of another port of this machine.
    """
    came_from = header_values(scope, b"sec-fetch-site")
    return scope["path"] == "/" or all(v in (b"same-origin", b"none") for v in came_from)


def _token_of(query: bytes) -> str:
    try:
        given = parse_qs(query.decode("latin-1"), max_num_fields=4).get("token", [""])
    except ValueError:  # too many fields
        return ""
    return given[0]


async def _let_in(send: Send, cookie: str) -> None:
    content = ENTRY.encode()
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(content)).encode()),
        (b"set-cookie", cookie.encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})
