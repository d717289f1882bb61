"""Servers of small workbenches: in this process for the logic, in another one for the wire."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from protofission.triage.workbench.workbench import Workbench
from protofission.web.guard import RequestGuard
from protofission.web.label.access import Access, Door
from protofission.web.label.label import rules_for
from protofission.web.label.server_parts import ServerParts
from small_workbenches import small_model

ORIGIN = "http://127.0.0.1"
CLOSED = {"error": "Open the address that protofission printed in the terminal."}


class LabelClient:
    """The whole server of a model, guard and door included, without a socket."""

    def __init__(self, model: Path, **options: Any) -> None:
        self.model = model
        self.workbench = Workbench.open(model, **options)
        self.parts = ServerParts(self.workbench)
        self.tokens: list[str] = []
        self.access = Access(80, self.tokens.append)
        self.app = RequestGuard(Door(self.parts.app, self.access), rules_for("127.0.0.1"))
        self.stranger = self.browser()
        self.http = self.let_in()

    def browser(self) -> TestClient:
        """A browser without a cookie."""
        return TestClient(self.app, base_url=ORIGIN, raise_server_exceptions=False)

    def let_in(self) -> TestClient:
        """A browser that came with the token."""
        new = self.browser()
        assert new.get("/", params={"token": self.access.token}).status_code == 200
        return new

    def get(self, path: str, status: int = 200) -> Any:
        found = self.http.get(path)
        assert found.status_code == status, (path, found.status_code, found.text[:300])
        return found.json()

    def post(self, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        sent = {"Origin": ORIGIN, **headers}
        found = self.http.post(path, json={} if body is None else body, headers=sent)
        assert found.status_code == status, (path, found.status_code, found.text[:300])
        return found.json()

    def act(self, kind: str, status: int = 200, **content: Any) -> Any:
        return self.post("/api/actions", {"kind": kind, "content": content}, status)

    def rows(self, name: str) -> list[int]:
        return list(self.get(f"/api/images?set={name}&only=rows")["rows"])

    def close(self) -> None:
        self.parts.close()
        self.workbench.close()


@contextmanager
def label_client(folder: Path, **options: Any) -> Iterator[LabelClient]:
    with closing(LabelClient(small_model(folder, **options))) as client:
        yield client


class LabelProcess:
    """`protofission label` in a process of its own, with a browser's cookie."""

    def __init__(self, model: Path, process: subprocess.Popen[str]) -> None:
        self.model, self.process = model, process
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", line)
        assert found, (line, process.stderr.read() if process.stderr and not line else "")
        self.port, self.token = int(found[1]), found[2]
        self.host = f"127.0.0.1:{self.port}"
        self.cookie = ""

    def enter(self) -> None:
        """Exchange the token for the cookie."""
        status, headers, _ = self.ask("GET", f"/?token={self.token}")
        assert status == 200
        self.cookie = headers["set-cookie"].partition(";")[0]

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            sent = {"Cookie": self.cookie, "Origin": f"http://{self.host}"}
            content = None if body is None else json.dumps(body)
            if content is not None:
                sent["Content-Type"] = "application/json"
            connection.request(method, path, content, {**sent, **headers})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, found, answer.read()

    def memory(self, field: str = "VmRSS") -> int:
        """Bytes of memory now, or with VmHWM the most so far."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+) kB", text)
        assert found
        return 1024 * int(found[1])

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@contextmanager
def label_process(model: Path, *arguments: str) -> Iterator[LabelProcess]:
    command = [sys.executable, "-m", "protofission", "label", str(model), "--no-browser"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, *arguments],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        try:
            yield LabelProcess(model, process)
        finally:
            process.kill()
