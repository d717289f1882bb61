"""The feature tier against its limits, in one run, so that the machine's mood cancels.

    python benchmarks/feature_tier.py              1 and 2, some minutes
    python benchmarks/feature_tier.py --run        3, a whole run, some minutes
    python benchmarks/feature_tier.py --scale      4, up to two million rows, 4 GB of disk

1. Embedding (one process, one thread; augmentation, resizing, forward, digests, writing) against
   the bare encoder's forward on ready tensors, for the default encoder and 32 x 32 images.
2. The training step (drawing and reading views, standardisation, adapter, head, decision, losses,
   backward, optimiser) of ORCA and PF+ORCA on 1280 features, 512 images a batch, two views, against
   a bare sequence of the matrix products that it holds; and PF's step against the base's.
3. PF+ORCA on 50,000 x 1280 features by CIFAR-10's `orca` split, 30 epochs: time and peak memory.
4. One epoch of PF+ORCA on 20,000, 200,000 and 2,000,000 vectors of 256 features: time a row, peak
   memory.

Features are random numbers around class means: of no interest, but as costly as others.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch

from protofission.core.options import override
from protofission.data.image_sets import ImageSet, ImageSets
from protofission.data.store.manifest import Block, Part, StorePlan
from protofission.data.store.reader import Store
from protofission.data.store.writer import BlockFeatures, fill
from protofission.models.encoders import DEFAULT, find_encoder
from protofission.training.embed import Images, ViewCounts, embed
from protofission.training.experiment import Experiment
from protofission.training.loop import train
from protofission.training.presets import preset
from protofission.training.run import perform
from protofission.training.run_folder import RunFolder
from protofission.training.state import start

CLASSES = 10


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def random_store(folder: Path, rows: int, width: int, versions: int = 2) -> Store:
    """Made-up features: class means and noise, block by block."""
    known = {"name": "random", "shape": [width], "fingerprint": f"{rows} {width} {versions}"}
    views = {"plain": 1, "weak": versions}
    plan = StorePlan(
        known,
        known,
        known,
        (width,),
        {"train": Part(rows, views)},
        8192,
        tuple(map(str, range(CLASSES))),
    )
    labels = np.arange(rows) % CLASSES
    centres = 0.3 * np.random.default_rng(0).standard_normal((CLASSES, 1, width), np.float32)

    def compute(blocks: Sequence[Block]) -> Iterator[tuple[Block, BlockFeatures]]:
        for block in blocks:
            draw = np.random.default_rng(block.start)
            own = centres[labels[block.start : block.stop]]
            yield (
                block,
                {
                    view: (own + draw.standard_normal((len(own), n, width), np.float32)).astype(
                        np.float16
                    )
                    for view, n in views.items()
                },
            )

    return fill(folder, plan, {"train": labels}, compute)


def on(store: Store, method: str, *assignments: str) -> Experiment:
    experiment = preset("features", method)
    for assignment in (f"data.store={store.folder}", *assignments):
        experiment = override(experiment, assignment)
    return experiment


def embedding(folder: Path, repeats: int) -> float:
    """1. Embedding over the bare forward, images of views a second."""
    torch.set_num_threads(1)
    pixels = np.random.default_rng(0).integers(0, 256, (512, 3, 32, 32), np.uint8)
    sets = ImageSets(ImageSet(pixels, np.zeros(len(pixels), np.int64), ("a",)))
    images, spec, counts = Images("noise", sets, "natural"), find_encoder(DEFAULT), ViewCounts()
    encoder = spec.load()
    views = sum(counts.counts().values())
    ready = encoder.prepare(torch.rand(encoder.chunk, 3, 32, 32))
    ratios = []
    for repeat in range(repeats):
        marks: list[float] = []
        embed(
            images,
            spec,
            folder / f"noise{repeat}",
            counts,
            encoder=encoder,
            progress=lambda done, total, marks=marks: marks.append(time.perf_counter()),
        )
        whole = (marks[-1] - marks[0]) / (len(pixels) * views)
        begin = time.perf_counter()
        with torch.no_grad():
            for _ in range(len(pixels) * views // encoder.chunk):
                encoder.run(ready)
        bare = (time.perf_counter() - begin) / (len(pixels) * views)
        ratios.append(bare / whole)
        print(f"embedding {1 / whole:6.1f} views/s, bare {1 / bare:6.1f}: {bare / whole:.3f}")
    return median(ratios)


def products(
    heads: int, rows: int = 1024, inputs: int = 1280, width: int = 512
) -> Callable[[], int]:
    """The matrix products of a step as bare calls; gives their number of operations."""
    both = rows // 2
    shapes = [
        (rows, inputs, width),  # adapter
        (width, rows, inputs),  # its gradient
        (rows, width, heads),  # similarities
        (rows, heads, width),  # their gradient by features
        (heads, rows, width),  # and by prototypes
        (both, width, both),  # nearest neighbours
    ]
    pairs = [(torch.randn(m, k), torch.randn(k, n)) for m, k, n in shapes]
    places = [torch.empty(m, n) for m, _, n in shapes]

    def work() -> int:
        for (a, b), place in zip(pairs, places, strict=True):
            torch.mm(a, b, out=place)
        return sum(2 * m * k * n for m, k, n in shapes)

    return work


def stepping(store: Store, repeats: int, threads: int) -> None:
    """2. Steps of ORCA and PF+ORCA in turns with their bare products."""
    torch.set_num_threads(threads)
    running, bare = {}, {}
    for method, slots in (("orca", 1), ("orca+pf", 5)):
        value = on(store, method, "recipe.steps_per_epoch=100000")
        data = value.data.load()
        state = start(value, data.training, data.augmentations)
        running[method] = train(state, value, data.training, data.augmentations)
        bare[method] = products(CLASSES * slots)
        for _ in range(5):
            next(running[method])
            bare[method]()
    times: dict[str, list[float]] = {f"{kind} {m}": [] for m in running for kind in ("step", "mm")}
    for _ in range(repeats):
        for method, steps in running.items():
            begin = time.perf_counter()
            next(steps)
            middle = time.perf_counter()
            bare[method]()
            times[f"step {method}"].append(middle - begin)
            times[f"mm {method}"].append(time.perf_counter() - middle)
    found = {name: median(values) for name, values in times.items()}
    for method in running:
        step, mm = found[f"step {method}"], found[f"mm {method}"]
        rate = bare[method]() / 1e9
        print(
            f"{threads} threads, {method:8} step {step * 1e3:6.1f} ms, {rate / step:5.0f} GFLOP/s; "
            f"bare products {mm * 1e3:6.1f} ms, {rate / mm:5.0f} GFLOP/s: rate {mm / step:.2f}"
        )
    ratio = found["step orca+pf"] / found["step orca"]
    print(f"{threads} threads, orca+pf / orca, whole step: {ratio:.3f}")


def whole_run(folder: Path, out: Path, *assignments: str) -> dict[str, float]:
    """A run in a process of its own: seconds, and the most memory in MB."""
    begin = time.perf_counter()
    experiment = on(Store.open(folder), "orca+pf", *assignments)
    data = experiment.data.load()
    for _ in perform(experiment, data, RunFolder(out)):
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    summary = RunFolder(out).metrics()
    return {"seconds": time.perf_counter() - begin, "MB": peak, "all": summary.strict.all}


def in_a_process(*arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--child", *arguments], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--store", type=Path, help="for --run: features of CIFAR-10, if not random")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", nargs="*")
    options = parser.parse_args()
    if options.child:
        folder, out, *assignments = options.child
        print(json.dumps(whole_run(Path(folder), Path(out), *assignments)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.run:
            store = options.store or random_store(folder / "s", 50_000, 1280, 3).folder
            found = in_a_process(str(store), str(folder / "run"))
            print(
                f"30 epochs of 50,000 x 1280: {found['seconds']:.0f} s, {found['MB']:.0f} MB, "
                f"all (strict) {found['all']:.3f}"
            )
        elif options.scale:
            print("     rows   seconds   us/row   peak MB")
            for rows in (20_000, 200_000, 2_000_000):
                store = random_store(folder / str(rows), rows, 256).folder
                found = in_a_process(str(store), f"{folder}/run{rows}", "recipe.epochs=1")
                print(
                    f"{rows:9,} {found['seconds']:9.1f} {found['seconds'] / rows * 1e6:8.1f} "
                    f"{found['MB']:9.0f}"
                )
        else:
            share = embedding(folder, options.repeats)
            store = random_store(folder / "s", 50_000, 1280, 3)
            for threads in (1, 2):
                stepping(store, 40 * options.repeats, threads)
            print(f"embedding / bare encoder: {share:.3f}")


if __name__ == "__main__":
    main()
