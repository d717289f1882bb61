"""A refit in the background: a process of its own, with progress, that can be stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from protofission.core.errors import require
from protofission.triage.workbench.versions import candidate_folder, drop_candidate, read_record

STOP_SECONDS = 5.0
"""Seconds that a process has to end before it is killed."""


@dataclass(frozen=True)
class RefitStatus:
    """Progress of a refit, and whether a result waits."""

    running: bool = False
    stage: str = ""
    done: int = 0
    total: int = 0
    error: str | None = None
    """A sentence, if it failed."""
    waiting: bool = False
    """Whether a result is there that wants to be kept or dropped."""


class BackgroundRefit:
    """Refits of one model, one at a time; threads may share it.

    A result stays over restarts, until it is kept, dropped, or another refit begins.

    Args:
        labeled: the folder of the labeled images, if it was moved.
        pool: the folder of the pool, if it was moved.
    """

    def __init__(self, model: Path, labeled: Path | None = None, pool: Path | None = None) -> None:
        self._model, self._folders = model, {"--labeled": labeled, "--pool": pool}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._status = RefitStatus()

    def start(self) -> None:
        """Begin; a result that waits is dropped.

        Raises:
            InputError: one is under way.
        """
        with self._lock:
            require(not self._status.running, "A refit is under way: wait for it, or stop it.")
            drop_candidate(self._model)
            module = "protofission.triage.workbench.refit_process"
            options = [f"{name}={place}" for name, place in self._folders.items() if place]
            parent = f"--parent={os.getpid()}"
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, parent, *options, "--", str(self._model)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for the server, which then stops it
            )
            self._status = RefitStatus(running=True, stage="starting")
            assert self._process.stdout is not None
            self._reader = threading.Thread(
                target=self._read, args=(self._process, self._process.stdout), daemon=True
            )
            self._reader.start()

    def status(self) -> RefitStatus:
        """Progress and outcome now."""
        found = self._status
        waiting = not found.running and candidate_folder(self._model).is_dir()
        return replace(found, waiting=waiting)

    def result(self) -> dict[str, Any] | None:
        """The report of the refit that waits, in plain JSON values, if one does.

        Raises:
            InputError: its record cannot be read.
        """
        if not self.status().waiting:
            return None
        return read_record(candidate_folder(self._model)).report

    def cancel(self) -> None:
        """Stop the refit that is under way, if one is; the model stays as it is."""
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        reader.join()
        with self._lock:
            if self._process is process:
                self._status, self._process = RefitStatus(), None

    def drop(self) -> None:
        """Delete the refit that waits, if one does."""
        with self._lock:
            require(not self._status.running, "A refit is under way: stop it first.")
            drop_candidate(self._model)

    def wait(self, seconds: float | None = None) -> RefitStatus:
        """Wait for the refit that is under way, and return the status."""
        if self._reader is not None:
            self._reader.join(seconds)
        return self.status()

    def _read(self, process: subprocess.Popen[str], lines: IO[str]) -> None:
        """Follow the progress of a process to its end."""
        error: str | None = None
        for line in lines:
            told = json.loads(line)
            error = told.get("error", error)
            if "stage" in told:
                self._status = RefitStatus(True, told["stage"], told["done"], told["total"])
        code = process.wait()
        lines.close()
        if code and error is None:
            error = f"The refit ended before its time (exit code {code}): make room, and refit."
        self._status = replace(self._status, running=False, error=error)
