"""The paper's words to the letter, where a method's default departs from them (docs/method.md)."""

from __future__ import annotations

from protofission.training.presets.tables import Table

LITERAL: Table = {
    "with fission": ("method.local_diversity_weight=0", "method.diversity_min_samples=1"),
    "orca": (
        "method.entropy_on=max",
        "method.pair_space=logit",
        "method.pair_among=unlabeled",
        "method.pair_labeled=false",
    ),
    "fixmatch-sigmoid": ("method.literal=true",),
}
