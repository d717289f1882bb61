"""Cost of launchers: rows a second by local processes, by Ray, and by the bare encoder, in one run.

    python benchmarks/scale.py                      # embedding, by turns
    python benchmarks/scale.py --synthetic 1000000  # rows of a Parquet list: memory and time

Rates are "once started": from the first images that are done to the last. The bare encoder runs in
two processes at once, on ready tensors.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from protofission.data.readers.parquet_lists import read_list_rows
from protofission.models.encoders import find_encoder
from protofission.system.launch.counted_pieces import run_counted
from protofission.system.launch.launcher import Launcher, Tell, Work, find_launcher
from protofission.system.whole_files import write_whole
from protofission.training.embed import ViewCounts
from protofission.training.embed_shards import embed_in_shards

ENCODER = "simclr-cifar10"


class Clock:
    """The rate of images from the first that are done to the last."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def __call__(self, done: int, total: int) -> None:
        if done and (not self.seen or done > self.seen[-1][1]):
            self.seen.append((time.perf_counter(), done))

    def rate(self) -> float:
        (begin, first), (end, last) = self.seen[0], self.seen[-1]
        return (last - first) / (end - begin)


def begin(name: str) -> tuple[Any, torch.Tensor]:
    torch.set_num_threads(1)
    encoder = find_encoder(name).load()
    return encoder, torch.rand(256, 3, 8, 8)


def encode(state: tuple[Any, torch.Tensor], views: int, tell: Tell) -> int:
    encoder, images = state
    for _ in range(views):
        encoder.features(images)
    return len(images)


def bare(images: int, views: int) -> float:
    clock = Clock()
    work, number = Work(begin, (ENCODER,), encode), -(-images // 256)
    results = run_counted(
        find_launcher("local", 2), work, [views] * number, int, 256 * number, clock
    )
    assert len(list(results)) == number
    return clock.rate()


def embedding(on: str, folder: Path, views: int) -> float:
    clock = Clock()
    embed_in_shards(
        "digits",
        find_encoder(ENCODER),
        folder,
        ViewCounts(weak=views - 1, strong=0),
        launcher=find_launcher(on, 2),
        shard=256,
        progress=clock,
    )
    return clock.rate()


def rates(rounds: int, views: int) -> None:
    ways: dict[str, Callable[[Path], float]] = {
        "bare": lambda folder: bare(1792, views),
        "local": lambda folder: embedding("local", folder, views),
        "ray": lambda folder: embedding("ray", folder, views),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as place:
        for number in range(rounds):
            for name, measure in ways.items():
                found[name].append(measure(Path(place) / f"{name}-{number}"))
                print(f"round {number + 1}: {name} {found[name][-1]:.1f} images/s", flush=True)
    middle = {name: median(values) for name, values in found.items()}
    ratios = [ray / local for ray, local in zip(found["ray"], found["local"], strict=True)]
    print(json.dumps({"images a second, median": middle, "views": views}))
    print("ray / local by round:", ", ".join(f"{ratio:.2f}" for ratio in ratios))
    print(f"ray / local {middle['ray'] / middle['local']:.2f}, local / bare "
          f"{middle['local'] / middle['bare']:.2f}")  # fmt: skip


def begin_rows(path: str, out: str) -> tuple[Path, Path]:
    return Path(path), Path(out)


def copy_rows(state: tuple[Path, Path], bounds: tuple[int, int], tell: Tell) -> int:
    """Read a range of a list, and write a file of it."""
    path, out = state
    names = read_list_rows(path, *bounds, "path")
    write_whole(out / f"{bounds[0]:09}", "\n".join(map(str, names)).encode())
    return len(names)


def memory() -> float:
    """Megabytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def synthetic(rows: int, on: str, shard: int = 1000) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    launcher: Launcher = find_launcher(on, 2)
    for size in (rows // 100, rows // 10, rows):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            schema = arrow.schema([("path", arrow.string())])
            with parquet.ParquetWriter(folder / "list.parquet", schema) as writer:
                for start in range(0, size, 10_000):
                    names = [f"images/{n:012}.jpg" for n in range(start, min(start + 10_000, size))]
                    writer.write_table(arrow.table({"path": names}, schema))
            (folder / "out").mkdir()
            pieces = ((start, min(start + shard, size)) for start in range(0, size, shard))
            work = Work(begin_rows, (place + "/list.parquet", place + "/out"), copy_rows)
            clock, seen = Clock(), list[float]()
            for number, _ in run_counted(launcher, work, pieces, int, size, clock):
                if number % max(1, size // shard // 20) == 0:
                    seen.append(memory())
            print(
                f"{on}: {size:,} rows, {size // shard} pieces, {clock.rate():,.0f} rows/s, memory "
                f"of the launcher {seen[0]:.0f} MB at the start, {seen[-1]:.0f} MB at the end",
                flush=True,
            )


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--views", type=int, default=3)
    options.add_argument("--synthetic", type=int, default=0)
    options.add_argument("--on", nargs="*", default=["local", "ray"])
    given = options.parse_args()
    if given.synthetic:
        for on in given.on:
            synthetic(given.synthetic, on)
    else:
        rates(given.rounds, given.views)


if __name__ == "__main__":
    main()
