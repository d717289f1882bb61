"""The fault campaign: python tests/chaos --minutes 60 --seed 7."""

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import pkgutil
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

if not __package__:  # as `python tests/chaos`
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ |= {  # before torch and pyarrow are there: no threads of theirs
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

from chaos import disks, faults, table
from chaos.life import make_small
from chaos.lives import adopt_orphans, end_what_is_left
from chaos.materials import MATERIALS
from chaos.stage import Stage, copy, remove
from chaos.subjects import SUBJECTS, References
from chaos.verdicts import Result

MARK = ".chaos"
"""A file that says that a folder is a campaign's, which the next one may delete."""


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What the campaign is asked for."""
    parser = argparse.ArgumentParser(prog="python tests/chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--trials", type=int, help="so many, whatever time they take")
    parser.add_argument("--seed", type=int, help="drawn and printed, if not said")
    parser.add_argument("--only", type=int, nargs="+", help="the trials with these numbers")
    parser.add_argument("--kinds", nargs="+", choices=tuple(faults.KINDS), default=[])
    parser.add_argument("--subjects", nargs="+", choices=tuple(SUBJECTS), default=[])
    parser.add_argument("--by", choices=("kind", "subject"), default="kind")
    parser.add_argument("--out", type=Path, default=Path("chaos-out"))
    return parser.parse_args(words)


def load_everything() -> None:
    """Import what lives will import, once; threads would not come along into a fork."""
    import protofission

    for module in pkgutil.walk_packages(protofission.__path__, "protofission."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    others = ("sklearn.datasets", "matplotlib.pyplot", "torch._dynamo", "pyarrow.parquet")
    for name in (*others, "onnx", "onnxscript"):
        importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise SystemExit(f"{threads} threads after the imports: forks would be unlike real lives.")


def numbers(asked: argparse.Namespace) -> Iterator[int]:
    """The trials, as long as they are wanted."""
    if asked.only:
        yield from asked.only
        return
    end, done, number = time.monotonic() + 60 * asked.minutes, 0, 0
    while done < asked.trials if asked.trials else time.monotonic() < end:
        if not asked.kinds or faults.ORDER[number % len(faults.ORDER)] in asked.kinds:
            yield number
            done += 1
        number += 1


def keep(result: Result, stage: Stage, out: Path, command: str) -> None:
    """All that is needed to look at a failure, and to repeat it."""
    place = out / f"{result.number}-{result.kind.replace(' ', '-')}-{result.outcome.name.lower()}"
    remove(place)
    place.mkdir(parents=True)
    head = f"{result.kind}, {result.subject}: {result.fault}\n{result.outcome}: {result.why}\n"
    lives = "\n".join(result.lives)
    (place / "report.txt").write_text(
        f"{head}repeat with: {command}\n\n{lives}", errors="backslashreplace"
    )
    with contextlib.suppress(OSError, shutil.Error):  # pipes and sockets cannot be copied
        copy(stage.work, place / "work")


def campaign(asked: argparse.Namespace, seed: int, root: Path) -> list[Result]:
    """All trials; what failed is kept, and a line is printed every few seconds."""
    stage = Stage(root, MATERIALS)
    references = References(stage)
    subjects = [SUBJECTS[name] for name in asked.subjects or SUBJECTS]
    chosen = f" --subjects {' '.join(map(repr, asked.subjects))}" if asked.subjects else ""
    results: list[Result] = []
    begun, told = time.monotonic(), 0.0
    try:
        for number in numbers(asked):
            result = faults.carried_out(number, seed, stage, references, subjects)
            results.append(result)
            if not result.outcome.kept:
                command = f"python tests/chaos --seed {seed} --only {number}{chosen}"
                keep(result, stage, asked.out, command)
                print(f"#{number} {result.kind}, {result.subject}: {result.outcome}: {result.why}")
                print(f"    {result.fault}", flush=True)
            if time.monotonic() - told > 5.0:
                told = time.monotonic()
                failed = sum(not r.outcome.kept for r in results)
                print(
                    f"{told - begun:5.0f} s  {len(results)} tried, {failed} failed; #{number} "
                    f"{result.kind}, {result.subject}: {result.fault}"[:150],
                    flush=True,
                )
    except KeyboardInterrupt:
        end_what_is_left(grace=0.0)
        print("Stopped.")
    return results


def main() -> None:
    """Run the campaign, print its table, and leave with 1 if any promise was broken."""
    asked = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore the first
        signal.signal(number, signal.default_int_handler)
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    asked.out = asked.out.resolve()
    root = asked.out / "scratch"
    if asked.out.exists() and not (asked.out / MARK).exists():
        raise SystemExit(f"{asked.out} is not of an earlier campaign: name another folder.")
    remove(asked.out)
    root.mkdir(parents=True)
    (asked.out / MARK).touch()
    os.environ |= {"MPLCONFIGDIR": str(root / "plots"), "TMPDIR": str(root)}
    faults.disks_allowed = disks.apart(asked.out)
    adopt_orphans()
    load_everything()
    make_small()
    print(f"seed {seed}; small disks: {'yes' if faults.disks_allowed else 'no, they want root'}")
    results = campaign(asked, seed, root)
    remove(root)
    (asked.out / "results.json").write_text(
        json.dumps([dataclasses.asdict(result) for result in results], indent=1)
    )
    (asked.out / "table.md").write_text(
        f"{table.markdown(results, asked.by)}\n\n{table.kills(results)}\n"
    )
    print(f"\n{table.terminal(results, asked.by)}\n{table.kills(results)}")
    failed = sum(not result.outcome.kept for result in results)
    print(f"Seed {seed}. {failed} broken promises{f', kept in {asked.out}' if failed else ''}.")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
