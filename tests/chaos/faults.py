"""The kinds of faults: each takes a trial, does something to a command, and says how it ended."""

import os
import random
import shlex
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from chaos import damage, disks, garbage, words
from chaos.lives import Life, descendants, end_what_is_left, signal_group, signal_one
from chaos.stage import Stage
from chaos.subjects import References, Subject
from chaos.trial import Moment, Trial
from chaos.verdicts import (
    BrokenPromiseError,
    Outcome,
    Result,
    check,
    check_stopped,
    last_line,
    refused,
)


def kill(trial: Trial) -> None:
    """SIGKILL, one to four times, of the first process, of another, or of all; then the end."""
    trial.references.of(trial.subject)
    trial.lay()
    rng = trial.rng
    for number in range(rng.choice((1, 1, 2, 3, 4))):
        moment, victim = Moment(trial), rng.choice(("all", "first", "another"))
        trial.say(f"kill of {victim} {moment.words()}")

        def strike(life: Life, victim: str = victim) -> None:
            others = [p.pid for p in descendants() if p.pid != life.pid]
            if victim == "another" and others:
                signal_one(rng.choice(sorted(others)), signal.SIGKILL)
            elif victim == "all":
                signal_group(life.pid, signal.SIGKILL)
            else:
                signal_one(life.pid, signal.SIGKILL)

        ending = trial.live(trial.subject.start(trial.stage, again=number > 0), moment, strike)
        trial.result.kills += ending.acted
        trial.result.used += number > 0 and moment.went_on
        if ending.code == -signal.SIGKILL:
            check(ending, killed=True)
        elif not refused(ending, killed=bool(ending.acted)):
            trial.compare(ending)
            return
        if trial.is_done():
            break
    trial.result.used += trial.finish()


def stop(trial: Trial) -> None:
    """SIGINT or SIGTERM at some moment; then the end."""
    trial.references.of(trial.subject)
    trial.lay()
    number = trial.rng.choice((signal.SIGINT, signal.SIGTERM))
    whole, moment = trial.rng.random() < 0.5, Moment(trial)
    trial.say(f"{number.name} to {'all' if whole else 'the first process'} {moment.words()}")

    def strike(life: Life) -> None:
        (signal_group if whole else signal_one)(life.pid, number)

    ending = trial.live(None, moment, strike)
    check_stopped(ending, number)
    trial.finish()


def full_disk(trial: Trial) -> None:
    """No room: for large files, on the disk, or for what processes share; then there is some."""
    trial.references.of(trial.subject)
    sorts = ["large files"] + ["disk", "disk", "shared memory"] * disks_allowed
    sort = trial.rng.choice(sorts)
    if sort == "disk":
        return _full_work(trial)
    trial.lay()
    if sort == "shared memory":
        trial.say("no room in /dev/shm")
        with disks.small_disk(Path("/dev/shm"), 4096):
            Path("/dev/shm/full").write_bytes(bytes(4096))
            ending = trial.live()
    else:
        largest = max((trial.stage.work / name).stat().st_size for name in trial.laid or [""])
        room = int(largest * trial.rng.random() ** 3) + trial.rng.choice((0, 100, 5000))
        trial.say(f"files of at most {room} bytes")
        ending = trial.live(replace(trial.subject.start(trial.stage), room=room))
    if refused(ending):
        trial.finish()
    else:
        trial.compare(ending)


def _full_work(trial: Trial) -> None:
    work = trial.stage.work
    for name in trial.subject.needs:
        trial.stage.lay((name,))  # made before the disk is small
    with disks.small_disk(work, 2**30):
        trial.lay()
        used = os.statvfs(work)
        taken = (used.f_blocks - used.f_bfree) * used.f_frsize
        room = int(trial.rng.random() ** 2 * 2_000_000)
        trial.say(f"{room} bytes left on the disk")
        disks.enlarge(work, taken + room)
        ending = trial.live()
        disks.enlarge(work, 2**30)
        if refused(ending):
            trial.finish()
        else:
            trial.compare(ending)


disks_allowed = False
"""Whether small disks can be had here."""


def damaged(trial: Trial) -> None:
    """A file that the command reads is damaged; put back, nothing is lost."""
    path, ours = _target(trial, lambda path: True)
    act = trial.rng.choice(trial.rng.choice((damage.CONTENT, damage.SORT)))
    _hurt(trial, path, act, ours=ours, compared=ours)


def garbled(trial: Trial) -> None:
    """A file that the command reads holds something that it could not have been made to hold."""
    path, ours = _target(trial, lambda path: path.suffix in garbage.BY_SUFFIX)
    act = trial.rng.choice(garbage.BY_SUFFIX[path.suffix])
    _hurt(trial, path, act, ours=ours, compared=False)


def _target(trial: Trial, fits: Callable[[Path], bool]) -> tuple[Path, bool]:
    """A file that is read, and whether it is one of ours."""
    trial.references.of(trial.subject)
    trial.lay()
    work = trial.stage.work
    found = [
        (path, ours)
        for patterns, ours in ((trial.subject.ours, True), (trial.subject.theirs, False))
        for pattern in patterns
        for path in sorted(work.glob(pattern))
        if path.is_file() and fits(path)
    ]
    sort = trial.rng.choice(sorted({path.suffix for path, _ in found}))
    return trial.rng.choice([one for one in found if one[0].suffix == sort])


def _hurt(trial: Trial, path: Path, act: damage.Damage, *, ours: bool, compared: bool) -> None:
    name = str(path.relative_to(trial.stage.work))
    trial.damaged = name
    trial.say(f"{name} {act(path, trial.rng)}")
    subject = trial.subject
    if subject.name == "suite again" and not compared:
        subject = replace(subject, arguments=(*subject.arguments, "--dry-run"))
    ending = trial.live(subject.start(trial.stage))
    if refused(ending):
        trial.result.outcome = Outcome.REFUSED
        if ours:
            _put_back(trial, name)
    elif compared:
        trial.compare(ending)


def _put_back(trial: Trial, name: str) -> None:
    """With the file as it was, the command must do what it would have done."""
    if not any(trial.stage.restore(material, name) for material in trial.subject.needs):
        return
    ending = trial.live()
    if refused(ending):
        why = f"with the file put back, still refused: {last_line(ending.err)}"
        raise BrokenPromiseError(Outcome.ROUGH, why)
    trial.compare(ending)
    trial.result.outcome = Outcome.REFUSED


def worded(trial: Trial) -> None:
    """A command line that nobody means; what is printed may have to be ASCII."""
    trial.stage.lay(words.NEEDS)
    line = words.hostile_line(trial.rng)
    trial.result.subject = " ".join(line[: 2 if line[0] == "data" else 1])
    encoding = trial.rng.choice(("utf-8", "utf-8", "ascii"))
    trial.say(f"{shlex.join(line)[:300]} ({encoding})")
    start = replace(trial.stage.start(line), encoding=encoding)
    trial.result.outcome = Outcome.REFUSED if refused(trial.live(start)) else Outcome.DONE


Kind = tuple[Callable[[Trial], None], Callable[[Subject], bool]]
KINDS: dict[str, Kind] = {
    "kill": (kill, lambda subject: not subject.same_as),
    "stop": (stop, lambda subject: not subject.same_as),
    "full disk": (full_disk, lambda subject: not subject.same_as and bool(subject.makes)),
    "damage": (damaged, lambda subject: bool(subject.ours or subject.theirs)),
    "garbage": (garbled, lambda subject: bool(subject.ours or subject.theirs)),
    "command line": (worded, lambda subject: True),
}
"""What is done, and to which subjects."""
ORDER = (
    *("kill", "damage", "command line", "garbage", "full disk", "command line", "damage", "stop"),
    *("kill", "garbage", "command line", "damage", "command line"),
)
"""The kinds of consecutive trials."""


def carried_out(
    number: int, seed: int, stage: Stage, references: References, subjects: Sequence[Subject]
) -> Result:
    """A trial by its number."""
    rng = random.Random(f"{seed}:{number}")
    kind = ORDER[number % len(ORDER)]
    act, fits = KINDS[kind]
    fitting = [subject for subject in subjects if fits(subject)]
    weights = [s.weight * (5 if kind == "kill" and s.saved else 1) for s in fitting]
    subject = rng.choices(fitting, weights)[0]
    trial = Trial(number, kind, rng, stage, references, subject)
    begun = time.monotonic()
    try:
        act(trial)
    except BrokenPromiseError as broken:
        trial.result.outcome, trial.result.why = broken.outcome, str(broken)
    except Exception as error:  # the hour goes on, and the table shows it
        end_what_is_left(grace=0.0)
        trial.result.outcome = Outcome.ROUGH
        trial.result.why = f"the campaign itself failed: {error!r}"
        trial.result.lives.append(traceback.format_exc())
    trial.result.seconds = time.monotonic() - begun
    return trial.result
