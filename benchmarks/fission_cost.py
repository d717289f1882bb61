"""What prototype fission costs: ratios within one run, so that the machine's mood cancels out.

    python benchmarks/fission_cost.py

1. A whole training step (forward, decision, losses, backward, optimiser) of ORCA on ready features:
   128 + 384 vectors of 1280 numbers, two views, a linear adapter to 512, with a cosine head and
   with fission (V = 5). The step is also set against its matrix products alone: the share of the
   time that is left to them. Their own ratio is what no implementation of fission goes below.
2. The time of PF's losses, forward and backward, as C V grows; linear would be a ratio of 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import protofission  # noqa: F401  first, as it says how idle threads wait, which torch reads once

# isort: split
import torch
from torch import Tensor, nn

from protofission.core.records import Layout, Sizes, Step, total
from protofission.core.rng import step_rng
from protofission.fission import FissionHead
from protofission.methods import METHODS
from protofission.models.heads.cosine import CosineHead
from protofission.training.experiment import Recipe
from protofission.training.optimizers import optimizer_of

INPUTS, WIDTH, PROTOTYPES = 1280, 512, 5
LAYOUT = Layout(128, 384, 2, 2)


def seconds(*works: Callable[[], None], repeats: int = 31) -> list[float]:
    """The median time of each call; the calls take turns, after one that does not count."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for work, own in zip(works, times, strict=True):
            begin = time.perf_counter()
            work()
            own.append(time.perf_counter() - begin)
    return [sorted(own[1:])[repeats // 2] for own in times]


def loss_of(
    name: str, head: nn.Module, adapter: nn.Module, features: Tensor, num_classes: int
) -> Callable[[], Tensor]:
    """A method's loss on ready features."""
    method, seen = METHODS[name], num_classes // 2
    slots = getattr(head, "l", torch.empty(0, 1)).shape[1]
    sizes = Sizes(features.shape[1], num_classes, seen, slots)
    memory = method.memory(sizes, torch.Generator())
    labels = torch.arange(LAYOUT.labeled) % seen

    def loss() -> Tensor:
        step = Step(
            output=head(adapter(features)),
            labels=labels,
            layout=LAYOUT,
            num_seen=seen,
            memory=memory,
            generator=step_rng(0, 0, "benchmark"),
        )
        return total(method.terms(step))

    return loss


def whole_step(name: str, head: nn.Module, num_classes: int) -> Callable[[], None]:
    """One training step of a linear adapter and a head."""
    adapter = nn.Linear(INPUTS, WIDTH)
    optimizer = optimizer_of(nn.ModuleList([adapter, head]), Recipe())
    loss = loss_of(name, head, adapter, torch.randn(LAYOUT.rows, INPUTS), num_classes)

    def work() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return work


def products(outputs: int) -> Callable[[], None]:
    """The matrix products of such a step, and nothing else."""
    inputs, weight = torch.randn(LAYOUT.rows, INPUTS), torch.randn(WIDTH, INPUTS)
    prototypes, grads = torch.randn(outputs, WIDTH), torch.randn(LAYOUT.rows, outputs)
    images = LAYOUT.labeled + LAYOUT.unlabeled

    def work() -> None:
        features = inputs @ weight.T
        _ = features @ prototypes.T
        _ = features[:images] @ features[:images].T  # nearest neighbours
        back = grads @ prototypes
        _ = grads.T @ features
        _ = back.T @ inputs

    return work


def one_layer(classes: int, prototypes: int, features: Tensor) -> Callable[[], None]:
    """Fission's losses above an adapter of 512 to 512."""
    head, adapter = FissionHead(WIDTH, classes, prototypes), nn.Linear(WIDTH, WIDTH)
    loss = loss_of("orca+pf", head, adapter, features, classes)
    return lambda: loss().backward()


def main() -> None:
    for classes in (10, 100):
        base, fission, least, most = seconds(
            whole_step("orca", CosineHead(WIDTH, classes), classes),
            whole_step("orca+pf", FissionHead(WIDTH, classes, PROTOTYPES), classes),
            products(classes),
            products(classes * PROTOTYPES),
        )
        print(
            f"C = {classes:<3}  a PF+ORCA step takes {fission / base:.2f} times an ORCA step "
            f"(products alone: {most / least:.2f}); share of the products: "
            f"ORCA {least / base:.0%}, PF+ORCA {most / fission:.0%}"
        )
    print("C x V       time against C x V = 10 x 5, over the growth of C V")
    first, features = 0.0, torch.randn(LAYOUT.rows, WIDTH)
    for classes, prototypes in ((10, 5), (100, 5), (1000, 5), (100, 32), (1000, 10)):
        (took,) = seconds(one_layer(classes, prototypes, features), repeats=5)
        first = first or took
        print(f"{classes:>4} x {prototypes:<4} {took / first / (classes * prototypes / 50):8.2f}")


if __name__ == "__main__":
    main()
