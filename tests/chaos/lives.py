"""Lives of a command: started, watched, ended, and what they leave behind.

Python and torch are imported once: most lives are forks of this process, which has one thread.
Commands that start processes of their own get an interpreter of their own. Every life has a session
of its own, and orphans come back to this process, so that none goes unseen.
"""

import contextlib
import ctypes
import faulthandler
import importlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import protofission

LIFE = Path(__file__).with_name("life.py")
GRACE = 10.0
"""Seconds in which the processes of a life that has ended must have ended too."""
IDLE = 12.0
"""Seconds without any work, after which a life is taken to hang."""
LONGEST = 300.0
"""Seconds, after which a life is taken to hang though it works."""
MEMORY = 4 * 2**30
"""Bytes of address space of a life: what asks for more is to be refused, not the machine."""
_TICK = 0.002
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of processes that descend from here and have lost theirs."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


@dataclass(frozen=True)
class Start:
    """How a life begins."""

    arguments: Sequence[str]
    work: Path
    """The current folder."""
    environment: Mapping[str, str]
    room: int | None = None
    """The largest file that it may write, in bytes."""
    program: Path | None = None
    """A script for an interpreter of its own; none for a fork of this process."""
    encoding: str = "utf-8"
    """Of what it prints."""


@dataclass
class Ending:
    """How a life ended."""

    code: int | None
    """Negative for a signal; none where it hung and was ended."""
    out: str
    err: str
    seconds: float
    left: list[str] = field(default_factory=list)
    """Processes that outlived it, in words."""
    acted: bool = False
    """Whether the moment came at which something was to be done to it."""


class Life:
    """A process that runs a command."""

    def __init__(self, start: Start) -> None:
        out, err = os.pipe(), os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.begun = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            _be(start, out[1], err[1])
        os.close(out[1])
        os.close(err[1])
        self._fds, self._texts = (out[0], err[0]), (bytearray(), bytearray())
        for fd in self._fds:
            os.set_blocking(fd, False)
        self.code: int | None = None
        self._worked, self._idle_since = 0, self.begun

    def ended(self) -> bool:
        """Whether it has ended; what it printed so far is read."""
        self._read()
        if self.code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
                self._read()
        return self.code is not None

    def hangs(self) -> bool:
        """Whether it has not worked for long, or works for much too long."""
        now, worked = time.monotonic(), 0
        if now - self._idle_since < 1.0:
            return False
        for process in descendants():
            worked += process.ticks + (process.state in "RD")
        if worked != self._worked:
            self._worked, self._idle_since = worked, now
        return now - self._idle_since > IDLE or now - self.begun > LONGEST

    def watch(self, moment: Callable[[], bool], act: Callable[["Life"], None]) -> Ending:
        """Until it ends: act once, when the moment has come."""
        acted, looked = False, 0.0
        while not self.ended():
            if not acted and moment():
                act(self)
                acted = True
            if time.monotonic() - looked > 1.0:
                looked = time.monotonic()
                if self.hangs():
                    return self._given_up(acted)
            time.sleep(_TICK)
        return self._ending(acted, self.code)

    def _given_up(self, acted: bool) -> Ending:
        for process in descendants():  # faulthandler says where it hangs
            signal_one(process.pid, signal.SIGABRT)
        end = time.monotonic() + 2.0
        while not self.ended() and time.monotonic() < end:
            time.sleep(_TICK)
        for process in descendants():
            signal_one(process.pid, signal.SIGKILL)
        while not self.ended():
            time.sleep(_TICK)
        return self._ending(acted, None)

    def _ending(self, acted: bool, code: int | None) -> Ending:
        seconds = time.monotonic() - self.begun
        left = end_what_is_left()
        self._read()
        for fd in self._fds:
            os.close(fd)
        out, err = (bytes(text).decode(errors="replace") for text in self._texts)
        return Ending(code, out, err, seconds, left, acted)

    def _read(self) -> None:
        for fd, text in zip(self._fds, self._texts, strict=True):
            try:
                while part := os.read(fd, 2**16):
                    text += part
            except BlockingIOError:
                pass


def undisturbed(start: Start) -> Ending:
    """A life to which nothing is done."""
    return Life(start).watch(lambda: False, lambda life: None)


def aside(act: Callable[[], object], folder: Path) -> None:
    """Do something in a folder, in a process of its own: its threads are none of ours."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.chdir(folder)
            act()
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError(f"what was to be done in {folder} failed")


def _be(start: Start, out: int, err: int) -> None:
    """In the new process: become the command. Does not return."""
    code = 98
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN if start.program is None else signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, place in ((null, 0), (out, 1), (err, 2)):
            os.dup2(fd, place)
        os.closerange(3, 1024)
        os.chdir(start.work)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if start.room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (start.room, start.room))
        if start.program is not None:
            command = [sys.executable, "-X", "faulthandler", str(start.program), *start.arguments]
            os.execve(sys.executable, command, dict(start.environment))
        os.environ.clear()
        os.environ.update(start.environment)
        importlib.reload(protofission)  # sets the variables that keep libraries quiet
        tempfile.tempdir = None
        sys.stdout = open(1, "w", encoding=start.encoding, closefd=False)  # noqa: SIM115
        sys.stderr = open(  # noqa: SIM115
            2, "w", encoding=start.encoding, errors="backslashreplace", closefd=False, buffering=1
        )
        faulthandler.enable(2)
        sys.argv = ["protofission", *start.arguments]
        from chaos.life import live

        code = live()
    finally:
        os._exit(code)


@dataclass(frozen=True)
class Process:
    """A line of /proc."""

    pid: int
    parent: int
    state: str
    ticks: int
    """Of the processor, that it has used."""

    def words(self) -> str:
        """What it was started as."""
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            command = b"?"
        return f"{self.pid} ({self.state}): {command.decode(errors='replace').strip()[:200]}"


def descendants() -> list[Process]:
    """All processes that descend from this one, but for zombies."""
    found: dict[int, list[Process]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue
        parts = text.rpartition(")")[2].split()
        process = Process(int(entry), int(parts[1]), parts[0], int(parts[11]) + int(parts[12]))
        found.setdefault(process.parent, []).append(process)
    reached, waiting = [], [os.getpid()]
    while waiting:
        for process in found.get(waiting.pop(), ()):
            waiting.append(process.pid)
            if process.state not in "ZX":
                reached.append(process)
    return reached


def end_what_is_left(grace: float | None = None) -> list[str]:
    """Wait for all processes that a life left; those that stay are ended, and told of."""
    end = time.monotonic() + (GRACE if grace is None else grace)
    while True:
        _reap()
        alive = descendants()
        if not alive or time.monotonic() > end:
            break
        time.sleep(0.01)
    said = [process.words() for process in alive]
    while alive:
        for process in alive:
            signal_one(process.pid, signal.SIGKILL)
        time.sleep(0.01)
        _reap()
        alive = descendants()
    return said


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def signal_one(pid: int, number: int) -> None:
    """A signal to a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def signal_group(pid: int, number: int) -> None:
    """A signal to a life and to all processes of its group, if it has begun to have one."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        signal_one(pid, number)
