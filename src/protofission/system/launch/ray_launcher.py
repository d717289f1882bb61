"""Pieces of work as tasks of a Ray cluster.

Tasks, not a pool of actors: Ray queues a task until a processor is free, so that nothing starves,
whatever the number of pieces and processors. A process of the cluster keeps what `Work.begin` made
for the tasks that follow. Tries are counted by us, so Ray retries nothing.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from protofission.core.errors import InputError, printable, require
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
from protofission.system.processors import processors

PATIENCE = 20.0
"""Seconds after which a cluster is refused that does not answer, or has too few processors."""


@dataclass(frozen=True)
class RayLauncher:
    """Carries out pieces on a Ray cluster; every machine of it has this package.

    Args:
        on: `ray` for a cluster that is started for the command on this machine, `auto` for one that
            runs here, `ray://HOST:PORT` for one that runs elsewhere.
        processes: most pieces at the same time; by default as many as there are processors.
        gpus: accelerators of a piece, or the share of one.
    """

    on: str
    processes: int | None = None
    gpus: float = 0

    def run(
        self, work: Work, pieces: Iterable[Any], *, together: bool = False
    ) -> Generator[PieceNews, None, None]:
        """As `Launcher.run`."""
        with ray_cluster(self.on, self.processes) as ray:
            try:
                each = {"CPU": 1.0} | ({"GPU": self.gpus} if self.gpus else {})
                strategy = "SPREAD"
                if together:
                    strategy = _reserve(ray, self.processes or 1, each)
                else:
                    _wait_for_one(ray, each)
                tasks = _Tasks(ray, work, self.processes, self.gpus, strategy)
                yield from run_pieces(tasks, pieces, 1 if together else MOST_TRIES)
            except (ray.exceptions.RaySystemError, ConnectionError) as error:
                raise InputError(
                    f"The Ray cluster is gone ({_first_line(error)}): start it, and give the same "
                    "command again, it goes on."
                ) from None


def _reserve(ray: Any, number: int, each: dict[str, float]) -> Any:
    """Wait until so much is free at once, and reserve it for the tasks of a work."""
    group = ray.util.placement_group([each] * number, strategy="PACK")
    while not group.wait(PATIENCE):
        _check_size(ray, number, each)
    return ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)


def _wait_for_one(ray: Any, each: dict[str, float]) -> None:
    """Wait until the cluster could carry out a piece; Ray itself would wait for ever."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return _check_size(ray, 1, each)
        except InputError:
            if time.monotonic() > end:
                raise
            time.sleep(LOOK_AGAIN)


def _check_size(ray: Any, number: int, each: dict[str, float]) -> None:
    """Refuse a cluster that is too small for so many processes."""
    there = ray.cluster_resources()
    for kind, wanted in each.items():
        found = there.get(kind, 0)
        require(
            found >= wanted * number,
            f"{number} process{'es want' if number > 1 else ' wants'} {wanted * number:g} of "
            f"{kind} at once, and the Ray cluster has {found:g}: start more machines, or give "
            "fewer --processes, or --accelerator cpu.",
        )


@contextmanager
def ray_cluster(on: str, processes: int | None = None) -> Iterator[Any]:
    """Connect to a Ray cluster, or start one for the block; yields the module ray.

    A cluster of our own wants a token, which only its processes know, and reports nothing; in a
    program that has imported ray before, it is as that program has set it.
    """
    own = on == "ray"
    if own and "ray" not in sys.modules:  # which reads them when it is imported
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ |= {name: os.environ.get(name, value) for name, value in token.items()}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # as processes of `local`
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = import_optional("ray", "ray", f"--on {printable(on)}")
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    stop = signal.getsignal(signal.SIGTERM)
    try:
        if own:
            _start(ray, processes or processors(), quiet)
        else:
            _connect(ray, on, quiet)
    except Exception as error:  # Ray raises many kinds, and Exception itself
        if own:
            raise InputError(
                f"Ray cannot be started ({_first_line(error)}): make room in memory and in /tmp, "
                "wait until the machine has less to do, or give --on local."
            ) from None
        raise InputError(
            f"--on {printable(on)} finds no Ray cluster ({_first_line(error)}): start one with "
            "`ray start --head`, give its address, or --on ray for one of this command alone."
        ) from None
    finally:
        with suppress(ValueError):  # outside the main thread Ray has set none
            signal.signal(signal.SIGTERM, stop)
    try:
        yield ray
    finally:
        ray.shutdown()


def _start(ray: Any, processes: int, options: dict[str, Any]) -> None:
    """Start a cluster of this command; Ray itself gives up after 30 seconds on a busy machine."""
    options = options | {
        "address": "local",  # also where another cluster runs on this machine
        "num_cpus": processes,
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
    }
    _init(ray, Exception, options)


def _connect(ray: Any, on: str, options: dict[str, Any]) -> None:
    """Connect to a cluster that runs; its server of clients loses one now and then as it begins."""
    if on.startswith("ray://"):  # Ray itself would try for half a minute
        host, _, port = on.removeprefix("ray://").rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    _init(ray, ConnectionAbortedError, options | {"address": on})


def _init(ray: Any, passing: type[Exception], options: dict[str, Any]) -> None:
    """Initialize Ray, again if that fails for a reason that may pass."""
    for left in reversed(range(MOST_TRIES)):
        try:
            ray.init(**options)
            return
        except passing:
            ray.shutdown()
            if not left:
                raise


class _Tasks:
    def __init__(self, ray: Any, work: Work, limit: int | None, gpus: float, strategy: Any) -> None:
        self._ray, self._limit = ray, limit
        self._work = ray.put(work)
        self._key = secrets.token_hex(8)
        remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0, scheduling_strategy=strategy)
        self._task = remote(_carry_out)
        self._board = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
        self._places: dict[Any, int] = {}
        self._looked = time.monotonic()

    def room(self) -> int:
        """As many as are wanted, or two for each processor of the cluster."""
        if self._limit is not None:
            return self._limit
        return 2 * int(self._ray.cluster_resources().get("CPU", 1))

    def submit(self, place: int, piece: Any) -> None:
        """Begin a try of a piece."""
        task = self._task.remote(self._key, [self._work], self._board, place, piece)
        self._places[task] = place

    def wait(self) -> Iterator[tuple[int, Any]]:
        """Yield what pieces tell, and their outcomes."""
        ended, _ = self._ray.wait(list(self._places), num_returns=1, timeout=LOOK_AGAIN)
        if time.monotonic() - self._looked > LOOK_AGAIN:
            self._looked = time.monotonic()
            with suppress(self._ray.exceptions.RayError):  # the board's machine may be gone
                yield from self._ray.get(self._board.take.remote(), timeout=LOOK_AGAIN)
        for task in ended:
            place = self._places.pop(task)
            try:
                yield place, self._ray.get(task)
            except self._ray.exceptions.RayError as error:
                yield (
                    place,
                    PieceOutcome(failure=f"A process or machine was lost: {_first_line(error)}"),
                )


class _Board:
    """An actor with what pieces tell."""

    def __init__(self) -> None:
        self._told: dict[int, Any] = {}

    def tell(self, place: int, told: Any) -> None:
        """Put down the newest of a piece."""
        self._told[place] = told

    def take(self) -> list[tuple[int, Any]]:
        """Take all that was put down."""
        found, self._told = self._told, {}
        return list(found.items())


_begun: tuple[str, Worker] | None = None
"""The worker of this process of the cluster, and the key of its work."""


def _carry_out(key: str, work: list[Any], board: Any, place: int, piece: Any) -> PieceOutcome:
    global _begun
    if _begun is None or _begun[0] != key:
        ray = import_optional("ray", "ray", "--on ray")
        _begun = key, Worker(ray.get(work[0]))
    clock = 0.0

    def tell(told: Any) -> None:
        nonlocal clock
        if time.monotonic() - clock > LOOK_AGAIN:
            clock = time.monotonic()
            board.tell.remote(place, told)

    return _begun[1].carry_out(piece, tell)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[0] if not lines[0].endswith(":") else f"{lines[0]} {lines[-1]}"
    return printable(line[:200]).rstrip(".")
