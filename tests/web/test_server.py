"""A server in a process of its own: its address, its refusals, and how it stops."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from random import Random

import pytest

from commands import heed_interrupts
from protofission.core.errors import InputError
from protofission.web import connections
from protofission.web.server import address_of, bind, is_loopback

SLOW_APPLICATION = """
import asyncio, sys
from protofission.cli import main
import protofission.cli as cli
from protofission.web.guard import RequestGuard, GuardRules
from protofission.web.server import address_of, bind, run_server

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                print("closed", flush=True)
                return
    if scope["query_string"]:
        print("asked", flush=True)
        await asyncio.sleep(float(scope["query_string"]))
    body = b"done"
    if scope["path"] == "/body":
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
    if scope["path"] == "/large":
        body = b"a" * 2**24
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})

def serve():
    listener = bind("127.0.0.1", 0)
    run_server(RequestGuard(application, GuardRules()), listener,
        started=lambda: print(address_of(listener), flush=True),
        stopping=lambda: print("stopping", flush=True))

cli.app.command(serve, name="test-server")
sys.argv[1:] = ["test-server"]
main()
"""


@contextmanager
def running() -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-c", SLOW_APPLICATION]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(  # type: ignore[call-overload]
        command, text=True, preexec_fn=heed_interrupts, **pipes
    ) as process:
        try:
            yield process, int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.kill()


def get(port: int, path: str = "/") -> bytes:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read()


def exchange(port: int, content: bytes) -> bytes:
    """Everything that the server says to some bytes, until it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.sendall(content)
        found = b""
        while piece := raw.recv(65536):
            found += piece
        return found


def send_without_end(port: int) -> None:
    """Send a body that nobody reads, for ten seconds and more."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(1000):
            raw.sendall(b"1\r\na\r\n")
            time.sleep(0.01)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_finishes_the_request_in_flight_and_ends_with_the_usual_code(
    number: int, code: int
) -> None:
    with running() as (process, port):
        found: list[bytes] = []
        waiting = threading.Thread(target=lambda: found.append(get(port, "/?1.5")))
        waiting.start()
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(number)
        assert process.wait(20) == code
        waiting.join()
        out, err = process.communicate()
        assert found == [b"done"]
        assert out.split() == ["stopping", "closed"]
        assert err.startswith("protofission: stopped")
        assert err.count("\n") == 1  # nothing of the server's own
        with pytest.raises(ConnectionError):
            get(port)


def test_what_is_no_http_gets_a_sentence_and_the_server_stays_silent() -> None:
    with running() as (process, port):
        huge = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 2**17 + b"\r\n\r\n"
        for content in (b"\x16\x03\x01" * 9 + b"\r\n\r\n", huge):
            head, _, body = exchange(port, content).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400")
            assert json.loads(body)["error"].endswith(".")
        two = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n"
        assert exchange(port, two).startswith(b"HTTP/1.1 403")
        upgrade = b"Connection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
        found = exchange(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + upgrade)
        assert found.startswith(b"HTTP/1.1 200")
        assert get(port) == b"done"
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == ""


ASKED = b"GET /?0.3 HTTP/1.1\r\nHost: localhost\r\n\r\n"
POSTED = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE = b"Connection: upgrade\r\nUpgrade: h2c\r\n"
CLOSING = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
PIECES = POSTED + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"


def statuses(found: bytes) -> list[int]:
    """The status of each answer, of those whose body is the usual one or an error."""
    return [int(part[:3]) for part in found.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (ASKED + b"\x16\x03\x01\r\n\r\n", [200]),  # answered before the broken one ends it
        (ASKED * 3 + b"GET /\xff HTTP/1.1\r\n\r\n" + ASKED, [200] * 3),
        (PIECES + b"z\r\n", [400]),
        (ASKED + PIECES + b"z\r\n", [200]),
        (ASKED * 3 + PIECES + b"z\r\n" + ASKED, [200] * 3),
        (POSTED + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400]),
        (POSTED + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\naa", [400]),
        (POSTED + b"Transfer-Encoding: gzip\r\n\r\na", [400]),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b\0c\r\n\r\n", [400]),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nA : b\r\n\r\n", [400]),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400]),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", [400]),
        (POSTED + UPGRADE + b"\r\n" + ASKED + CLOSING, [200] * 3),
        ((POSTED + UPGRADE + b"Content-Length: 1\r\n\r\na") * 2000 + CLOSING, [200] * 2001),
        (PIECES + b"0\r\nHost: evil\r\n\r\n" + POSTED + b"Connection: close\r\n\r\n", [200] * 2),
        (PIECES + b"0\r\n" + b"A: b\r\n" * 2**15, [400]),
    ],
)
def test_broken_requests_are_told_from_the_whole_ones_before_them(
    content: bytes, wanted: list[int]
) -> None:
    with running() as (process, port):
        found = exchange(port, content)
        assert statuses(found) == wanted, found
        assert found.count(b"\r\n\r\ndone") + found.count(b"done\r\n0\r\n") == wanted.count(200)
        assert get(port) == b"done"
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize("upgrade", [b"", UPGRADE, b"Upgrade: h2c\r\n" + UPGRADE])
def test_a_body_is_read_though_another_protocol_is_wished_for(upgrade: bytes) -> None:
    head = b"POST /body HTTP/1.1\r\nHost: localhost\r\n" + upgrade
    with running() as (_, port), socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.sendall(head + b"Content-Length: 3\r\n\r\na")
        time.sleep(0.1)
        raw.sendall(b"bc" + head + b"Transfer-Encoding: chunked\r\n\r\n1;a=b\r\n")
        time.sleep(0.1)
        raw.sendall(b"d\r\n0\r\nA: b\r\n\r\n" + CLOSING)
        found = b""
        while piece := raw.recv(65536):
            found += piece
        bodies = [part.split(b"\r\n")[1] for part in found.split(b"\r\n\r\n") if b"\r\n0" in part]
        assert bodies == [b"abc", b"d", b"done"], found


def broken_at_random(seed: int) -> bytes:
    """Some requests behind each other, with a few bytes changed, lost or added in their heads."""
    random = Random(seed)
    whole = PIECES + b"0\r\n\r\n"
    content = bytearray()
    for _ in range(random.randint(1, 4)):
        request = bytearray(random.choice([ASKED, whole, POSTED + b"Content-Length: 1\r\n\r\na"]))
        for _ in range(random.choice([0, 0, 1, 3])):
            place = random.randrange(len(request))
            added = [random.randbytes(3), b"\r\n", b"Upgrade: h2c\r\n", b"Content-Length: 2\r\n"]
            request[place : place + random.randint(0, 2)] = random.choice(added)
        content += request
    return bytes(content)


def test_nothing_that_a_stranger_sends_is_a_failure_of_the_server() -> None:
    with running() as (process, port):

        def send(seed: int) -> list[int]:
            with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
                raw.sendall(broken_at_random(seed))
                raw.settimeout(0.7)
                found = b""
                with suppress(OSError):
                    while piece := raw.recv(65536):
                        found += piece
                return statuses(found)

        with ThreadPoolExecutor(32) as pool:
            answers = Counter(status for own in pool.map(send, range(400)) for status in own)
        assert set(answers) <= {200, 400, 403}
        assert min(answers[200], answers[400]) > 50
        assert get(port) == b"done"
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "begun",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
        PIECES.replace(b"/ ", b"/body ") + b"0\r\nX: ",
        PIECES.replace(b"/ ", b"/body ") + b"1;",
    ],
)
def test_what_is_no_body_is_bounded_in_many_pieces_too(begun: bytes) -> None:
    with running() as (_, port), socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.sendall(begun)
        sent = 0
        with suppress(OSError):
            while sent < 2**22:
                sent += raw.send(b"a" * 1000)
                time.sleep(0.001)
        assert sent < 2**20
        with suppress(OSError):
            assert raw.recv(65536).startswith(b"HTTP/1.1 400")


def test_a_connection_that_sends_no_whole_head_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connections.HEAD_TIME <= 30
    shortened = SLOW_APPLICATION.replace(
        "\ndef serve", "\nimport protofission.web.connections as c; c.HEAD_TIME = 0.2\n\ndef serve"
    )
    monkeypatch.setattr(sys.modules[__name__], "SLOW_APPLICATION", shortened)
    with running() as (_, port):
        assert exchange(port, b"") == b""
        assert exchange(port, b"GET / HTTP/1.1\r\nHo") == b""
        with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert raw.recv(65536).startswith(b"HTTP/1.1 200")
            raw.sendall(b"GET /")  # and no more
            while raw.recv(65536):
                pass
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            send_without_end(port)
        assert get(port, "/?0.6") == b"done"  # an answer may take longer


@pytest.mark.parametrize("last", [b"", b"Connection: close\r\n"])
def test_a_client_that_does_not_read_is_dropped(
    monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    assert connections.UNREAD_TIME <= 30
    shortened = SLOW_APPLICATION.replace(
        "\ndef serve",
        "\nimport protofission.web.connections as c; c.UNREAD_TIME = 0.3\n\ndef serve",
    )
    monkeypatch.setattr(sys.modules[__name__], "SLOW_APPLICATION", shortened)
    with running() as (_, port), socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        raw.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n" + last + b"\r\n")
        time.sleep(1)
        found = 0
        with suppress(ConnectionError):
            while piece := raw.recv(2**20):
                found += len(piece)
        assert found < 2**24
        assert len(get(port, "/large")) == 2**24


def test_more_connections_than_files_are_closed_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resource = pytest.importorskip("resource")
    limits = f"import resource; resource.setrlimit({resource.RLIMIT_NOFILE}, (256, 512))\n"
    monkeypatch.setattr(sys.modules[__name__], "SLOW_APPLICATION", limits + SLOW_APPLICATION)
    with running() as (process, port):
        with ExitStack() as opened:
            many = [
                opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
                for _ in range(600)
            ]
            many[0].sendall(ASKED)
            assert many[0].recv(65536).startswith(b"HTTP/1.1 200")
            with suppress(ConnectionError):
                assert many[-1].recv(1) == b""
        assert get(port) == b"done"
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_port_in_use_is_a_sentence() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert address_of(first) == f"http://127.0.0.1:{port}"
        with pytest.raises(InputError, match=f"127.0.0.1:{port} is in use: .*--port"):
            bind("127.0.0.1", port)
    bind("127.0.0.1", port).close()  # and free again at once


def test_other_machines_reach_it_only_if_told() -> None:
    for host in ("0.0.0.0", "::", "192.168.0.1", "example.org", ""):
        with pytest.raises(InputError, match="--allow-remote"):
            bind(host, 0)
    assert is_loopback("127.0.0.2")
    assert is_loopback("::1")
    with bind("0.0.0.0", 0, allow_remote=True) as everywhere:
        assert address_of(everywhere).startswith("http://127.0.0.1:")


def test_a_host_or_a_port_that_cannot_be_is_a_sentence() -> None:
    with pytest.raises(InputError, match="65536: give 0 to 65535"):
        bind("127.0.0.1", 65536)
    with pytest.raises(InputError, match="no address of this machine"):
        bind("no host\0", 0, allow_remote=True)
    with pytest.raises(InputError, match="give another --host"):
        bind("192.0.2.1", 0, allow_remote=True)  # an address that no machine has
