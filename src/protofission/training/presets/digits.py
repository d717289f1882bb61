"""scikit-learn's digits: the demo's presets."""

from __future__ import annotations

from protofission.training.presets.literal import LITERAL
from protofission.training.presets.tables import Preset, Table

_WITHOUT_LABELS = (
    "data.pool_has_labeled=true",
    "recipe.epochs=20",
    "recipe.epoch=pool",
    "recipe.unlabeled_batch=256",
    "recipe.learning_rate=0.2",
    "recipe.schedule=cosine",
    "recipe.trainable_stages=none",
)
"""All images are the pool's, and the whole backbone learns."""

DIGITS_RECIPES: Table = {
    "pretrains": _WITHOUT_LABELS,
    "clusters": _WITHOUT_LABELS,
    "discovers": (
        "recipe.epochs=30",
        "recipe.labeled_batch=64",
        "recipe.unlabeled_batch=192",
        "recipe.learning_rate=0.05",
    ),
    "rejects": (
        "recipe.epochs=20",
        "recipe.epoch=pool",
        "recipe.labeled_batch=32",
        "recipe.unlabeled_batch=224",
        "recipe.learning_rate=0.05",
    ),
    # It looks at features as they are.
    "pim": ("recipe.trainable_stages=0",),
}
"""Recipes that take seconds on a laptop."""

DIGITS_TUNING: Table = {
    # With 0.001, one of the five prototypes does all the work.
    "with fission": ("method.diversity_weight=0.3",),
    # With 1 and 0.5, a novel digit settled on a seen head in every other run of these few hundred
    # steps. From random prototypes, two novel digits shared a head in some run.
    "orca": ("method.entropy_weight=3", "method.margin_cap=0.2", "head.init=data"),
    # No warm-up and no ignore band: with them, the linear head learns to be sure of strangers
    # before they can be taken for OOD.
    "fixmatch-sigmoid": ("method.literal=true",),
    # One largest feature, not five: of the net's 64 features, five are the same in one pair of a
    # thousand, so that nearly all images of a class are told apart.
    "rankstats": ("method.top=1",),
    # A hundred steps of the net in the place of twelve thousand.
    "openldn": ("method.net_rate=0.01",),
    # With the authors' 2048 hidden units, the projection is most of a step on a CPU.
    "simgcd": ("method.projection_width=256",),
    "protogcd": ("method.projection_width=256",),
    # A hundred steps in the place of fifteen hundred.
    "step": ("method.projection_rate=0.02",),
}
"""Changes of the methods' defaults, the same for a base and its version with fission."""

DIGITS_PRESETS = {
    "digits": Preset(
        "scikit-learn's digits, 0-4 seen, 5-9 novel: the demo's recipe, seconds on a laptop.",
        (DIGITS_RECIPES, DIGITS_TUNING),
    ),
    "digits/literal": Preset(
        "The digits with the paper's words and weights to the letter, in the demo's training time.",
        (DIGITS_RECIPES, LITERAL),
    ),
}
