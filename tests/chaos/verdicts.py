"""What counts as a kept promise, and what as a broken one."""

import re
import signal
from dataclasses import dataclass, field
from enum import StrEnum

from chaos.lives import Ending


class Outcome(StrEnum):
    """What became of a trial: the first three are kept promises, the worst comes last."""

    SAME = "same bytes"
    REFUSED = "refused"
    DONE = "done"
    ROUGH = "rough"
    """Another exit code, or other words than one sentence."""
    LEFT = "left over"
    """Processes that outlived their command, or files that nothing takes away."""
    HANG = "hang"
    TRACEBACK = "traceback"
    DIFFERENT = "different"
    """Success, and other bytes, without a word."""

    @property
    def kept(self) -> bool:
        """Whether it ended as promised."""
        return self in (Outcome.SAME, Outcome.REFUSED, Outcome.DONE)


class BrokenPromiseError(Exception):
    """A trial that is over, as it went wrong."""

    def __init__(self, outcome: Outcome, why: str) -> None:
        super().__init__(why)
        self.outcome = outcome


@dataclass
class Result:
    """A trial and what became of it."""

    number: int
    kind: str
    subject: str
    fault: str
    """In words."""
    outcome: Outcome
    why: str = ""
    seconds: float = 0.0
    kills: int = 0
    used: int = 0
    """Kills after which the next life went on from saved work."""
    lives: list[str] = field(default_factory=list)
    """What ran, how it ended and what it said."""


_NOISE = re.compile(r"^\S+Warning:|\w+Warning: |Exception ignored|leaked|Fatal Python error", re.M)
_TRACKER = re.compile(
    r"Traceback \(most recent call last\):\n  File \"[^\n]*multiprocessing/resource_tracker\.py\""
    r".*?\n(?=\w)[^\n]*(\n|$)",
    re.S,
)
"""Words of Python's own tracker of semaphores that a killed one's successor knows nothing of."""
_PREFIX = "protofission: "


def check(ending: Ending, *, killed: bool = False) -> None:
    """Refuse what is never right, however a command ends.

    Args:
        killed: by SIGKILL, after which Python's own helpers may say that something leaked.
    """
    if ending.code is None:
        where = re.findall(r"^  (File .*)$", ending.err.rpartition("Current thread")[2], re.M)
        raise BrokenPromiseError(Outcome.HANG, f"in {', '.join(where[:3]) or 'an unknown place'}")
    for text in (_TRACKER.sub("", ending.err) if killed else ending.err, ending.out):
        if "Traceback (most recent call last)" in text:
            raise BrokenPromiseError(Outcome.TRACEBACK, last_line(text))
    if ending.left:
        raise BrokenPromiseError(Outcome.LEFT, "; ".join(ending.left))
    if not killed and (noise := _NOISE.search(ending.err)):
        line = ending.err[ending.err.rfind("\n", 0, noise.start()) + 1 :].splitlines()[0]
        raise BrokenPromiseError(Outcome.ROUGH, f"noise on standard error: {line}")


def refused(ending: Ending, *, killed: bool = False) -> bool:
    """Whether a command that nobody ended was refused; it must succeed or say one sentence.

    Args:
        killed: whether a process beside it was, by SIGKILL.
    """
    check(ending, killed=killed)
    if ending.code == 0:
        return False
    said = [line for line in ending.err.splitlines() if line.startswith(_PREFIX)]
    if ending.code != 2:
        raise BrokenPromiseError(Outcome.ROUGH, f"exit code {ending.code}: {last_line(ending.err)}")
    if len(said) != 1 or not ending.err.rstrip("\n").endswith(said[0]):
        raise BrokenPromiseError(Outcome.ROUGH, f"not one sentence: {ending.err[-300:]!r}")
    if len(said[0]) > 20_000:
        raise BrokenPromiseError(Outcome.ROUGH, f"a sentence of {len(said[0])} characters")
    return True


def check_stopped(ending: Ending, number: int) -> None:
    """A command that was stopped: an exit code that says so, at most one line, no other output."""
    check(ending)
    known = {signal.SIGINT: (130, -2), signal.SIGTERM: (143, -15)}[signal.Signals(number)]
    said = [line for line in ending.err.splitlines() if line.startswith(_PREFIX)]
    if ending.code not in (0, *known):
        raise BrokenPromiseError(Outcome.ROUGH, f"exit code {ending.code} after a stop")
    if len(said) > 1:
        raise BrokenPromiseError(Outcome.ROUGH, f"{len(said)} sentences after a stop")


def last_line(text: str) -> str:
    """Of what was said."""
    return (text.strip().splitlines() or [""])[-1][:300]
