"""Several commands of ours in one process: `python verbs.py '[["show", "model"], ...]'`.

Before each, the address in $MARK is asked for its number. What they end with is printed as JSON.
"""

import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from urllib.request import urlopen


def command(verbs: list[list[str]]) -> list[str]:
    """The command for verbs, to be run in the folder `work` of a home."""
    return [sys.executable, __file__, json.dumps(verbs)]


def environment(home: Path, **more: str) -> dict[str, str]:
    """Of a user with an empty home; of the variables of this process only those that are needed."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    for folder in ("home", "temporary", "work"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    return kept | {
        "HOME": str(home / "home"),
        "TMPDIR": str(home / "temporary"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "RES_OPTIONS": "timeout:1 attempts:1",
        **more,
    }


def ended(arguments: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what it says on standard error."""
    from protofission.cli import main

    sys.argv = ["protofission", *arguments]
    said, code = StringIO(), 0
    with open(os.devnull, "w") as nowhere, redirect_stderr(said), redirect_stdout(nowhere):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return code, said.getvalue()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    found = []
    for number, verb in enumerate(given):
        if "MARK" in os.environ:
            urlopen(f"{os.environ['MARK']}/mark/{number}").read()
        found.append(ended(verb))
    print(json.dumps(found))
