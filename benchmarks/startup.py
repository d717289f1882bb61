"""CPU time of everyday things beside that of a bare Python: importing the package, and help.

    python benchmarks/startup.py --times 15

Prints the least and the median of so many processes each, user and system time together, and the
ratio to `python -c pass`. Processor time does not count what else runs on the machine.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys

WHAT = {
    "python -c pass": ["-c", "pass"],
    "import protofission": ["-c", "import protofission"],
    "protofission --version": ["-m", "protofission", "--version"],
    "protofission --help": ["-m", "protofission", "--help"],
    "protofission fit --help": ["-m", "protofission", "fit", "--help"],
}


def processor_seconds(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15)
    times = parser.parse_args().times
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # compiled once, as after an installation
    found: dict[str, list[float]] = {name: [] for name in WHAT}
    for _ in range(times + 1):  # by turns, so that other work falls on all alike
        for name, arguments in WHAT.items():
            found[name].append(processor_seconds(arguments))
    bare = min(found["python -c pass"][1:])
    for name, values in found.items():
        least, middle = min(values[1:]), statistics.median(values[1:])
        print(f"{name:26} least {least:.3f} s, median {middle:.3f} s, {least / bare:5.1f} x bare")


if __name__ == "__main__":
    main()
