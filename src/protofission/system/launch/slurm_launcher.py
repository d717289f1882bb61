"""Pieces of work by jobs of Slurm, through submitit, with a folder as the queue.

Jobs take pieces from the folder by renaming their files, so that each is one job's, and append to a
file what the pieces tell. The first process looks at these files, and deletes what a job had taken
once it has told the outcome; a job that ended with a piece in its hands has failed at it.

    todo/000012        a piece that waits
    taken/JOB/000012   the piece that a job has taken, until its outcome is read
    told/JOB           a line for everything that its pieces told
    open               renewed by the first process; jobs end some time after it has stopped
"""

from __future__ import annotations

import base64
import os
import pickle
import secrets
import shutil
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protofission.core.errors import InputError
from protofission.system.launch.launcher import (
    LOOK_AGAIN,
    MOST_TRIES,
    PieceNews,
    PieceOutcome,
    Work,
    Worker,
    run_pieces,
)
from protofission.system.optional_libraries import import_optional

JOBS = 16
"""Jobs at the same time, if nothing else is asked for."""
ABANDONED = 300.0
"""Seconds after which a job ends whose first process shows no sign of life."""


@dataclass(frozen=True)
class SlurmLauncher:
    """Carries out pieces by jobs of Slurm; the folder of the command is one that all nodes see.

    Args:
        partition: by default Slurm's own.
        processes: jobs at the same time; for pieces that work together, tasks of each node of one.
        nodes: of a job of pieces that work together.
        cluster: of submitit: slurm, or for tests local (processes) or debug (this process).
        parameters: further ones of submitit, such as timeout_min.
    """

    partition: str = ""
    processes: int | None = None
    nodes: int = 1
    cluster: str = "slurm"
    parameters: dict[str, Any] = field(default_factory=dict)

    def run(
        self, work: Work, pieces: Iterable[Any], *, together: bool = False
    ) -> Generator[PieceNews, None, None]:
        """As `Launcher.run`; pieces that work together are the tasks of one job."""
        folder = Path.cwd() / f".protofission-jobs-{secrets.token_hex(4)}"
        tasks = self.nodes * (self.processes or 1) if together else 1
        try:
            folder.mkdir(mode=0o700)  # nobody else may put a piece there
        except OSError as error:
            raise InputError(
                f"--on slurm keeps its queue in the current folder, which cannot be written "
                f"({error.strerror}): give the command in a folder of yours that all nodes see."
            ) from None
        try:
            executor = self._executor(folder, together)
            jobs = _Jobs(executor, folder, work, 1 if together else self.processes or JOBS, tasks)
            try:
                yield from run_pieces(jobs, pieces, 1 if together else MOST_TRIES)
            finally:
                jobs.end()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _executor(self, folder: Path, together: bool) -> Any:
        submitit = import_optional("submitit", "slurm", "--on slurm")
        try:
            executor = submitit.AutoExecutor(folder=folder / "logs", cluster=self.cluster)
        except RuntimeError as error:
            raise InputError(
                f"--on slurm finds no Slurm here ({error}): give --on local."
            ) from None
        wanted: dict[str, Any] = {
            "name": "protofission",
            "cpus_per_task": 1,
            "timeout_min": 24 * 60,
        }
        if together:
            wanted |= {"nodes": self.nodes, "tasks_per_node": self.processes or 1}
        if self.partition:
            wanted["slurm_partition"] = self.partition
        executor.update_parameters(**{**wanted, **self.parameters})
        return executor


class _Jobs:
    def __init__(self, executor: Any, folder: Path, work: Work, most: int, tasks: int) -> None:
        self._executor, self._folder, self._most = executor, folder, most
        self._tasks = tasks
        """Tasks of a job; where there are several, each carries out one piece."""
        for name in ("todo", "taken", "told"):
            (folder / name).mkdir()
        (folder / "work").write_bytes(pickle.dumps(work))
        self._jobs: dict[str, Any] = {}
        self._read: dict[str, int] = {}
        self._waiting = 0
        self._idle = 0
        """Jobs that ended one after another without having begun."""
        self._sign()

    def room(self) -> int:
        """Two pieces for each job, so that none waits for the next; or one for each task."""
        return 2 * self._most if self._tasks == 1 else self._tasks

    def submit(self, place: int, piece: Any) -> None:
        """Put a piece into the queue, and start a job where there are too few."""
        whole = self._folder / _file_name(place)
        whole.write_bytes(pickle.dumps(piece))
        whole.replace(self._folder / "todo" / whole.name)
        self._waiting += 1
        if len(self._jobs) < min(self._most, self._waiting // self._tasks):
            self._start_job()

    def _start_job(self) -> None:
        name = secrets.token_hex(4)
        one_each = self._tasks > 1
        job = self._executor.submit(work_in, str(self._folder), name, one_each)
        self._jobs |= {f"{name}-{rank}": job for rank in range(self._tasks)}

    def wait(self) -> Iterator[tuple[int, Any]]:
        """Yield what pieces tell, and their outcomes, and failures of jobs that have ended."""
        self._sign()
        ended = [name for name, job in self._jobs.items() if job.done()]
        found = [telling for name in self._jobs for telling in self._tellings(name)]
        for _, told in found:
            self._waiting -= isinstance(told, PieceOutcome)
        yield from found
        for name in ended:
            job = self._jobs.pop(name)
            begun = (self._folder / "told" / name).exists()
            self._idle = 0 if begun else self._idle + 1
            if self._idle == MOST_TRIES:
                raise InputError(
                    f"Jobs end before they begin (the last, {job.job_id}: {_state(job)}): every "
                    "node needs this package and must see the folder of the command."
                )
            for path in sorted((self._folder / "taken" / name).glob("*")):
                self._waiting -= 1
                path.unlink()
                failure = f"The job {job.job_id} ended: {_state(job)}."
                yield int(path.name), PieceOutcome(failure=failure)
        if self._waiting and not self._jobs:
            self._start_job()
        if not found and not ended:
            time.sleep(LOOK_AGAIN)

    def end(self) -> None:
        """Tell all jobs to end, and cancel what does not run yet."""
        (self._folder / "open").unlink(missing_ok=True)
        for job in self._jobs.values():
            with suppress(Exception):  # it has ended
                job.cancel()

    def _sign(self) -> None:
        (self._folder / "open").touch()

    def _tellings(self, name: str) -> Iterator[tuple[int, Any]]:
        path, begin = self._folder / "told" / name, self._read.get(name, 0)
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(begin)
            for line in file:
                if not line.endswith(b"\n"):  # the rest of it comes later
                    break
                begin += len(line)
                place, told = pickle.loads(base64.b64decode(line))
                if isinstance(told, PieceOutcome):
                    (self._folder / "taken" / name / _file_name(place)).unlink()
                yield place, told
        self._read[name] = begin


def work_in(place: str, name: str, one_each: bool) -> None:
    """Carry out pieces of a queue, as a task of one of its jobs, until it is closed.

    Args:
        one_each: the job has several tasks, and each carries out one piece.
    """
    submitit = import_optional("submitit", "slurm", "--on slurm")
    name = f"{name}-{submitit.JobEnvironment().global_rank if one_each else 0}"
    folder, own = Path(place), Path(place) / "taken" / name
    own.mkdir(parents=True, exist_ok=True)
    worker = Worker(pickle.loads((folder / "work").read_bytes()))
    with (folder / "told" / name).open("ab", buffering=0) as told:

        def tell(number: int, what: Any) -> None:
            told.write(base64.b64encode(pickle.dumps((number, what))) + b"\n")

        while _is_open(folder):
            taken = _take(folder / "todo", own)
            if taken is None:
                if os.environ.get("SUBMITIT_DEBUG_JOB_ID"):  # one process: nobody adds to it
                    return
                time.sleep(LOOK_AGAIN)
                continue
            number, clock = int(taken.name), 0.0

            def now_and_then(what: Any, number: int = number) -> None:
                nonlocal clock
                if time.monotonic() - clock > LOOK_AGAIN:
                    clock = time.monotonic()
                    tell(number, what)

            outcome = worker.carry_out(pickle.loads(taken.read_bytes()), now_and_then)
            tell(number, outcome)
            if one_each:
                return


def _file_name(place: int) -> str:
    return f"{place:06}"


def _take(todo: Path, own: Path) -> Path | None:
    """Take a piece; None if none waits."""
    for path in sorted(todo.iterdir()):
        with suppress(OSError):  # another job was faster
            return path.rename(own / path.name)
    return None


def _is_open(folder: Path) -> bool:
    try:
        if os.environ.get("SUBMITIT_DEBUG_JOB_ID"):
            return True
        return time.time() - (folder / "open").stat().st_mtime < ABANDONED
    except OSError:
        return False


def _state(job: Any) -> str:
    with suppress(Exception):
        error = job.exception()
        if error is not None:
            return " ".join(str(error).split())[:300].rstrip(".")
    return str(job.state)
