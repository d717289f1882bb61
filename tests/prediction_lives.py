"""Runs predictions that are killed at every moment they write; run as a script.

    python prediction_lives.py every BUNDLE SOURCE OUT    a life is killed at its 1st write, ...
    python prediction_lives.py once BUNDLE SOURCE OUT     two processes compute, all are killed

Python and torch are imported once: each life is a fork of this process. Writes are also torn in
two, and some lives end on a full disk. Prints the number of kills.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import protofission.predicting as predicting
from protofission.errors import InputError
from protofission.journal import Journal


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(moment: int) -> None:
    """End this process at one of the calls by which something gets on the disk."""
    calls = 0

    def counted(call: Callable[..., object], torn: Callable[..., object] | None = None):
        def wrapped(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == moment:
                if torn is not None:
                    torn(*arguments)
                die()
            return call(*arguments, **options)

        return wrapped

    def half(journal: Journal, content: bytes) -> None:
        FileIO.write(journal._file, content[: len(content) // 2])

    os.fsync = counted(os.fsync)
    Journal._write = counted(Journal._write, half)
    Path.replace = counted(Path.replace)
    Path.unlink = counted(Path.unlink)


def life(
    bundle: Path, source: Path, out: Path, moment: int | None = None, room: int | None = None
) -> int:
    """A child that predicts; how it ended."""
    child = os.fork()
    if not child:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        if moment is not None:
            killed_at(moment)
        try:
            predicting.predict(bundle, [source], out)
        except InputError:
            os._exit(2)
        except BaseException:
            os._exit(99)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def every(bundle: Path, source: Path, out: Path) -> int:
    """A life for each moment, each from where the last one left it; then all from nothing."""
    journal = out.with_name(f".{out.name}.rows")
    for afresh in (False, True):
        for moment in range(1, 100):
            if afresh:
                journal.unlink(missing_ok=True)
            if moment % 4 == 2:
                assert life(bundle, source, out, room=700) == 2, "a full disk is one sentence"
            ended = life(bundle, source, out, moment)
            assert ended in (0, -signal.SIGKILL), ended
            if ended == 0 and afresh:
                return moment
            if ended == 0:
                break
            if afresh:
                assert life(bundle, source, out) == 0
                assert out.read_bytes() == whole(out)
    raise AssertionError("no life came to its end")


def whole(out: Path) -> bytes:
    return out.with_name("whole.csv").read_bytes()


def once(bundle: Path, source: Path, out: Path) -> int:
    """Two processes compute, until the first one is killed in the middle."""
    predicting.SHORT = -1.0  # other processes, however little it is

    def progress(done: int, total: int) -> None:
        if done > total // 2:
            die()

    predicting.predict(bundle, [source], out, processes=2, progress=progress)
    return 0


if __name__ == "__main__":
    predicting.MOST_IMAGES = 8
    print({"every": every, "once": once}[sys.argv[1]](*map(Path, sys.argv[2:])))
