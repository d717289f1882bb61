"""Ask an ASGI application in this process, without a socket."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from protofission.web.asgi import Application, Message

HOST = (b"host", b"127.0.0.1:8000")


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The sentence of a refusal."""
        assert self.headers["content-type"] == "application/json"
        sentence = str(self.json()["error"])
        assert sentence[:1].isupper()
        assert sentence.endswith(".")
        assert "\n" not in sentence
        return sentence


class Question(NamedTuple):
    method: str = "POST"
    path: str = "/predict"
    body: bytes = b""
    content_type: str | None = None
    headers: Sequence[tuple[bytes, bytes]] = (HOST,)
    query: bytes = b""
    with_length: bool = True


async def answer_to(app: Application, question: Question) -> Answered:
    sent: list[Message] = []
    pieces = [question.body[at : at + 65536] for at in range(0, len(question.body), 65536)] or [b""]

    async def receive() -> Message:
        if not pieces:
            await asyncio.sleep(3600)  # the client waits
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = list(question.headers)
    if question.with_length:
        headers.append((b"content-length", str(len(question.body)).encode()))
    if question.content_type is not None:
        headers.append((b"content-type", question.content_type.encode("latin-1")))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": question.method,
        "path": question.path,
        "raw_path": question.path.encode(),
        "query_string": question.query,
        "headers": headers,
        "scheme": "http",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    start, *bodies = sent
    head = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answered(start["status"], head, b"".join(m.get("body", b"") for m in bodies))


def ask(app: Application, question: Question) -> Answered:
    return asyncio.run(answer_to(app, question))


def ask_together(app: Application, questions: Sequence[Question]) -> list[Answered]:
    async def all_of_them() -> list[Answered]:
        return await asyncio.gather(*(answer_to(app, question) for question in questions))

    return asyncio.run(all_of_them())


def form_of(images: Mapping[str, bytes]) -> tuple[bytes, str]:
    """A multipart form and its type."""
    parts = [
        b'--cut\r\nContent-Disposition: form-data; name="image"; filename="'
        + name.encode()
        + b'"\r\n\r\n'
        + content
        + b"\r\n"
        for name, content in images.items()
    ]
    return b"".join(parts) + b"--cut--\r\n", "multipart/form-data; boundary=cut"
