"""Pieces of work for tests of launchers; workers import this file."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from protofission.core.errors import InputError
from protofission.system.launch.launcher import Tell, Work


def begin(folder: str) -> Path:
    return Path(folder)


def begin_late(folder: str) -> Path:
    """Begin at the second call only."""
    mark = Path(folder) / "called"
    if not mark.exists():
        mark.write_text("")
        raise RuntimeError("no memory for it")
    return Path(folder)


def square(folder: Path, number: int, tell: Tell) -> int:
    """Write a number's square; leaves a mark for each try."""
    with (folder / f"{number}.tries").open("a") as tries:
        tries.write(f"{os.getpid()}\n")
    tell(number)
    (folder / f"{number}.square").write_text(str(number**2))
    return number**2


def tries(folder: Path, number: int) -> int:
    path = folder / f"{number}.tries"
    return len(path.read_text().splitlines()) if path.exists() else 0


def faulty(folder: Path, number: int, tell: Tell) -> int:
    """As `square`; 3 fails always, 4 is refused, 5 fails once, 6 loses its process once."""
    first = tries(folder, number) == 0
    found = square(folder, number, tell)
    if number == 3 or (number == 5 and first):
        raise RuntimeError(f"no luck\nwith {number}")
    if number == 4:
        raise InputError("4 is refused: give another.")
    if number == 6 and first:
        os.kill(os.getpid(), signal.SIGKILL)
    return found


def slow(folder: Path, number: int, tell: Tell) -> int:
    time.sleep(0.5)
    return square(folder, number, tell)


def uneven(folder: Path, number: int, tell: Tell) -> int:
    """As `faulty`; 1 waits for 2."""
    limit = time.monotonic() + 120
    while number == 1 and not (folder / "2.square").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    return faulty(folder, number, tell)


def refused(folder: str) -> None:
    raise InputError("There is no encoder: install one.")


def work(folder: Path, run: object = square) -> Work:
    return Work(begin, (str(folder),), run)
