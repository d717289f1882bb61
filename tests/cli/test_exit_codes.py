"""The table of exit codes in the docs: each code, as a command ends with it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import protofission.cli as cli
from commands import COMMAND, environment
from conftest import Call
from protofission.core.errors import InputError


def raising(error: BaseException) -> object:
    def app(*_: object, **__: object) -> None:
        raise error

    return app


ENDS = [
    (InputError("Wrong."), 2),
    (FileNotFoundError(2, "No such file", "x"), 2),
    (MemoryError(), 2),
    (KeyboardInterrupt(), 130),
    (cli.Termination(), 143),
]


@pytest.mark.parametrize(("error", "code"), ENDS)
def test_errors_and_signals_end_with_their_codes(
    error: BaseException, code: int, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "app", raising(error))
    done = call("show", "model")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("protofission: ")
    assert done.err.count("\n") == 1


def test_success_and_help_end_with_zero_and_refusals_with_two(call: Call) -> None:
    assert [call(*line.split()).code for line in ("--version", "fit --help")] == [0, 0]
    assert [call(*line.split()).code for line in ("fti", "show nothing-here")] == [2, 2]


def test_a_reader_that_has_seen_enough_ends_a_command_with_one() -> None:
    command = [*COMMAND, "completion", "bash"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        told = process.stderr.read()
    assert (process.returncode, told) == (1, b"")


def test_a_bug_is_a_traceback_with_one() -> None:
    code = "import protofission.cli as cli; cli.app = lambda *_, **__: 1 / 0; cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_the_docs_list_these_codes(project: Path) -> None:
    page = (project / "docs" / "command_line.md").read_text()
    table = page.partition("## Exit codes")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == [
        *(0, 1, 2, 130, 143)
    ]
