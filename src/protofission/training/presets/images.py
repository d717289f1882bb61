"""Presets on images: the paper's protocol, FixMatch's recipe, and a size that two cores finish."""

from __future__ import annotations

from protofission.training.presets.literal import LITERAL
from protofission.training.presets.protocol import (
    BATCH_OPTIONS,
    DATASET_OPTIONS,
    ORCA_VIEWS,
    SPLIT_OPTIONS,
)
from protofission.training.presets.tables import Options, Preset, Table

# Pretraining

_PRETRAINING_OPTIONS: Options = (
    # Every training image; their labels are for the neighbors' accuracy only.
    "data.split=full",
    "data.pool_has_labeled=true",
    "head.norm=true",
    "judging.every=10",
    "recipe.epoch=pool",
    "recipe.schedule=cosine",
    "recipe.trainable_stages=none",
)

PRETRAINING: Table = {
    "pretrains": (
        *_PRETRAINING_OPTIONS,
        "recipe.epochs=500",
        "recipe.unlabeled_batch=512",
        "recipe.optimizer=lars",
        "recipe.learning_rate=1",
        "recipe.warmup_epochs=10",
        "recipe.weight_decay=1e-6",
        "recipe.decay_vectors=false",
    ),
}
"""Pretraining after SimCLR's recipe for CIFAR, which takes 1000 epochs and a temperature of 0.5."""

CPU_PRETRAINING: Table = {
    "pretrains": (
        *_PRETRAINING_OPTIONS,
        "data.views=natural-24",
        "recipe.epochs=36",
        "recipe.unlabeled_batch=256",
        "recipe.learning_rate=0.2",
        "recipe.warmup_epochs=1",
    ),
}

# The paper's protocol

RESNET18: Table = {
    "all": ("backbone=resnet18",),
    "predicts": ("recipe.frozen_statistics=orca",),
}
"""ORCA's recipe, for 200 epochs. The pretrained weights are the user's: `backbone.weights=...`, as
`protofission pretrain` makes them."""

RESNET50: Table = {
    "all": ("backbone=resnet50", "backbone.stem=imagenet", "backbone.pixels=imagenet"),
    "predicts": (
        "recipe.frozen_statistics=orca",
        "recipe.epochs=90",
        "recipe.milestones=0.3333333333333333,0.6666666666666666",
        "recipe.weight_decay=1e-4",
    ),
}

# FixMatch's own recipe

WIDE_RESNET: Table = {
    "all": ("backbone=wrn-28-2",),
    "predicts": (
        "recipe.steps=1048576",  # 2^20
        "recipe.steps_per_epoch=1024",
        "recipe.epochs=none",
        "recipe.learning_rate=0.03",
        "recipe.schedule=fixmatch",
        "recipe.nesterov=true",
        "recipe.decay_vectors=false",
        "recipe.ema=0.999",
        "recipe.trainable_stages=none",
    ),
}
WIDER: Table = {
    "all": ("backbone.width=128",),
    "predicts": ("recipe.weight_decay=1e-3",),
}
"""WRN-28-8, for CIFAR-100."""

# A size that two cores finish

COMPACT: Table = {
    "all": ("backbone=compact",),
    "predicts": ("recipe.epochs=20", "recipe.learning_rate=0.05", "judging.every=5"),
}


def _pixels(dataset: str) -> Table:
    """Standardize the pixels by a data set's mean and deviation."""
    return {"all": (f"backbone.pixels={dataset}",)}


def _from_packaged_weights(dataset: str) -> Table:
    """Start from the packaged weights of a data set; what pretrains starts from none."""
    return {"predicts": (f"backbone.weights=simclr-{dataset}",)}


def _protocol_on(dataset: str, *tables: Table) -> tuple[Table, ...]:
    """The protocol on a data set; its batches come last, as they are the methods' own."""
    return (DATASET_OPTIONS[dataset], *tables, SPLIT_OPTIONS, ORCA_VIEWS, BATCH_OPTIONS)


_PAPER_TABLES = {
    "cifar10": _protocol_on("cifar10", RESNET18, _pixels("cifar10"), PRETRAINING),
    "cifar100": _protocol_on("cifar100", RESNET18, _pixels("cifar100"), PRETRAINING),
    "imagenet100": _protocol_on("imagenet100", RESNET50, PRETRAINING),
}
_FIXMATCH_TABLES = {
    "cifar10": _protocol_on("cifar10", WIDE_RESNET, _pixels("cifar10"), PRETRAINING),
    "cifar100": _protocol_on("cifar100", WIDE_RESNET, WIDER, _pixels("cifar100"), PRETRAINING),
}
_CPU_TABLES = {
    name: _protocol_on(name, COMPACT, _from_packaged_weights(name), CPU_PRETRAINING)
    for name in ("cifar10", "cifar100")
}

CPU_PRESETS = {
    f"cpu/{dataset}": Preset(
        "The paper's protocol at a size that two cores finish: the compact net, our own weights.",
        tables,
    )
    for dataset, tables in _CPU_TABLES.items()
}
PAPER_PRESETS = {
    f"paper/{dataset}": Preset(
        "The paper's protocol: a SimCLR-pretrained ResNet whose last stage and head learn.", tables
    )
    for dataset, tables in _PAPER_TABLES.items()
}
PAPER_LITERAL_PRESETS = {
    f"{name}/literal": Preset(
        "The paper's protocol, with its words to the letter.", (*preset.tables, LITERAL)
    )
    for name, preset in PAPER_PRESETS.items()
}
FIXMATCH_PRESETS = {
    f"fixmatch/{dataset}": Preset(
        "FixMatch's own recipe: a Wide-ResNet from scratch, 2^20 steps, a moving average.", tables
    )
    for dataset, tables in _FIXMATCH_TABLES.items()
}
