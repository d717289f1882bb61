"""What all tests share."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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
