"""One trial: a subject on the stage, what is done to it and when, and what it must come to."""

import random
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass

from chaos.lives import Ending, Life, Start
from chaos.stage import Stage, files_named
from chaos.subjects import References, Subject, produced
from chaos.verdicts import BrokenPromiseError, Outcome, Result, last_line, refused

UNREAD = ("blocks.jsonl", "command.json", "environment.json", "start.json")
"""Files that only tell of what was done: where no result comes from one, it may stay damaged."""
PARTIAL = ".[!.]*.????????????????"
"""What a file is called while it is written."""


class Trial:
    """One trial: what is drawn comes from its own generator, so that it can be repeated."""

    def __init__(
        self,
        number: int,
        kind: str,
        rng: random.Random,
        stage: Stage,
        references: References,
        subject: Subject,
    ) -> None:
        self.rng, self.stage, self.subject = rng, stage, subject
        self.references = references
        self.result = Result(number, kind, subject.name, "", Outcome.DONE)
        self.damaged = ""
        """The path of a file that was damaged."""
        self.laid: set[str] = set()

    def lay(self) -> None:
        """The subject's materials."""
        self.laid = self.stage.lay(self.subject.needs)

    def say(self, words: str) -> None:
        """What is done."""
        self.result.fault += f"{'; ' if self.result.fault else ''}{words}"

    def live(
        self,
        start: Start | None = None,
        moment: Callable[[], bool] = lambda: False,
        act: Callable[[Life], None] = lambda life: None,
    ) -> Ending:
        """A life of the subject, written down."""
        start = start or self.subject.start(self.stage)
        ending = Life(start).watch(moment, act)
        self.result.lives.append(
            f"$ protofission {shlex.join(start.arguments)}\n[{ending.code} after "
            f"{ending.seconds:.1f} s]\n{ending.out[-2000:]}\n{ending.err[-6000:]}"
        )
        return ending

    def saved(self) -> int:
        """The work on the disk that the next life can go on from."""
        return 0 if self.subject.saved is None else self.subject.saved(self.stage.work)

    def is_done(self) -> bool:
        """Whether nothing is left to do, so that the command would be refused."""
        return bool(self.subject.done) and (self.stage.work / self.subject.done).exists()

    def compare(self, ending: Ending | None) -> None:
        """Refuse what is not byte for byte what an undisturbed life leaves."""
        reference = self.references.of(self.subject)
        found = produced(self.stage, self.subject, self.laid)
        names = sorted(found.keys() | reference.files.keys())
        differ = [
            f"{name} ({'missing' if name not in found else 'too many'})"
            if (name in found) != (name in reference.files)
            else name
            for name in names
            if found.get(name) != reference.files.get(name)
            and not (name == self.damaged and name.endswith(UNREAD))
            and not (self.damaged and name.startswith(f"{self.damaged}/"))  # it is a folder now
        ]
        if self.subject.prints and ending is not None and ending.out != reference.out:
            differ.append("standard output")
        if differ and self._is_told():
            return
        if differ:
            litter = all(name.endswith("(too many)") for name in differ)
            sort = Outcome.LEFT if litter else Outcome.DIFFERENT
            raise BrokenPromiseError(sort, f"files: {', '.join(differ[:8])}")
        self.result.outcome = Outcome.SAME

    def _is_told(self) -> bool:
        """Whether a page says that something was damaged; without `finished`, a run is begun."""
        page = self.stage.work / self.subject.tells
        if not (self.damaged and self.subject.tells and page.is_file()):
            return False
        states = ["damaged"] + ["begun"] * self.damaged.endswith("/finished")
        return any(f"| {state} |" in page.read_text() for state in states)

    def finish(self) -> bool:
        """Let the command go on to its end, and compare; whether it went on from saved work."""
        if self.is_done():
            self.compare(None)
            return False
        moment = Moment(self, never=True)
        ending = self.live(self.subject.start(self.stage, again=True), moment)
        if refused(ending):
            why = f"refused to go on: {last_line(ending.err)}"
            raise BrokenPromiseError(Outcome.ROUGH, why)
        self.compare(ending)
        return moment.went_on


@dataclass
class Moment:
    """When a life is struck: after a while, when work was saved, or while a file is written."""

    trial: Trial
    never: bool = False
    """It only looks on."""
    begun: float = 0.0
    lost: bool = False
    """Whether less was seen saved than there had been."""

    def __post_init__(self) -> None:
        rng, subject = self.trial.rng, self.trial.subject
        self.before = self.trial.saved()
        self.after = rng.uniform(0.0, self.trial.references.of(subject).seconds)
        self.more = rng.choice((1, 1, 2, 4))
        self.delay = rng.choice((0.0, rng.uniform(0.0, 0.05)))
        sorts = ["time", "writing"] + ["saved"] * 4 * (subject.saved is not None)
        self.sort = "never" if self.never else rng.choice(sorts)
        self._seen: float | None = None

    @property
    def went_on(self) -> bool:
        """Whether there was saved work when the life began, and it was never less thereafter."""
        return self.before > 0 and not self.lost

    def words(self) -> str:
        """In words."""
        return {
            "time": f"after {self.after:.2f} s",
            "writing": "while writing",
            "saved": f"at {self.before} + {self.more} saved",
        }[self.sort]

    def __call__(self) -> bool:
        now = time.monotonic()
        self.begun = self.begun or now
        saved = self.trial.saved() if self.before or self.sort == "saved" else 0
        self.lost |= 0 < saved < self.before
        if self._seen is None:
            match self.sort:
                case "time":
                    came = now - self.begun >= self.after
                case "writing":
                    came = any(files_named(self.trial.stage.work, PARTIAL))
                case "saved":
                    came = saved >= self.before + self.more
                case _:
                    came = False
            self._seen = now if came else None
        return self._seen is not None and now - self._seen >= self.delay
