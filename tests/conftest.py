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
from protofission.system import worker_processes

# Busy machines are slow, and a test that fails must fail for everyone.
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


LONGEST = (
    "triage/test_estimator.py",
    "triage/test_fit.py",
    "training/test_loop.py",
    "web/label/test_workbench_in_browser.py",
    "system/test_distributed.py",
    "triage/workbench/test_refit.py",
    "training/test_run_elsewhere.py",
    "triage/test_export.py",
    "test_docs.py",
    "training/test_embed_shards.py",
)
"""Files that take a worker ten seconds or more; they are given out first, so that none ends last.
test_project.py has a test that they are there."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first; the others stay in their order."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


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


LOADED = ("protofission.training.run_elsewhere", "protofission.triage.predict", "torch._dynamo")
"""What workers load before their work: torch takes two seconds of each."""


@pytest.fixture(scope="module")
def ready_workers() -> Iterator[None]:
    """Worker processes are copies of one that has loaded its libraries, as those of a refit are."""
    worker_processes.load_ahead(LOADED)
    yield
    worker_processes._ahead = False


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
