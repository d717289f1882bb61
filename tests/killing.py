"""Runs a command line again and again and kills it at random moments; run as a script.

Python and torch are imported once: each life is a fork of this process, which runs the real
command line until SIGKILL. Prints the number of kills, of kills while a file was being written, and
of lives that ended on a full disk.
"""

import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import protofission.session  # noqa: F401  (the heavy imports, before the forks)
from protofission.cli import main
from protofission.whole import is_partial


def life(arguments: list[str], *, room: int | None = None) -> int:
    """A child that runs the command line, with room for files of so many bytes."""
    child = os.fork()
    if child:
        return child
    if room is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    sys.argv = ["protofission", *arguments]
    try:
        main()
    except SystemExit as ended:
        os._exit(int(ended.code or 0))
    except BaseException:
        os._exit(99)
    os._exit(0)


def killed(child: int, folder: Path, chance: random.Random, *, writing: bool) -> bool:
    """Kill a child after a while, or as soon as it is seen writing; whether it was still alive."""
    end = time.monotonic() + chance.uniform(0.0, 0.8)
    while time.monotonic() < end or writing:
        done, _ = os.waitpid(child, os.WNOHANG)
        if done:
            return False
        if writing and folder.is_dir() and any(map(is_partial, folder.iterdir())):
            break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def finish(folder: Path, arguments: list[str], kills: int) -> tuple[int, int, int]:
    """Kill a run so many times, fill its disk some times, then let it come to its end."""
    chance, counts = random.Random(0), [0, 0, 0]
    while counts[0] < kills:
        if counts[0] % 5 == 2:
            _, status = os.waitpid(life(arguments, room=5000), 0)
            assert os.waitstatus_to_exitcode(status) == 2, "a full disk is one sentence"
            counts[2] += 1
        writing = counts[0] % 3 == 1
        if not killed(life(arguments), folder, chance, writing=writing):
            break
        counts[0] += 1
        counts[1] += any(map(is_partial, folder.iterdir())) if folder.is_dir() else 0
    if not (folder / "finished").exists():
        _, status = os.waitpid(life(arguments), 0)
        assert os.waitstatus_to_exitcode(status) == 0
    return counts[0], counts[1], counts[2]


if __name__ == "__main__":
    print(*finish(Path(sys.argv[1]), sys.argv[3:], int(sys.argv[2])), file=sys.__stdout__)
