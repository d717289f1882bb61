"""The campaign against a command that misbehaves on purpose: each fault must be seen as what it is.

    python tests/chaos/planted.py SCRATCH

Prints the outcome of each misbehavior as JSON, and of two kills how much was taken up.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos import faults, lives
from chaos.stage import Material, Stage, lines
from chaos.subjects import References, Subject

COMMAND = Path(__file__).with_name("planted_command.py")
ON_DAMAGE = ("nothing", "sentence", "traceback", "hang", "other-bytes", "child", "litter", "code")
ON_KILL = ("remembers", "forgets")


def write_input(stage: Stage) -> None:
    """What the command reads."""
    (stage.work / "input.txt").write_text("as it was")


def subject_of(behavior: str) -> Subject:
    """The command with one misbehavior."""
    return Subject(
        behavior,
        (behavior,),
        makes=("out.txt",),
        needs=("input",),
        ours=("input.txt",),
        saved=lines("journal") if behavior in ON_KILL else None,
        program=COMMAND,
    )


def main() -> None:
    """All of them."""
    lives.IDLE, lives.GRACE = 2.0, 1.0
    lives.adopt_orphans()
    stage = Stage(Path(sys.argv[1]), {"input": Material(write_input, ("input.txt",))})
    subjects = {name: subject_of(name) for name in (*ON_DAMAGE, *ON_KILL)}
    references, found = References(stage, subjects), {}
    for name, kind in (*((n, "damage") for n in ON_DAMAGE), *((n, "kill") for n in ON_KILL)):
        numbers = (n for n in range(1000) if faults.ORDER[n % len(faults.ORDER)] == kind)
        for number in numbers:
            result = faults.carried_out(number, 0, stage, references, [subjects[name]])
            if kind == "damage" or result.kills > 1:  # one kill has no life before it
                break
        found[name] = [result.outcome, result.kills, result.used]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
