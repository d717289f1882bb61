"""The paper's protocol, whatever the backbone: splits, views, batches and weights of fission."""

from __future__ import annotations

from protofission.training.presets.tables import Options, Table

BATCH_OPTIONS: Table = {
    "clusters": (
        "data.pool_has_labeled=true",  # it looks at no label, so labeled images are as good
        "recipe.epoch=pool",
        "recipe.unlabeled_batch=512",
        "recipe.schedule=cosine",
    ),
    # FixMatch's batches. An epoch is a pass over the pool. ORCA's, 128 + 384, are the defaults.
    "rejects": ("recipe.epoch=pool", "recipe.labeled_batch=64", "recipe.unlabeled_batch=448"),
    # Its authors' batch: the work of its net grows with the square.
    "openldn": ("recipe.labeled_batch=50", "recipe.unlabeled_batch=150"),
}

SPLIT_OPTIONS: Table = {
    # The paper's mismatched split. ORCA's is the default.
    "rejects": ("data.split=ds3l",),
}

ORCA_VIEWS: Table = {
    "discovers": ("data.views=natural-orca",),
    "clusters": ("data.views=natural-orca",),
}

_MANY_CLASSES: Options = ("method.diversity_weight=0.01", "method.consistency_weight=0.3")
"""The paper's weights of the two forces for a hundred classes; CIFAR-10's are the defaults."""

DATASET_OPTIONS: dict[str, Table] = {
    "cifar10": {"all": ("data.dataset=cifar10",)},
    "cifar100": {"all": ("data.dataset=cifar100",), "with fission": _MANY_CLASSES},
    "imagenet100": {"all": ("data.dataset=imagenet100",), "with fission": _MANY_CLASSES},
}
