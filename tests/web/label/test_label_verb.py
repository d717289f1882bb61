"""The verb `label`: help, refusals in a sentence, and the browser."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Call
from protofission.web.label import label as module
from protofission.web.label.label import has_browser, label
from small_workbenches import small_model


def test_help_has_examples_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from protofission.cli import main; sys.argv[1:] = ['label', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*(n for n in ('torch', 'numpy', 'fastapi', 'uvicorn') if n in sys.modules), 'end')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "end"
    for text in ("protofission label model", "--allow-remote", "--no-browser", "--labeled"):
        assert text in done.stdout


def test_refusals_are_one_sentence(call: Call, tmp_path: Path) -> None:
    model = small_model(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = call("label", model, "--port", port)
        assert (said.code, f"127.0.0.1:{port} is in use" in said.err) == (2, True)
    for arguments, words in [
        ((tmp_path / "nothing",), "does not exist: give a folder that protofission fit wrote"),
        ((tmp_path,), "holds no bundle: give a folder that protofission fit wrote"),
        ((model, tmp_path / "nowhere"), "is not there"),
        ((model, "--host", "0.0.0.0"), "--allow-remote"),
        ((model, "--port", "70000"), "0 to 65535"),
        ((model, "--port", "x"), "whole number"),
    ]:
        said = call("label", *arguments)
        assert (said.code, words in said.err) == (2, True), said
        assert len(said.err.splitlines()) == 1
        assert "Traceback" not in said.err


def test_a_model_without_features_is_refused(call: Call, tmp_path: Path) -> None:
    model = small_model(tmp_path)
    (model / "images.json").unlink()
    said = call("label", model)
    assert (said.code, "does not keep its features" in said.err) == (2, True)


def test_without_the_extra_the_pip_install_is_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("fastapi", "uvicorn"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, library, None)
            said = call("label", tmp_path)
            assert (said.code, 'pip install "protofission[web]"' in said.err) == (2, True)


@pytest.mark.parametrize(
    ("wanted", "there", "opened"), [(True, True, 1), (True, False, 0), (False, True, 0)]
)
def test_a_browser_is_opened_where_there_is_one_and_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool, there: bool, opened: int
) -> None:
    seen: list[str] = []
    lines: list[str] = []

    def run(app: Any, listener: socket.socket, *, started: Any) -> None:
        started()

    class AtOnce:
        def __init__(self, seconds: float, function: Any, arguments: Any) -> None:
            self.call = lambda: function(*arguments)

        def start(self) -> None:
            self.call()

    monkeypatch.setattr(module, "run_server", run)
    monkeypatch.setattr(module, "has_browser", lambda: there)
    monkeypatch.setattr("threading.Timer", AtOnce)
    monkeypatch.setattr("webbrowser.open", seen.append)
    label(small_model(tmp_path), browser=wanted, say=lines.append)
    assert len(seen) == opened
    assert all(url in lines[0] for url in seen)
    assert "/?token=" in lines[0]


def test_a_browser_needs_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_browser()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert has_browser()


def test_other_machines_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(module, "run_server", lambda app, listener, *, started: started())
    label(small_model(tmp_path), host="0.0.0.0", allow_remote=True, browser=False, say=lines.append)
    assert "nothing is encrypted" in lines[1]
