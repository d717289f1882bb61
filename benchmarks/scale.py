"""Cost of launchers: rows a second by local processes, by Ray, and by the bare encoder, in one run.

    python benchmarks/scale.py                      # embedding, by turns
    python benchmarks/scale.py --synthetic 1000000  # rows of a Parquet list: memory and time
    python benchmarks/scale.py --processor          # images by one second of one processor

Rates are "once started": from the first images that are done to the last. The bare encoder runs in
two processes at once, on ready tensors. Those of one processor are of its own seconds: other work
on the machine does not count.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image

from protofission.core.options import override_all
from protofission.data.image_sets import floats
from protofission.data.readers.decode import Decoding, decode
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


def photograph(number: int) -> bytes:
    """A JPEG of 640 x 480: soft shapes and some noise."""
    random = np.random.default_rng(number)
    soft = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    pixels = np.asarray(soft.resize((640, 480), Image.Resampling.BICUBIC), np.float32)
    noisy = (pixels + random.normal(0, 4, pixels.shape)).clip(0, 255).astype(np.uint8)
    content = io.BytesIO()
    Image.fromarray(noisy).save(content, "jpeg", quality=85)
    return content.getvalue()


def processor(rounds: int, number: int = 48) -> None:
    """Images by a second of one processor: decoded, encoded, and both one after the other."""
    torch.set_num_threads(1)
    files = [photograph(place) for place in range(number)]
    print(f"JPEG of 640 x 480, {np.mean([len(file) for file in files]) / 1000:.0f} kB each")
    for name, size in (("efficientnet-lite2", 224), ("efficientnet-lite0", 128)):
        encoder = override_all(find_encoder(name), [f"size={size}"]).load()
        seconds = dict[str, list[float]](decoding=[], encoding=[])
        to = Decoding(encoder.decode, encoder.decode)
        for _ in range(rounds + 1):
            begin = time.process_time()
            pixels = np.stack([decode(file, to) for file in files])
            middle = time.process_time()
            with torch.no_grad():
                encoder.features(floats(torch.from_numpy(pixels)))
            seconds["decoding"].append(middle - begin)
            seconds["encoding"].append(time.process_time() - middle)
        both = [sum(pair) for pair in zip(*seconds.values(), strict=True)]
        for what, found in (*seconds.items(), ("both", both)):
            rates = sorted(number / each for each in found[1:])  # the first is a warm-up
            print(f"{name} at {size} px, {what}: {median(rates):.0f} images/s "
                  f"({rates[0]:.0f} to {rates[-1]:.0f}, {rounds} rounds of {number})")  # fmt: skip
    print(f"memory of this process, at most: {peak():.0f} MB")


def peak() -> float:
    """Megabytes of this process at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--views", type=int, default=3)
    options.add_argument("--synthetic", type=int, default=0)
    options.add_argument("--processor", action="store_true")
    options.add_argument("--on", nargs="*", default=["local", "ray"])
    given = options.parse_args()
    if given.synthetic:
        for on in given.on:
            synthetic(given.synthetic, on)
    elif given.processor:
        processor(given.rounds)
    else:
        rates(given.rounds, given.views)


if __name__ == "__main__":
    main()
