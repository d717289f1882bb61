"""Bearer tokens: a request without the right one learns nothing but that one is needed."""

from __future__ import annotations

import hmac
from collections.abc import Collection

from protofission.web.asgi import Application, Receive, Scope, Send, header_values, send_error


def want_token(app: Application, token: str | None, free: Collection[str] = ()) -> Application:
    """The application, for requests with the token alone; without one, for all.

    Args:
        free: paths that need none.
    """
    if token is None:
        return app
    wanted = token.encode()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in free:
            await app(scope, receive, send)
            return
        given = header_values(scope, b"authorization")
        kind, _, secret = (given[0] if len(given) == 1 else b"").partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(secret.strip(), wanted):
            await app(scope, receive, send)
            return
        await send_error(
            send,
            401,
            "This server wants a token: send the header Authorization: Bearer TOKEN.",
            [(b"www-authenticate", b"Bearer")],
        )

    return guarded
