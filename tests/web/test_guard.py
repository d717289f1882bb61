"""The guard refuses what a stranger sends, before the application sees any of it."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from protofission.web.asgi import Message, Receive, Scope, Send, send_error
from protofission.web.guard import MOST_DRAINED, GuardRules, RequestGuard, host_name

OWN = [(b"host", b"127.0.0.1:8000")]


class Seen:
    """An application that reads the whole body, and what it saw."""

    def __init__(self, swallow: bool = False) -> None:
        self.body, self.calls, self.swallow = b"", 0, swallow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        more = True
        while more:
            try:
                message = await receive()
            except Exception:
                if not self.swallow:
                    raise
                await send_error(send, 400, "There was an error parsing the body")
                return
            self.body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = [(b"X-Frame-Options", b"ALLOWALL"), (b"x-own", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


class Answer:
    def __init__(self, sent: list[Message]) -> None:
        assert [m["type"] for m in sent] == ["http.response.start", "http.response.body"]
        self.status, self.headers = sent[0]["status"], dict(sent[0]["headers"])
        self.body = sent[1]["body"]

    @property
    def error(self) -> str:
        found = json.loads(self.body)
        assert list(found) == ["error"]
        assert found["error"].endswith(".")
        return str(found["error"])


def ask(
    app: Any,
    headers: Iterable[tuple[bytes, bytes]] = OWN,
    body: Iterable[bytes] = (b"",),
    method: str = "POST",
    rules: GuardRules | None = None,
    pause: float = 0,
) -> tuple[Answer, int]:
    """The answer to a request, and how many pieces of its body were taken."""
    sent: list[Message] = []
    pieces, taken = iter(list(body)), 0

    async def receive() -> Message:
        nonlocal taken
        await asyncio.sleep(pause)
        piece = next(pieces, None)
        taken += piece is not None
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": "/x", "headers": list(headers)}
    asyncio.run(RequestGuard(app, rules or GuardRules(body_limit=100))(scope, receive, send))
    return Answer(sent), taken


@pytest.mark.parametrize(
    "host",
    [b"evil.example", b"127.0.0.1.evil.example", b"localhost.evil.example:8000", b"10.0.0.7", b""],
)
def test_another_host_name_is_refused_before_the_application(host: bytes) -> None:
    seen = Seen()
    answer, _ = ask(seen, [(b"host", host)], method="GET")
    assert answer.status == 403
    assert "does not answer under the name" in answer.error
    assert not seen.calls


@pytest.mark.parametrize("headers", [[], OWN * 2])
def test_one_host_header_is_needed(headers: list[tuple[bytes, bytes]]) -> None:
    assert ask(Seen(), headers)[0].status == 403


@pytest.mark.parametrize("host", [b"localhost", b"LOCALHOST:1", b"[::1]:8000", b"127.0.0.1"])
def test_names_of_this_machine_are_answered(host: bytes) -> None:
    assert ask(Seen(), [(b"host", host)])[0].status == 200


def test_addresses_are_allowed_where_the_rules_say_so_and_names_are_not() -> None:
    rules = GuardRules(any_address=True)
    assert ask(Seen(), [(b"host", b"10.0.0.7:80")], rules=rules)[0].status == 200
    assert ask(Seen(), [(b"host", b"ten.example")], rules=rules)[0].status == 403


def test_host_names() -> None:
    assert host_name("a.B.:80") == "a.b"
    assert host_name("[::1]") == host_name("[::1]:80") == "::1"
    assert host_name("127.0.0.1:80@evil") == host_name("[::1]evil") == ""


@pytest.mark.parametrize("origin", [b"http://evil.example", b"null", b"http://127.0.0.1:9", b""])
def test_another_origin_may_change_nothing(origin: bytes) -> None:
    seen = Seen()
    assert ask(seen, [*OWN, (b"origin", origin)])[0].status == 403
    assert not seen.calls
    assert ask(seen, [*OWN, (b"origin", origin)], method="GET")[0].status == 200


def test_the_own_origin_may_and_can_be_wanted() -> None:
    own, strict = [*OWN, (b"origin", b"http://127.0.0.1:8000")], GuardRules(wants_origin=True)
    assert ask(Seen(), own, rules=strict)[0].status == 200
    assert "Origin" in ask(Seen(), OWN, rules=strict)[0].error
    assert ask(Seen(), [*own, (b"origin", b"http://evil")], rules=strict)[0].status == 403


def test_every_answer_has_the_headers_and_the_application_cannot_take_them_back() -> None:
    for headers in (OWN, [(b"host", b"evil")]):
        answer, _ = ask(Seen(), headers)
        assert b"default-src 'self'" in answer.headers[b"content-security-policy"]
        assert answer.headers[b"x-frame-options"] == b"DENY"
        assert answer.headers[b"x-content-type-options"] == b"nosniff"
        assert answer.headers[b"referrer-policy"] == b"no-referrer"
        assert answer.headers[b"cache-control"] == b"no-store"
    assert ask(Seen())[0].headers[b"x-own"] == b"1"


def test_a_body_within_the_limit_arrives_as_it_is() -> None:
    seen = Seen()
    assert ask(seen, body=[b"a" * 60, b"b" * 40])[0].status == 200
    assert seen.body == b"a" * 60 + b"b" * 40


def test_a_length_above_the_limit_is_refused_before_the_application() -> None:
    seen = Seen()
    answer, _ = ask(seen, [*OWN, (b"content-length", b"101")], [b"a" * 101])
    assert answer.status == 413
    assert "100 bytes" in answer.error
    assert answer.headers[b"connection"] == b"close"
    assert not seen.calls
    waiting = [*OWN, (b"content-length", b"101"), (b"expect", b"100-continue")]
    assert ask(seen, waiting, [b"a" * 101])[1] == 0  # nothing was read


@pytest.mark.parametrize("length", [b"-1", b"1e9", b"9" * 30, b"", "²".encode()])
def test_a_length_that_is_no_number_is_refused(length: bytes) -> None:
    answer, _ = ask(Seen(), [*OWN, (b"content-length", length)])
    assert answer.status == 400
    assert answer.error


@pytest.mark.parametrize("swallow", [False, True])
def test_a_streamed_body_is_cut_at_the_limit_whatever_the_application_does(swallow: bool) -> None:
    seen = Seen(swallow)
    answer, _ = ask(seen, body=[b"a" * 60] * 1000)
    assert answer.status == 413
    assert "100 bytes" in answer.error
    assert len(seen.body) == 60  # the piece that passes the limit is not handed on


def test_a_huge_streamed_body_is_not_read_to_its_end() -> None:
    piece = b"a" * 2**20
    answer, taken = ask(Seen(), body=[piece] * 1000)
    assert answer.status == 413
    assert taken <= MOST_DRAINED // len(piece) + 2


def test_who_sends_a_little_too_much_hears_why() -> None:
    piece, number = b"a" * 2**20, 2 * MOST_DRAINED // 2**20 + 1
    head = [*OWN, (b"content-length", str(number * len(piece)).encode())]
    rules = GuardRules(body_limit=2 * MOST_DRAINED)
    answer, taken = ask(Seen(), head, [piece] * number, rules=rules)
    assert answer.status == 413
    assert taken == number  # what is left unread resets the connection, and the answer is lost


def test_a_slow_body_is_refused() -> None:
    rules = GuardRules(body_time=0.05)
    answer, _ = ask(Seen(), body=[b"a"] * 100, rules=rules, pause=0.01)
    assert answer.status == 408
    assert "0.05 s" in answer.error


def test_a_failure_is_a_sentence_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError("secret")

    answer, _ = ask(fail)
    assert answer.status == 500
    assert "secret" not in answer.error
    assert "ZeroDivisionError" in caplog.text


def test_a_failure_in_mid_answer_closes_the_connection() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(fail)


def test_other_protocols_are_closed() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {}

    scope = {"type": "websocket", "headers": OWN}
    asyncio.run(RequestGuard(Seen(), GuardRules())(scope, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]
