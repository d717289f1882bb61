"""The whole training step against the bare model, in one run, so that the machine's mood cancels.

    python benchmarks/train_step.py [REPEATS]

1. A step of PF+ORCA and of PF+FixMatch-Sigmoid on random 32 x 32 images (indexing, augmentation,
   all views in one forward, all losses, backward, optimiser) against the bare backbone's forward
   and backward on as many ready images. All stages learn. Compact ResNet: 128 + 384 images, and 64
   + 448; ResNet-18: an eighth of that.
2. What fission adds to a step: head and losses of `orca+pf` less those of `orca`, which has a
   cosine head, as a share of the step.
3. The time of head and losses as C goes from 10 to 1000 and V from 1 to 32, over the growth of C V:
   at most 1 is at most linear.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from protofission.core.records import Layout, Sizes, Step, total
from protofission.core.rng import step_rng
from protofission.data.augment.natural_views import NATURAL
from protofission.data.image_sets import TrainingData
from protofission.fission import FissionHead
from protofission.methods import METHODS
from protofission.models.backbones import find_backbone
from protofission.models.heads.cosine import CosineHead
from protofission.training.experiment import Experiment, Recipe, experiment_of
from protofission.training.loop import train
from protofission.training.state import start

IMAGES = 4096


def seconds(*works: Callable[[], object], repeats: int) -> list[float]:
    """The median time of each call; the calls take turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, own in zip(works, times, strict=True):
            begin = time.perf_counter()
            work()
            own.append(time.perf_counter() - begin)
    return [sorted(own)[repeats // 2] for own in times]


def images() -> TrainingData:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (IMAGES, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return TrainingData(pixels, torch.arange(IMAGES) % 5, pixels, num_seen=5, num_classes=10)


def experiment(method: str, backbone: str, part: int) -> Experiment:
    sizes = (128, 384) if METHODS[method].traits.has_novel_heads else (64, 448)
    recipe = Recipe(
        epochs=None,
        steps=10**6,
        steps_per_epoch=10**6,
        labeled_batch=sizes[0] // part,
        unlabeled_batch=sizes[1] // part,
        trainable_stages=None,
    )
    return experiment_of(method, backbone=find_backbone(backbone), recipe=recipe)


def bare(value: Experiment, rows: int) -> Callable[[], None]:
    """Forward and backward of the backbone on ready images, in the training's memory format."""
    backbone = value.backbone.build(3, torch.Generator().manual_seed(0)).train()
    backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = torch.rand(rows, 3, 32, 32)

    def work() -> None:
        backbone.zero_grad()
        backbone(inputs).square().sum().backward()

    return work


def steps(value: Experiment, data: TrainingData) -> Iterator[object]:
    return train(start(value, data, NATURAL), value, data, NATURAL)


def losses(method: str, head: nn.Module, features: Tensor, layout: Layout) -> Callable[[], None]:
    """Head, decision, losses and their backward on ready features."""
    num_classes = int(next(head.parameters()).shape[0])
    chosen, seen = METHODS[method], max(1, num_classes // 2)
    slots = getattr(head, "l", torch.empty(0, 1)).shape[1]
    sizes = Sizes(features.shape[1], num_classes, seen, slots)
    memory = chosen.memory(sizes, torch.Generator())
    labels = torch.arange(layout.labeled) % seen

    def work() -> None:
        features.grad = None
        step = Step(
            output=head(features),
            labels=labels,
            layout=layout,
            num_seen=seen,
            memory=memory,
            generator=step_rng(0, 0, "benchmark"),
            progress=0.5,
        )
        total(chosen.charge(step, chosen.decide(step))).backward()

    work()
    return work


def main(repeats: int) -> None:
    data = images()
    worst, added = 0.0, 0.0
    for backbone, part in (("compact", 1), ("resnet18", 8)):
        for method in ("orca+pf", "fixmatch-sigmoid+pf"):
            value = experiment(method, backbone, part)
            views, recipe = value.method.traits.views, value.recipe
            rows = len(views.labeled) * recipe.labeled_batch
            rows += len(views.unlabeled) * recipe.unlabeled_batch
            stepping, model = steps(value, data), bare(value, rows)
            next(stepping)
            model()
            alone, whole = seconds(model, lambda s=stepping: next(s), repeats=repeats)  # type: ignore[misc]
            worst = max(worst, whole / alone)
            print(f"{backbone}, {method}, {rows} images: step / bare model {whole / alone:.3f}")
            if method == "orca+pf":
                width = value.backbone.num_features
                layout = Layout(recipe.labeled_batch, recipe.unlabeled_batch, 2, 2)
                features = torch.randn(layout.rows, width, requires_grad=True)
                base, fission = seconds(
                    losses("orca", CosineHead(width, 10), features, layout),
                    losses("orca+pf", FissionHead(width, 10, 5), features, layout),
                    repeats=5 * repeats,
                )
                added = max(added, (fission - base) / whole)
                print(f"{backbone}: fission adds {(fission - base) / whole:.2%} of the step")
    print("C x V: time of head and losses over that of 10 x 1, over the growth of C V")
    layout = Layout(32, 96, 2, 2)
    features = torch.randn(layout.rows, 256, requires_grad=True)
    first = 0.0
    for classes, prototypes in ((10, 1), (10, 32), (100, 1), (100, 32), (1000, 1), (1000, 32)):
        work = losses("orca+pf", FissionHead(256, classes, prototypes), features, layout)
        (took,) = seconds(work, repeats=repeats)
        first = first or took
        print(f"{classes:>5} x {prototypes:<3} {took / first / (classes * prototypes / 10):.3f}")
    print(f"worst step / bare model {worst:.3f}; fission adds at most {added:.2%} of a step")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
