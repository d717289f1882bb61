"""Kills processes that change a workbench, by SIGKILL at random moments; run as a script.

Modules are imported once: each life is a fork of this process. A life opens the workbench of the
folder that is given, does one action after another, and tells each that was acknowledged. It is
killed once it has told one, after a random pause, while it is still at work. Between lives the log
is compared with what was told. Prints a line of JSON.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from protofission.core.errors import InputError
from protofission.triage.workbench.actions import action_text
from protofission.triage.workbench.log import ActionLog
from protofission.triage.workbench.workbench import Workbench
from workbench_stubs import StubMaterial, random_action


def live(model: Path, pipe: int, seed: int) -> None:
    """Do actions until the kill."""
    chance = random.Random(seed)
    with Workbench(StubMaterial(), ActionLog(model)) as bench:
        while True:
            action = random_action(bench.state, chance)
            try:
                number = bench.do(action)
            except InputError:
                continue
            kept = bench.state.next_undo  # groups have their images there
            if kept is not None and kept[0] == number:
                action = kept[1]
            os.write(pipe, (json.dumps([number, *action_text(action)]) + "\n").encode())


def one_life(model: Path, seed: int, pause: float) -> list[list[object]]:
    """Run a life and kill it; the actions that it told."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        try:
            live(model, theirs, seed)
        finally:
            os._exit(99)
    os.close(theirs)
    with os.fdopen(ours, "rb") as told:
        first = told.readline()
        assert first, "it ended before an action was acknowledged"
        time.sleep(pause)
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it was not at work any more"
        os.kill(child, signal.SIGKILL)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended == -signal.SIGKILL, ended
        lines = (first + told.read()).split(b"\n")[:-1]  # a last one may be cut
    return [json.loads(line) for line in lines]


def main(model: Path, kills: int) -> dict[str, object]:
    chance, told, per_life, in_flight = random.Random(0), [], [], 0
    for life in range(kills):
        own = one_life(model, life, chance.uniform(0, 0.03))
        told += own
        per_life.append(len(own))
        with ActionLog(model, read_only=True) as log:
            kept = [[number, *action_text(action)] for number, action in log.actions()]
        assert [row[0] for row in kept] == list(range(1, len(kept) + 1)), "a gap"
        known = {row[0]: row for row in kept}
        assert all(known.get(row[0]) == row for row in own), "an acknowledged action is lost"
        assert len(kept) - own[-1][0] in (0, 1), "more than the action in flight"
        in_flight += len(kept) - own[-1][0]
    assert all(known.get(row[0]) == row for row in told), "an old action changed"
    with Workbench(StubMaterial(), ActionLog(model)) as bench:
        assert bench.state.last_id == len(kept)
    heavy = sorted({"torch", "PIL", "sklearn"} & set(sys.modules))
    return {"per_life": per_life, "kept": len(kept), "in_flight": in_flight, "heavy": heavy}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
