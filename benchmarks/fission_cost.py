"""What prototype fission costs: ratios within one run, so that the machine's mood cancels out.

    python benchmarks/fission_cost.py

1. One training step of ORCA on 512 ready feature vectors (two views, 512 features, a linear
   adapter), with a cosine head and with fission (V = 5).
2. The time of PF's losses, forward and backward, as C V grows; linear would be a ratio of 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from protofission.fission import FissionHead
from protofission.methods import METHODS
from protofission.models.heads import CosineHead
from protofission.records import Layout, Step, total
from protofission.rng import step_rng


def seconds(work: Callable[[], None], repeats: int = 15) -> float:
    """The median time of a call."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return sorted(times)[repeats // 2]


def orca_step(name: str, head: nn.Module, features: Tensor, num_classes: int) -> Callable[[], None]:
    method, width = METHODS[name], features.shape[1]
    adapter = nn.Linear(width, width)
    memory = method.memory(num_classes, getattr(head, "l", torch.empty(0, 1)).shape[1])
    labels = torch.arange(128) % (num_classes // 2)

    def work() -> None:
        step = Step(
            output=head(adapter(features)),
            labels=labels,
            layout=Layout(128, 384, 2, 2),
            num_seen=num_classes // 2,
            memory=memory,
            generator=step_rng(0, 0, "benchmark"),
        )
        total(method.terms(step)).backward()

    work()
    return work


def main() -> None:
    features = torch.randn(1024, 512)
    base = seconds(orca_step("orca", CosineHead(512, 10), features, 10))
    fission = seconds(orca_step("orca+pf", FissionHead(512, 10, 5), features, 10))
    print("C x V       time against C x V = 10 x 5, over the growth of C V")
    first = 0.0
    for classes, prototypes in ((10, 5), (100, 5), (1000, 5), (100, 32), (1000, 10)):
        head = FissionHead(512, classes, prototypes)
        took = seconds(orca_step("orca+pf", head, features, classes), 5)
        first = first or took
        print(f"{classes:>4} x {prototypes:<4} {took / first / (classes * prototypes / 50):8.2f}")
    print(f"a PF+ORCA step takes {fission / base:.2f} times an ORCA step")


if __name__ == "__main__":
    main()
