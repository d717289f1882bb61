"""A refit in the background: a process of its own, with progress, that can be stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
        self._ended = threading.Event()
        self._ended.set()

    def prepare(self) -> None:
        """Start the process of the next refit, if there is none, so that it loads its libraries."""
        with self._lock:
            self._prepare()

    def start(self) -> None:
        """Begin; a result that waits is dropped.

        Raises:
            InputError: one is under way.
        """
        with self._lock:
            require(not self._status.running, "A refit is under way: wait for it, or stop it.")
            drop_candidate(self._model)
            process = self._prepare()
            self._ended.clear()
            self._status = RefitStatus(running=True, stage="starting")
            assert process.stdin is not None
            with suppress(OSError, ValueError):  # it was killed
                process.stdin.write("refit\n")
                process.stdin.flush()
            if process.poll() is not None:
                assert self._reader is not None
                self._reader.join()
                self._end_early(process)

    def _prepare(self) -> subprocess.Popen[str]:
        """The process that waits for work."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        if self._reader is not None:
            self._reader.join()
        module = "protofission.triage.workbench.refit_process"
        options = [f"{name}={place}" for name, place in self._folders.items() if place]
        parent = f"--parent={os.getpid()}"
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--wait", parent, *options, "--", str(self._model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the server, which then stops it
        )
        self._process = process
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()
        return process

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
        with self._lock:
            process, reader = self._process, self._reader
            if process is None or reader is None:
                return
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join()
            self._status, self._process, self._reader = RefitStatus(), None, None

    def drop(self) -> None:
        """Delete the refit that waits, if one does."""
        with self._lock:
            require(not self._status.running, "A refit is under way: stop it first.")
            drop_candidate(self._model)

    def wait(self, seconds: float | None = None) -> RefitStatus:
        """Wait for the refit that is under way, and return the status."""
        self._ended.wait(seconds)
        return self.status()

    def _read(self, process: subprocess.Popen[str]) -> None:
        """Follow what a process tells, to its end."""
        error: str | None = None
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            for line in process.stdout:
                told = json.loads(line)
                error = told.get("error", error)
                if "stage" in told:
                    self._status = RefitStatus(True, told["stage"], told["done"], told["total"])
                if "ended" in told:
                    self._end(error)
                    error = None
            process.wait()
        self._end_early(process, error)

    def _end_early(self, process: subprocess.Popen[str], error: str | None = None) -> None:
        """Tell that a process is gone, if it was at work."""
        if self._status.running:
            code = process.returncode
            sentence = f"The refit ended before its time (exit code {code}): make room, and refit."
            self._end(error or sentence)

    def _end(self, error: str | None) -> None:
        self._status = replace(self._status, running=False, error=error)
        self._ended.set()
