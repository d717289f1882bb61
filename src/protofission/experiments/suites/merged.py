"""The suite of merged classes: what fission is worth where classes truly have sub-classes."""

from __future__ import annotations

from protofission.core.errors import require
from protofission.experiments.suite import Suite
from protofission.experiments.suites.setting import Setting

SEEN, LABELS = 50, 100
"""Fine classes that are seen, the same for every number that is merged, and labels of each."""
MERGED = (1, 2, 5, 10)
"""Fine classes under one label. Each divides SEEN, so that the strangers stay the same."""

_FIVE = ("head.prototypes=5", "head.init=data")
_NO_FORCES = ("method.consistency_weight=0", "method.diversity_weight=0")
_WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "supervised, V = 1": ("supervised", ("head.kind=cosine", "head.init=data")),
    "supervised+pf": ("supervised+pf", (*_FIVE, "method.diversity_weight=0.3")),
    "supervised, k-means starts": ("supervised+pf", (*_FIVE, *_NO_FORCES)),
    "orca, V = 1": ("orca", ()),
    "orca+pf": ("orca+pf", (*_FIVE, "method.diversity_weight=0.3")),
    "orca, k-means starts": ("orca+pf", (*_FIVE, *_NO_FORCES)),
}
"""Method and options by row. With k-means starts, each class has five prototypes that start at the
k-means centers of its features, and no force but the risk of the nearest."""


def merged(setting: Setting) -> Suite:
    """Accuracy and rejection along the number of fine classes under one label."""
    require(
        "cifar100" in setting.datasets,
        "The suite merged wants CIFAR-100, which has fine classes to merge: name --dataset "
        "cifar100.",
    )
    cases = [
        setting.case(
            row,
            method,
            "cifar100",
            "data.split=coarse",
            f"data.split.merge={number}",
            f"data.split.num_seen={SEEN // number}",
            f"data.split.labels_per_class={LABELS * number}",
            *options,
            panel="cifar100, merged",
            x=number,
        )
        for number in MERGED
        for row, (method, options) in _WAYS.items()
    ]
    return Suite(
        "merged",
        "Classes merged on purpose",
        tuple(cases),
        ("auc", "seen", "sub_nmi", "cluster_nmi", "all_strict", "effective"),
        pairs=tuple(
            (f"{base}{end}", f"{base}, V = 1")
            for base in ("supervised", "orca")
            for end in ("+pf", ", k-means starts")
        ),
        axis="fine classes under one label",
        note="The first 50 fine classes of CIFAR-100 are seen, with 5000 labels, and the other 50 "
        "are strangers; neighbors in the list of classes, which are not alike, share a label.",
    )
