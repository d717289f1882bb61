"""Runs predictions that are killed at every moment they write; run as a script.

    python prediction_lives.py BUNDLE SOURCE FOLDER

Lives that write FOLDER/every.csv are killed at their first write, at their second, and so on, some
writes are torn in two, and some lives end on a full disk; each time the next ends in the bytes of
FOLDER/whole.csv. A last life writes FOLDER/shared.csv by two processes, and is killed in the
middle. Python and torch are imported once: each life is a fork of this process. Prints the number
of kills.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import protofission.triage.prediction_blocks as predictor
import protofission.triage.prediction_journal as journal
from protofission.core.errors import InputError
from protofission.triage.predict import predict


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

    def half(file: FileIO, content: bytes) -> None:
        file.write(content[: len(content) // 2])

    os.fsync = counted(os.fsync)
    journal.write_all = counted(journal.write_all, half)
    Path.replace = counted(Path.replace)
    Path.unlink = counted(Path.unlink)


def life(
    bundle: Path,
    source: Path,
    out: Path,
    moment: int | None = None,
    *,
    room: int | None = None,
    **options: object,
) -> int:
    """A child that predicts; how it ended."""
    child = os.fork()
    if not child:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        if moment is not None:
            killed_at(moment)
        try:
            predict(bundle, [source], out, **options)
        except InputError:
            os._exit(2)
        except BaseException:
            os._exit(99)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def every(bundle: Path, source: Path, out: Path) -> int:
    """A life for each moment, each from where the last one left it; then all from nothing."""
    rows, whole = out.with_name(f".{out.name}.rows"), out.with_name("whole.csv")
    for afresh in (False, True):
        for moment in range(1, 100):
            if afresh:
                rows.unlink(missing_ok=True)
            if moment % 4 == 2:
                assert life(bundle, source, out, room=700, force=afresh) == 2, (
                    "a full disk is one sentence"
                )
            ended = life(bundle, source, out, moment, force=afresh)
            assert ended in (0, -signal.SIGKILL), ended
            if ended == 0 and afresh:
                return moment
            if ended == 0:
                break
            if afresh:
                assert life(bundle, source, out) == 0
                assert out.read_bytes() == whole.read_bytes()
    raise AssertionError("no life came to its end")


def shared(bundle: Path, source: Path, out: Path) -> None:
    """Two processes compute, until the first one is killed in the middle."""
    predictor.SHORT = -1.0  # other processes, however little it is

    def progress(done: int, total: int) -> None:
        if done > total // 2:
            die()

    assert life(bundle, source, out, processes=2, progress=progress) == -signal.SIGKILL


if __name__ == "__main__":
    predictor.MOST_IMAGES = 8
    model, photos, folder = map(Path, sys.argv[1:])
    print(every(model, photos, folder / "every.csv"), flush=True)  # before anything forks
    shared(model, photos, folder / "shared.csv")
