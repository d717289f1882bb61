"""`protofission label` as a process: attacks on the wire, many requests, and how it ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

import pytest

from label_servers import CLOSED, LabelProcess, label_process
from protofission.triage.workbench.workbench import Workbench
from small_workbenches import small_model

GIGABYTE = 2**30
CHUNK = b"x" * 2**16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelProcess]:
    with label_process(small_model(tmp_path_factory.mktemp("wire"))) as found:
        status, _, content = found.ask("GET", "/api/overview")
        assert (status, json.loads(content)) == (403, CLOSED)
        found.enter()
        yield found


def talk(server: LabelProcess, content: bytes, limit: int = 2**20) -> bytes:
    """Send some bytes, and return what the server says until it closes or waits."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(content)
        found = b""
        with suppress(TimeoutError, ConnectionError):
            raw.settimeout(3)
            while len(found) < limit and (piece := raw.recv(65536)):
                found += piece
        return found


def head(server: LabelProcess, line: str, *more: str) -> bytes:
    lines = (line, f"Host: {server.host}", f"Cookie: {server.cookie}", *more, "Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_the_token_is_spent_and_a_new_one_is_printed(server: LabelProcess) -> None:
    cookie, server.cookie = server.cookie, ""
    status, headers, content = server.ask("GET", f"/?token={server.token}")
    server.cookie = cookie
    assert (status, json.loads(content), "set-cookie" in headers) == (403, CLOSED, False)
    assert server.process.stdout is not None
    line = server.process.stdout.readline()
    assert "Ctrl-C" in line
    line = server.process.stdout.readline()
    assert line.startswith(f"For another browser: http://{server.host}/?token=")
    assert server.token not in line


def test_it_listens_on_this_machine_alone(server: LabelProcess) -> None:
    table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    listening = [
        line.split()[1]
        for line in table.splitlines()
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{server.port:04X}")
    ]
    assert listening == [f"0100007F:{server.port:04X}"]


@pytest.mark.parametrize(
    "path",
    [
        *("/static/../access.py", "/static/..%2f..%2faccess.py", "/../../../../etc/passwd"),
        *("/thumb/../../../../etc/passwd", "/static//etc/passwd", "/image/..%5c..%5cx"),
        "/%2e%2e/x",
    ],
)
def test_paths_lead_nowhere_else(server: LabelProcess, path: str) -> None:
    """As raw bytes: clients clean paths before they send them."""
    found = talk(server, head(server, f"GET {path} HTTP/1.1"))
    assert found.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))
    assert b"root:" not in found
    assert b"compare_digest" not in found


def test_a_stolen_name_of_the_host_gets_nothing(server: LabelProcess) -> None:
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.nip.io"):
        status, _, content = server.ask("GET", "/api/overview", Host=host)
        assert status == 403
        assert b"ash" not in content
    twice = head(server, "GET /api/overview HTTP/1.1", "Host: evil.example")
    assert b"ash" not in talk(server, twice)


def test_a_gigabyte_that_is_announced_is_refused_at_once(server: LabelProcess) -> None:
    before = server.memory()
    for cookie in (server.cookie, "none=1"):
        lines = ("POST /api/actions HTTP/1.1", f"Host: {server.host}", f"Cookie: {cookie}")
        more = (f"Origin: http://{server.host}", "Content-Type: application/json")
        announced = "\r\n".join([*lines, *more, f"Content-Length: {GIGABYTE}", "", ""]).encode()
        found = talk(server, announced)
        assert found.startswith(b"HTTP/1.1 413"), found[:100]
    assert server.memory() - before < 2**24
    assert server.ask("GET", "/api/last")[0] == 200


@pytest.mark.parametrize("known", [True, False])
def test_a_gigabyte_in_chunks_is_cut_off_and_never_held(server: LabelProcess, known: bool) -> None:
    cookie = server.cookie if known else "none=1"
    server.ask("GET", "/api/last")
    before = server.memory("VmHWM")
    lines = ("POST /api/actions HTTP/1.1", f"Host: {server.host}", f"Cookie: {cookie}")
    more = (f"Origin: http://{server.host}", "Content-Type: application/json")
    start = "\r\n".join([*lines, *more, "Transfer-Encoding: chunked", "", ""]).encode()
    sent, found = 0, b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(start)
        with suppress(ConnectionError):
            while sent < GIGABYTE:
                raw.sendall(b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK))
                sent += len(CHUNK)
        with suppress(ConnectionError):
            found = raw.recv(65536)
    assert sent < 2**26, "the server went on listening"
    assert not found or found.startswith(b"HTTP/1.1 413" if known else b"HTTP/1.1 403")
    assert server.memory("VmHWM") - before < 2**26
    assert server.ask("GET", "/api/last")[0] == 200


def test_a_body_that_never_ends_or_lies_about_its_length_holds_nobody_up(
    server: LabelProcess,
) -> None:
    start = head(server, "POST /api/undo HTTP/1.1", "Origin: x", "Content-Length: 100")
    waiting = []
    for _ in range(50):
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        raw.sendall(start[:-4])
        waiting.append(raw)
    assert server.ask("GET", "/api/last")[0] == 200
    for raw in waiting:
        raw.close()


class Traffic:
    """Reads, refusals and changes mixed, from four browsers at a time, some without a cookie."""

    def __init__(self, server: LabelProcess) -> None:
        self.server = server
        self.failed: list[str] = []
        self.kept: list[int] = []

    def request(self, number: int) -> bytes:
        server = self.server
        common = f"Host: {server.host}\r\nOrigin: http://{server.host}\r\n"
        own = f"Cookie: {server.cookie}\r\n"
        if number % 20 == 0:  # a change
            content = {"images": [60 + number % 80], "class_id": number % 3, "source": "grid"}
            body = json.dumps({"kind": "label", "content": content})
            kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            return f"POST /api/actions HTTP/1.1\r\n{common}{own}{kind}\r\n{body}".encode()
        path = (
            f"/api/images?set=class:{number % 4}:accepted&offset={number}&limit=20",
            f"/thumb/{number % 150}",
            "/api/last",
            f"/nothing/{number}",
            f"/api/images?set=nonsense{number}",
        )[number % 5]
        cookie = own if number % 7 else ""
        return f"GET {path} HTTP/1.1\r\n{common}{cookie}\r\n".encode()

    def browse(self, numbers: Iterable[int]) -> None:
        left = iter(numbers)
        while (number := next(left, None)) is not None:
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as raw:
                file = raw.makefile("rb")
                while number is not None and self.ask(raw, file, number):
                    number = next(left, None)

    def ask(self, raw: socket.socket, file: BufferedReader, number: int) -> bool:
        """Send a request and read the answer; whether the connection stays open."""
        raw.sendall(self.request(number))
        status, found = int(file.readline().split()[1]), {}
        while (line := file.readline()) != b"\r\n":
            name, _, value = line.decode().partition(":")
            found[name.lower()] = value.strip()
        content = file.read(int(found["content-length"]))
        if status not in (200, 400, 403, 404):
            self.failed.append(f"{number}: {status} {content[:80]!r}")
        if number % 20 == 0:
            self.kept.append(int(json.loads(content)["id"]))
        return found.get("connection") != "close"

    def run(self, numbers: range) -> None:
        threads = [threading.Thread(target=self.browse, args=[numbers[k::4]]) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


@pytest.mark.slow
def test_ten_thousand_requests_leave_memory_flat_and_lose_no_action(server: LabelProcess) -> None:
    first = int(json.loads(server.ask("GET", "/api/last")[2])["last_action"])
    traffic = Traffic(server)
    traffic.run(range(2000))
    before = server.memory()
    traffic.run(range(2000, 10000))
    assert traffic.failed == []
    wanted = range(first + 1, first + 501)
    assert sorted(traffic.kept) == list(wanted)  # each change has an id of its own
    last = json.loads(server.ask("GET", "/api/last")[2])["last_action"]
    assert last == first + 500
    assert server.memory() - before < 20 * 2**20


def test_a_disk_that_takes_nothing_more_is_a_sentence_and_nothing_is_lost(
    server: LabelProcess,
) -> None:
    """By a limit on the size of files, so that the system itself refuses to write."""
    body = {"kind": "skip", "content": {"images": list(range(60, 140))}}
    before = json.loads(server.ask("GET", "/api/overview")[2])
    pid, usual = server.process.pid, resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, usual[1]))
    try:
        for _ in range(3):
            status, _, content = server.ask("POST", "/api/actions", body)
            assert status == 507, content
            assert "make room" in json.loads(content)["error"]
        assert json.loads(server.ask("GET", "/api/overview")[2]) == before
        assert server.ask("GET", "/thumb/139")[0] == 200
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)
    status, _, content = server.ask("POST", "/api/actions", body)
    assert (status, json.loads(content)["id"]) == (200, before["last_action"] + 1)
    assert server.ask("POST", "/api/undo", {})[0] == 200


@pytest.mark.slow
def test_it_stops_gracefully_and_another_one_goes_on(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    for place, (number, code) in enumerate([(signal.SIGTERM, 143), (signal.SIGINT, 130)]):
        with label_process(model) as running:
            running.enter()
            found = json.loads(running.ask("GET", "/api/overview")[2])
            assert found["last_action"] == place
            content = {"images": [60 + place], "class_id": 0, "source": "grid"}
            assert (
                running.ask("POST", "/api/actions", {"kind": "label", "content": content})[0] == 200
            )
            ended, out, err = running.stop(number)
            assert (ended, "Traceback" in out + err) == (code, False)
        assert not list((model / "workbench").glob("*-wal"))  # closed, not torn
    with Workbench.open(model) as workbench:
        assert workbench.state.last_id == 2


def test_killed_it_keeps_every_change_that_it_acknowledged(server: LabelProcess) -> None:
    """The last test of this server."""
    for row in range(60, 80):
        status, _, content = server.ask(
            "POST", "/api/actions", {"kind": "skip", "content": {"images": [row]}}
        )
        assert status == 200
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    with Workbench.open(server.model) as workbench:
        assert workbench.state.last_id == json.loads(content)["id"]
        assert workbench.state.skipped[60:80].all()
