"""The process of refits: `python -m protofission.triage.workbench.refit_process MODEL`.

It reads the log as it is now, writes the refit that waits to be kept, and tells its progress in
lines of JSON. The model stays as it is; if the process is killed, nothing of it is left to be kept.
With --wait it loads its libraries, and does so for each line that it is given, until there is none.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from pathlib import Path

from protofission.core.errors import InputError
from protofission.core.progress import StageProgress
from protofission.system.processors import processors
from protofission.system.worker_processes import exit_with, load_ahead

COMMAND = "protofission label"
"""The command that the page of a refit names."""
LOADED = ("protofission.triage.workbench.refit", "sklearn.linear_model", "torch._dynamo")
"""Modules that a refit loads; the last one is loaded by torch when it first trains."""


def run_refit(
    model: Path,
    labeled: Path | None = None,
    pool: Path | None = None,
    *,
    processes: int = 1,
    progress: StageProgress = lambda what, done, total: None,
) -> None:
    """Refit a model to the labels of its log, and leave the result to be kept or dropped.

    Args:
        labeled: the folder of the labeled images, if it was moved.
        pool: the folder of the pool, if it was moved.
    """
    from protofission.triage.workbench.refit import refit
    from protofission.triage.workbench.versions import write_candidate
    from protofission.triage.workbench.workbench import Workbench

    with Workbench.open(model, labeled, pool, read_only=True) as workbench:
        state, material = workbench.now
    found = refit(material, state, processes=processes, progress=progress)
    progress("writing tables and page", 0, 1)
    write_candidate(model, lambda folder: found.write(folder, model, COMMAND))
    progress("writing tables and page", 1, 1)


def main() -> None:
    """Run refits as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--labeled", type=Path)
    parser.add_argument("--pool", type=Path)
    parser.add_argument("--parent", type=int)
    parser.add_argument("--wait", action="store_true")
    given = parser.parse_args()
    if given.parent is not None:
        exit_with(given.parent)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is no progress

    def tell(**told: object) -> None:
        print(json.dumps(told), file=out, flush=True)

    def run() -> int:
        """Run a refit, and return an exit code."""
        try:
            run_refit(
                given.model,
                given.labeled,
                given.pool,
                processes=processors(),
                progress=lambda what, done, total: tell(stage=what, done=done, total=total),
            )
        except InputError as error:
            tell(error=str(error))
            return 2
        return 0

    if not given.wait:
        sys.exit(run())
    load_ahead(LOADED)
    for name in LOADED:
        importlib.import_module(name)
    for _ in sys.stdin:
        run()
        tell(ended=True)


if __name__ == "__main__":
    main()
