"""Bars in a terminal, and sentences in their place where there is none."""

import io

import pytest
from rich.console import Console

from protofission.system import console as module
from protofission.system.console import print_line, progress_bar


def test_a_log_without_bars_is_told_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    console = Console(file=out, width=80)
    with progress_bar(console, "embedding x") as progress:
        for done in range(0, 500, 100):  # every 20 seconds
            now[0] += 20
            progress(done, 400)
    told = [line for line in out.getvalue().splitlines() if " of 400" in line]
    assert [line.split(",")[0] for line in told] == [f"embedding x: {n} of 400" for n in (100, 300)]


def test_a_bar_that_is_never_called_prints_nothing() -> None:
    out = io.StringIO()
    with progress_bar(Console(file=out, width=80), "embedding x"):
        pass
    assert out.getvalue() == ""


def test_a_line_is_printed_as_it_is_however_long() -> None:
    out = io.StringIO()
    text = "[bold]no markup[/bold] " + " ".join(100 * ["long"])
    print_line(Console(file=out, width=20), text)
    assert out.getvalue() == f"{text}\n"
