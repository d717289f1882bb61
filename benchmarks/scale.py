"""Cost of launchers: rows a second by local processes, by Ray, and by the bare encoder, in one run.

    python benchmarks/scale.py                      # embedding, by turns
    python benchmarks/scale.py --synthetic 1000000  # rows of a Parquet list: memory and time
    python benchmarks/scale.py --processor          # images by one second of one processor

Rates are "once started": from the first quarter of the images to the last. The bare encoder runs in
two processes at once, on ready tensors. Rates by a processor's seconds do not see other work on the
machine; those of Ray count all of its processes.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
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
    """The rate of images from the first quarter to the last, by the clock and by processors."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float, int]] = []
        """Time, seconds of processors and images done, of the first quarter and of all."""

    def __call__(self, done: int, total: int) -> None:
        if (done >= total / 4 and not self.seen) or (done == total and len(self.seen) == 1):
            self.seen.append((time.perf_counter(), processor_seconds(), done))

    def rate(self) -> float:
        """Images a second."""
        (begin, _, first), (end, _, last) = self.seen
        return (last - first) / (end - begin)

    def processor_rate(self) -> float:
        """Images a second of a processor, by this process and all below it."""
        (_, begin, first), (_, end, last) = self.seen
        return (last - first) / (end - begin)


def processor_seconds() -> float:
    """Seconds of processors that this process and all below it, Ray's too, have used so far."""
    used, parents = dict[int, float](), dict[int, int]()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended
            if entry.name.isdigit():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                used[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(used[pid] for pid in own)


def begin(name: str) -> tuple[Any, torch.Tensor]:
    torch.set_num_threads(1)
    encoder = find_encoder(name).load()
    return encoder, torch.rand(256, 3, 8, 8)


def encode(state: tuple[Any, torch.Tensor], views: int, tell: Tell) -> int:
    encoder, images = state
    for _ in range(views):
        encoder.features(images)
    return len(images)


def bare(images: int, views: int) -> Clock:
    clock = Clock()
    work, number = Work(begin, (ENCODER,), encode), -(-images // 256)
    results = run_counted(
        find_launcher("local", 2), work, [views] * number, int, 256 * number, clock
    )
    assert len(list(results)) == number
    return clock


def embedding(on: str, folder: Path, views: int) -> Clock:
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
    return clock


def rates(rounds: int, views: int) -> None:
    ways: dict[str, Callable[[Path], Clock]] = {
        "bare": lambda folder: bare(1792, views),
        "local": lambda folder: embedding("local", folder, views),
        "ray": lambda folder: embedding("ray", folder, views),
    }
    found: dict[str, list[Clock]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as place:
        for number in range(rounds):
            for name, measure in ways.items():
                found[name].append(clock := measure(Path(place) / f"{name}-{number}"))
                found_rates = f"{clock.rate():.1f} images/s, {clock.processor_rate():.1f}"
                print(f"round {number + 1}: {name} {found_rates} by processors", flush=True)
    for what, rate in (("clock", Clock.rate), ("processors", Clock.processor_rate)):
        for one, other in (("ray", "local"), ("local", "bare")):
            pairs = zip(found[one], found[other], strict=True)
            ratios = [rate(above) / rate(below) for above, below in pairs]
            each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"{one} / {other} by the {what}: median {median(ratios):.2f} of {each}")


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
                f"{on}: {size:,} rows, {size // shard} pieces, {clock.rate():,.0f} rows/s, "
                f"{clock.processor_rate():,.0f} by a processor's second, memory of the launcher "
                f"{seen[0]:.0f} MB at the start, {seen[-1]:.0f} MB at the end",
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
