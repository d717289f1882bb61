"""Presets on features of a frozen encoder (`protofission embed`): an adapter and the head learn."""

from __future__ import annotations

from protofission.training.presets.literal import LITERAL
from protofission.training.presets.protocol import BATCH_OPTIONS, DATASET_OPTIONS, SPLIT_OPTIONS
from protofission.training.presets.tables import Preset, Table

FEATURES_RECIPES: Table = {
    "all": (
        "data.dataset=none",  # whatever the store is of
        "backbone=adapter-linear",
        "judging.every=5",
        "recipe.epochs=30",
        "recipe.trainable_stages=none",
    ),
    "pretrains": (
        "data.pool_has_labeled=true",
        "recipe.epoch=pool",
        "recipe.unlabeled_batch=512",
        "recipe.schedule=cosine",
    ),
    # FixMatch's learning rate: with 0.1 a linear head diverges on CIFAR-100.
    "predicts": ("recipe.learning_rate=0.03",),
    "base has prototypes": ("recipe.learning_rate=0.1",),
    # With 0.1, the labels take the features away from clusters of novel classes.
    "dtc": ("recipe.learning_rate=0.01",),
    # Of features that may be negative, hardly a pair has the same largest ones.
    "rankstats": ("backbone=adapter-rectified",),
    # It looks at features as they are.
    "pim": ("backbone=adapter-none", "recipe.trainable_stages=0"),
}
"""Recipes for features; the views are the store's."""

FEATURES_TUNING: Table = {
    # With a random start and ORCA's weight of 1, novel classes settle on seen heads, on CIFAR-100
    # nearly all of them (docs/features.md).
    "prototypes": ("head.init=data",),
    "orca": ("method.entropy_weight=2",),
    # With a warm-up, its head learns to be sure of strangers before they can be taken for OOD
    # (docs/results.md).
    "fixmatch-sigmoid": ("method.literal=true",),
    # From random directions it takes many times as long to come near the features.
    "cpl": ("head.init=data",),
    "p-odn": ("head.init=data",),
    "pmal": ("head.init=data",),
    # Of more than three largest features, hardly a pair has the same ones. And of the linear head's
    # heads, most novel classes share one (`all` 48 against 64, seed 0).
    "rankstats": ("method.top=3", "head.kind=cosine", "head.init=data"),
    # Stores have no views of SimCLR unless asked for.
    "gcd": ("method.view=strong",),
    "simclr-kmeans": ("method.view=strong",),
    # With the authors' 2048 hidden units, the projection is most of a step on a CPU.
    "simgcd": ("method.projection_width=256",),
    "protogcd": ("method.projection_width=256",),
    # Some hundred steps in the place of fifteen hundred.
    "step": ("method.projection_rate=0.003",),
    "with fission": ("head.kind=fission",),  # around RankStats too
}
"""Changes of the methods' defaults."""

_SUMMARY = "Features of a frozen encoder (`protofission embed`): an adapter and the head learn."

FEATURES_PRESETS = {
    # Images of one's own seldom have an official test set, which the mismatched split wants.
    "features": Preset(_SUMMARY, (FEATURES_RECIPES, BATCH_OPTIONS, FEATURES_TUNING)),
    **{
        f"features/{name}": Preset(
            _SUMMARY, (FEATURES_RECIPES, dataset, SPLIT_OPTIONS, BATCH_OPTIONS, FEATURES_TUNING)
        )
        for name, dataset in DATASET_OPTIONS.items()
    },
    **{
        f"features/{name}/literal": Preset(
            "Features of a frozen encoder, the paper's words to the letter and the methods' own "
            "heads.",
            (FEATURES_RECIPES, dataset, SPLIT_OPTIONS, BATCH_OPTIONS, LITERAL),
        )
        for name, dataset in DATASET_OPTIONS.items()
    },
}
