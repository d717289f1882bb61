"""The command line in a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "protofission"]


def environment(**more: str) -> dict[str, str]:
    """Of this process, with a terminal of 80 columns."""
    return {**os.environ, "COLUMNS": "80", **more}


def heed_interrupts() -> None:
    """Before a child's program starts: a shell lets the jobs in its background ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def in_a_process(
    *arguments: str | Path, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """A command, run to its end, with `more` variables of the environment."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**more),
        check=False,
    )
