"""The types of ASGI applications, and answers in one sentence of JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """All values of a header of a request; the name is in small letters."""
    return [value for key, value in scope["headers"] if key == name]


def error_content(sentence: str) -> bytes:
    """The body of an error: a JSON object with one sentence."""
    return json.dumps({"error": sentence}).encode()


async def send_error(
    send: Send, status: int, sentence: str, headers: Iterable[Header] = ()
) -> None:
    """Answer a request by a status and a sentence."""
    content = error_content(sentence)
    own = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": content})
