"""What all tests share."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from protofission.cli import main

# Busy machines are slow, and a test that fails must fail for everyone.
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the repository."""
    return Path(__file__).parent.parent


class Said(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Said]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line in this process."""
    monkeypatch.setenv("COLUMNS", "80")

    def called(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["protofission", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Said(code, *capsys.readouterr())

    return called


Killing = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def killing() -> Iterator[Killing]:
    """Runs a command with so many kills, by a process that all tests share: see killing.py."""
    script = Path(__file__).with_name("killing.py")
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def run(out: Path, kills: int, arguments: list[str], processes: int = 1) -> dict[str, Any]:
            wanted = {"folder": str(out), "kills": kills, "processes": processes}
            print(json.dumps({**wanted, "arguments": arguments}), file=server.stdin, flush=True)
            return dict(json.loads(server.stdout.readline()))

        yield run
