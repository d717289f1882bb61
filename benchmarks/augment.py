"""Batched augmentation against PIL, image by image: the same operations, on one thread, in one run.

    python benchmarks/augment.py

Both start from bytes in memory and end with one tensor of floats. The batched side draws its
parameters within its time; PIL gets the same ones for nothing. Times are processor time, the two
sides take turns, and of all turns the fastest counts: on a busy machine that is the stablest. The
last figure is the ratio of the strong view of 448 images of 32 x 32.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from protofission.core.records import ViewName
from protofission.core.rng import step_rng
from protofission.data.augment.natural_views import NATURAL
from protofission.data.augment.randaugment import NAMES

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from reference import pil_operations as pil

Work = Callable[[], Tensor]
Pixels = NDArray[np.uint8]


def natural(n: int, side: int) -> Tensor:
    """Smooth images with some noise: flat ones would flatter a histogram."""
    coarse = torch.rand(n, 3, 5, 5, generator=step_rng(0, 0, "images"))
    smooth = torch.nn.functional.interpolate(coarse, side, mode="bicubic").clamp(0, 1) * 245
    return (smooth + torch.rand(smooth.shape) * 10).byte()


def in_pil(name: ViewName, images: Tensor) -> Work:
    """The same view by PIL; what is random is drawn beforehand."""
    rows = list(images.permute(0, 2, 3, 1).contiguous().numpy())
    generator, n = step_rng(0, 0, "benchmark"), len(images)
    padding = [int(side * NATURAL.weak.padding) for side in images.shape[2:]]
    arguments: list[Callable[[Image.Image], Image.Image]]

    def shifts() -> list[Callable[[Image.Image], Image.Image]]:
        drawn = NATURAL.weak.draw(images.shape, generator)
        places = zip(drawn.down.tolist(), drawn.right.tolist(), drawn.flips.tolist(), strict=True)
        return [lambda image, p=p: pil.shift(image, *p, padding, "reflect") for p in places]

    if name == "weak":
        arguments = shifts()
    elif name == "strong":
        first, draws = shifts(), NATURAL.strong.draw(images.shape, generator)
        steps = [
            [(NAMES[o], level) for o, level in zip(*row, strict=True)]
            for row in zip(draws.operations.tolist(), draws.levels.tolist(), strict=True)
        ]
        boxes = draws.boxes.tolist()
        arguments = [
            lambda image, i=i: pil.randaugment(first[i](image), steps[i], boxes[i])
            for i in range(n)
        ]
    else:
        drawn = NATURAL.simclr.draw(images.shape, generator)
        jitter = [
            [(kind, factors[kind]) for kind in order]
            for order, factors in zip(drawn.order.tolist(), drawn.factors.tolist(), strict=True)
        ]
        rest = zip(drawn.boxes.tolist(), drawn.flips.tolist(), jitter, strict=True)
        ends = zip(drawn.gray.tolist(), drawn.sigmas.tolist(), strict=True)
        arguments = [
            lambda image, a=(*a, *b): pil.simclr(image, *a) for a, b in zip(rest, ends, strict=True)
        ]

    def work() -> Tensor:
        made: list[Pixels] = [
            np.asarray(view(Image.fromarray(row)))
            for view, row in zip(arguments, rows, strict=True)
        ]
        return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2).float().div_(255)

    return work


def batched(name: ViewName, images: Tensor) -> Work:
    return lambda: NATURAL.view(name, images, step_rng(0, 0, "benchmark"))


def fastest(sides: list[Work], seconds: float) -> list[float]:
    """The least processor time of each side, taking turns for some seconds."""
    best = [float("inf")] * len(sides)
    end = time.perf_counter() + seconds
    for turn in range(1000):
        if turn >= 3 and time.perf_counter() > end:
            break
        for place, work in enumerate(sides):
            begin = time.process_time()
            work()
            best[place] = min(best[place], time.process_time() - begin)
    return best


def main() -> None:
    torch.set_num_threads(1)
    ratios = {}
    print("   size  images  view      batched        PIL   ratio")
    for side, n in ((224, 64), (32, 448)):
        images = natural(n, side)
        for name in ("weak", "simclr", "strong"):
            sides = [batched(name, images), in_pil(name, images)]
            if name != "simclr":  # PIL's hue and blur are coarser than ours
                assert torch.equal(sides[0](), sides[1]()), f"the {name} views differ"
            ours, theirs = fastest(sides, 4)
            ratios[side, name] = theirs / ours
            print(
                f"{side:>3} x {side:<3} {n:>5}  {name:<7}{ours * 1e3:>8.1f} ms"
                f"{theirs * 1e3:>8.1f} ms {theirs / ours:>6.1f}"
            )
    print(f"the batched strong view of 32 x 32 is {ratios[32, 'strong']:.1f} times as fast as PIL")


if __name__ == "__main__":
    main()
