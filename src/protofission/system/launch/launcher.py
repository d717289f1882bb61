"""The protocol of a launcher: pieces of work in, news of them out.

A piece is independent of the others and idempotent: who computes it writes its result, whole or not
at all, into a folder that all machines see, and only tells about it. So a piece that is carried out
twice is harmless, and a command that is given again goes on with what is missing.
"""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from protofission.core.errors import InputError, printable, require
from protofission.system.optional_libraries import check_optional

MOST_TRIES = 3
"""Times that a piece is tried; one that is refused for its input is tried once."""
LOOK_AGAIN = 0.5
"""Seconds between two looks at pieces that are under way."""

Tell = Callable[[Any], None]
"""Sends something small about a piece that is under way; it may come late, or not at all."""


@dataclass(frozen=True)
class Work:
    """The functions that carry out pieces in a worker; they are pickled by name."""

    begin: Callable[..., Any]
    """Called once in each worker with `arguments`; its result is given to every `run`."""
    arguments: tuple[Any, ...]
    run: Callable[[Any, Any, Tell], Any]
    """Carries out a piece, and returns something small about it."""
    folder: str = field(default_factory=os.getcwd)
    """The folder that relative paths are of; every machine sees it."""


class PieceNews(NamedTuple):
    """A report on a piece."""

    place: int
    """Number of the piece, in the order in which pieces were given."""
    told: Any = None
    """Something that the piece tells, or at its end returns."""
    ended: bool = False
    failure: str = ""
    """Reason why the piece cannot be carried out; empty where it was."""
    final: bool = False
    """Whether a further try would fail alike."""


class Launcher(Protocol):
    """Carries out pieces of work by some engine."""

    def run(
        self, work: Work, pieces: Iterable[Any], *, together: bool = False
    ) -> Generator[PieceNews, None, None]:
        """Carry out pieces in any order, and yield news of them; few are held at a time.

        A piece that fails is tried again, up to MOST_TRIES times; then its failure is news, and
        the others go on. Closing the generator ends what is under way.

        Args:
            together: the pieces work with each other, so all are under way at the same time, and
                each is tried once; there are as many as the launcher has processes.
        """


class PieceOutcome(NamedTuple):
    """The end of a try of a piece."""

    value: Any = None
    failure: str = ""
    final: bool = False
    """Whether another try would fail alike."""


class Engine(Protocol):
    """Carries out single tries of pieces."""

    def room(self) -> int:
        """The number of pieces that may be under way."""

    def submit(self, place: int, piece: Any) -> None:
        """Begin a try of a piece."""

    def wait(self) -> Iterator[tuple[int, Any]]:
        """Yield (place, told) and (place, PieceOutcome), after some LOOK_AGAIN at most."""


def run_pieces(
    engine: Engine, pieces: Iterable[Any], tries: int = MOST_TRIES
) -> Generator[PieceNews, None, None]:
    """Carry out pieces by an engine, with few under way at any time, and failed ones again."""
    new, again = iter(enumerate(pieces)), deque[tuple[int, Any]]()
    under_way: dict[int, Any] = {}
    failed: Counter[int] = Counter()
    while True:
        while len(under_way) < max(1, engine.room()):
            following = again.popleft() if again else next(new, None)
            if following is None:
                break
            place, under_way[place] = following[0], following[1]
            engine.submit(*following)
        if not under_way:
            return
        for place, told in engine.wait():
            if place not in under_way:  # late news of a piece that has ended
                continue
            if not isinstance(told, PieceOutcome):
                yield PieceNews(place, told)
                continue
            piece = under_way.pop(place)
            failed[place] += bool(told.failure)
            if told.failure and not told.final and failed[place] < tries:
                again.append((place, piece))
            else:
                del failed[place]
                yield PieceNews(place, told.value, True, told.failure, told.final)


class Worker:
    """Carries out pieces of one work in a worker process; it begins with the first of them."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._begun = False
        self._state: Any = None
        """The result of `Work.begin`."""

    def carry_out(self, piece: Any, tell: Tell) -> PieceOutcome:
        """Try a piece; an error becomes the reason of a failure."""
        try:
            if not self._begun:
                self._enter_folder()
                self._state = self._work.begin(*self._work.arguments)
                self._begun = True
            return PieceOutcome(self._work.run(self._state, piece, tell))
        except _NoFolderError as error:  # of this machine; another may see it
            return PieceOutcome(failure=str(error))
        except InputError as error:
            return PieceOutcome(failure=_one_line(error), final=True)
        except Exception as error:
            return PieceOutcome(failure=f"{type(error).__name__}: {_one_line(error)}")

    def _enter_folder(self) -> None:
        try:
            os.chdir(self._work.folder)
        except OSError as error:
            raise _NoFolderError(
                f"A worker cannot begin ({error.strerror}): every machine must see the folder of "
                f"this command, {self._work.folder}."
            ) from None


class _NoFolderError(Exception):
    """A machine that does not see the folder of the command."""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def find_launcher(
    on: str, processes: int | None = None, nodes: int = 1, gpus: float = 0
) -> Launcher:
    """The launcher of a name.

    Args:
        on: `local`, `ray` for a Ray cluster that is started for the command, `ray://HOST:PORT` or
            `auto` for one that runs, `slurm` or `slurm:PARTITION`.
        processes: pieces at the same time; by default one for each processor of this machine or of
            the cluster. On Slurm and for pieces that work together, those of a machine.
        nodes: machines, for pieces that work together.
        gpus: accelerators that each process asks a Ray cluster for, or the share of one.
    """
    require(
        processes is None or 1 <= processes <= 100_000,
        f"processes = {processes} must be between 1 and 100000.",
    )
    if on == "local":
        from protofission.system.launch.local_launcher import LocalLauncher
        from protofission.system.processors import processors

        return LocalLauncher(processes or processors())
    if on in ("ray", "auto") or re.fullmatch(r"ray://[^/]+:\d+", on):
        check_optional("ray", "ray", f"--on {printable(on)}")
        from protofission.system.launch.ray_launcher import RayLauncher

        return RayLauncher(on, processes and processes * nodes, gpus)
    if re.fullmatch("slurm(:.+)?", on):
        require(
            not gpus,
            "--on slurm computes on processors: give --accelerator cpu, or --on ray; to train on "
            "accelerators, run torchrun in a job of yours.",
        )
        check_optional("submitit", "slurm", "--on slurm")
        from protofission.system.launch.slurm_launcher import SlurmLauncher

        return SlurmLauncher(on.partition(":")[2], processes, nodes)
    raise InputError(
        f"on = {on!r} is not known: give local, ray, ray://HOST:PORT, auto, slurm or "
        "slurm:PARTITION."
    )


def check_failures(failures: list[str], total: int, what: str) -> None:
    """Refuse to go on after pieces that failed.

    Args:
        failures: a sentence for each.
        what: the pieces, as a plural.
    """
    if failures:
        raise InputError(
            f"{len(failures)} of {total:,} {what} failed. The first: {failures[0]} What is "
            "finished is kept; the same command tries the others again."
        )
