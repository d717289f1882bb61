"""Processor time and waiting time of refits, in the process that the workbench keeps for them.

`python benchmarks/refit_time.py MODEL` prints what loading the libraries took, which happens while
a person looks at the refit screen, and then what each refit took. Compare with
`time python -m protofission.triage.workbench.refit_process MODEL`, which loads them and refits.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path

from protofission.triage.workbench.background_refit import BackgroundRefit


def processor_seconds(process: int) -> float:
    """Processor time of a process, of its children, and of those of them that have ended."""
    children, ticks = defaultdict(list), {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            parts = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        children[int(parts[1])].append(int(file.parent.name))
        ticks[int(file.parent.name)] = sum(map(int, parts[11:15]))
    total, open_ones = 0, [process]
    while open_ones:
        own = open_ones.pop()
        total += ticks.get(own, 0)
        open_ones += children[own]
    return total / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--refits", type=int, default=2)
    given = parser.parse_args()
    job = BackgroundRefit(given.model)
    job.prepare()
    assert job._process is not None
    process, before = job._process.pid, -1.0
    while (loaded := processor_seconds(process)) != before or loaded < 1:
        before = loaded
        time.sleep(5)
    print(f"loading: {loaded:.1f} processor-seconds")
    for _ in range(given.refits):
        before, started = processor_seconds(process), time.monotonic()
        job.start()
        job.wait()
        assert job.status().error is None, job.status().error
        took, waited = processor_seconds(process) - before, time.monotonic() - started
        print(f"refit: {took:.1f} processor-seconds in {waited:.1f} seconds", flush=True)
    job.drop()
    job.cancel()


if __name__ == "__main__":
    main()
