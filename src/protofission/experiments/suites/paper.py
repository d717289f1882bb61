"""The paper's tables and figures as suites, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from protofission.core.errors import require
from protofission.experiments.suite import Published, Suite
from protofission.experiments.suites.readings import readings
from protofission.experiments.suites.setting import Setting
from protofission.methods import METHODS

RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
SLOTS = (1, 2, 5, 10)
ACCURACIES = ("seen", "novel_orca", "novel_strict", "all_orca", "all_strict", "auc", "effective")


def _fractions(rows: dict[str, dict[str, tuple[float, float, float]]]) -> Published:
    """Turn the paper's (seen, novel, all) in percent, by ORCA's protocol, into fractions by key."""
    names = ("seen", "novel_orca", "all_orca")
    return {
        (row, dataset): {name: value / 100 for name, value in zip(names, numbers, strict=True)}
        for row, panels in rows.items()
        for dataset, numbers in panels.items()
    }


def _table_1() -> Published:
    datasets = ("cifar10", "cifar100", "imagenet100")
    rows = {
        "fixmatch": ((71.5, 50.4, 49.5), (39.6, 23.5, 20.3), (65.8, 36.7, 34.9)),
        "ds3l": ((77.6, 45.3, 40.2), (55.1, 23.7, 24.0), (71.2, 32.5, 30.8)),
        "cgdl": ((72.3, 44.6, 39.7), (49.3, 22.5, 23.5), (67.3, 33.8, 31.9)),
        "dtc": ((53.9, 39.5, 38.3), (31.3, 22.9, 18.3), (25.6, 20.8, 21.3)),
        "rankstats": ((86.6, 81.0, 82.9), (36.4, 28.4, 23.1), (47.3, 28.7, 40.3)),
        "simclr-kmeans": ((58.3, 63.4, 51.7), (28.6, 21.1, 22.3), (39.0, 35.7, 36.9)),
        "orca, as its authors report it": (
            (88.2, 90.4, 89.7),
            (66.9, 43.0, 48.1),
            (89.1, 72.1, 77.8),
        ),
        "orca": ((88.1, 87.7, 87.8), (66.5, 41.0, 46.6), (89.4, 69.1, 75.5)),
        "orca+pf": ((88.6, 88.8, 88.7), (66.0, 41.3, 47.9), (90.0, 74.4, 79.6)),
    }
    return _fractions(
        {row: dict(zip(datasets, numbers, strict=True)) for row, numbers in rows.items()}
    )


TABLE_1 = _table_1()
"""tab:ood; `orca` as the paper's authors trained it."""

ABLATION = _fractions(
    {
        "full": {"cifar10": (88.60, 88.81, 88.74), "cifar100": (65.99, 41.34, 47.92)},
        "without prototypes": {
            "cifar10": (88.06, 87.71, 87.82),
            "cifar100": (66.45, 40.98, 46.59),
        },
        "without L_cst": {"cifar10": (88.02, 77.34, 76.04), "cifar100": (70.93, 35.72, 40.22)},
        "without L_div": {"cifar10": (87.80, 88.51, 88.27), "cifar100": (65.53, 38.81, 45.87)},
    }
)
"""tab:ablation."""


def _of(published: Published, datasets: tuple[str, ...]) -> Published:
    panels = {Path(dataset).name for dataset in datasets}
    return {place: numbers for place, numbers in published.items() if place[1] in panels}


def table1(setting: Setting) -> Suite:
    """Every method on ORCA's split, beside the paper's table."""
    rows = [name for name, method in METHODS.items() if method.traits.predicts]
    cases = [
        setting.case(row, row, dataset, *_on_orcas_split(row))
        for dataset in setting.datasets
        for row in rows
    ]
    return Suite(
        "table1",
        "Every method on ORCA's split",
        tuple(cases),
        ACCURACIES,
        pairs=_fissions(rows),
        published=_of(TABLE_1, (*setting.datasets, "imagenet100")),
        note="The paper's numbers are of a ResNet that learns from images, by ORCA's protocol; "
        "its ORCA is the one that its authors trained again.",
    )


def _on_orcas_split(method: str) -> tuple[str, ...]:
    return () if METHODS[method].traits.has_novel_heads else ("data.split=orca",)


def _fissions(rows: list[str]) -> tuple[tuple[str, str], ...]:
    """Each method with fission, and its base."""
    return tuple((row, row.removesuffix("+pf")) for row in rows if row.endswith("+pf"))


def ablation(setting: Setting) -> Suite:
    """PF+ORCA with one of its parts left out."""
    parts: dict[str, tuple[str, tuple[str, ...]]] = {
        "full": ("orca+pf", ()),
        "without prototypes": ("orca", ()),
        "without L_cst": ("orca+pf", ("method.consistency_weight=0",)),
        "without L_div": ("orca+pf", ("method.diversity_weight=0",)),
        "without L_ldiv": ("orca+pf", ("method.local_diversity_weight=0",)),
        "L_div of weight 0.3": ("orca+pf", ("method.diversity_weight=0.3",)),
    }
    return Suite(
        "ablation",
        "PF+ORCA with one of its parts left out",
        tuple(
            setting.case(row, method, dataset, *options)
            for dataset in setting.datasets
            for row, (method, options) in parts.items()
        ),
        ACCURACIES,
        pairs=tuple((row, "full") for row in parts if row != "full"),
        published=_of(ABLATION, setting.datasets),
        note="Without L_div, L_ldiv is left out too, as it stands in the same bracket. The paper's "
        "weight of L_div is 0.001 on CIFAR-10 and 0.01 on CIFAR-100; 0.3 is ours.",
    )


def mismatch(setting: Setting) -> Suite:
    """AUC by the share of the pool that is novel, with and without fission."""
    methods = ["fixmatch-sigmoid", "fixmatch-sigmoid+pf", "orca", "orca+pf"]
    return Suite(
        "mismatch",
        "ID-OOD AUC by the share of the pool that is novel",
        tuple(
            setting.case(
                method,
                method,
                dataset,
                f"data.split={split}",
                f"data.split.ratio={ratio}",
                "recipe.steps_per_epoch=50",
                panel=f"{dataset}, {split}",
                x=ratio,
            )
            for dataset in setting.datasets
            for split in ("ds3l", "controlled")
            for ratio in RATIOS
            for method in methods
        ),
        ("auc", "seen", "fpr95"),
        pairs=_fissions(methods),
        axis="share of the pool that is novel, r",
        note="In `ds3l` the pool keeps its size, so that a higher share leaves fewer images of "
        "known classes; in `controlled` novel images are added to the same known ones. An epoch "
        "is 50 steps for every method and share, about a pass over the pool of `ds3l`.",
    )


def subclasses(setting: Setting) -> Suite:
    """Prototypes against the finer classes of CIFAR-100, of which training knows nothing."""
    require(
        "cifar100" in setting.datasets,
        "The suite subclasses wants CIFAR-100, which has coarse and fine labels: "
        "name --dataset cifar100.",
    )
    shown = "orca+pf, V = 5"
    cases = [
        setting.case(shown, "orca+pf", dataset, *_COARSE, panel=f"{dataset}, orca")
        for dataset in setting.datasets
        if dataset != "cifar100"
    ]
    for method in ("orca+pf", "supervised+pf"):
        for slots in SLOTS:
            options = ("data.split=coarse", f"head.prototypes={slots}", *_COARSE)
            row = f"{method}, V = {slots}"
            cases.append(setting.case(row, method, "cifar100", *options, panel="cifar100, coarse"))
    return Suite(
        "subclasses",
        "What prototypes find within classes",
        tuple(cases),
        (
            "sub_nmi",
            "cluster_nmi",
            "nmi_gain",
            "sub_accuracy",
            "cluster_accuracy",
            "effective",
            "seen",
        ),
        note="Training knows the coarse classes. L_div has a weight of 0.3: with the paper's, "
        "one prototype does most of the work. A test image is put to the nearest prototype of its "
        "own coarse class, or into the cluster that k-means finds for it in the same "
        "features of the same test images, for as many clusters; both are held against its fine "
        "classes. Chance gives an accuracy of 20, 22, 24 and 15 percent for V = 1, 2, 5 "
        "and 10.",
        pictured=(shown,),
    )


_COARSE = ("method.diversity_weight=0.3",)
"""The weight of L_div."""


SUITES: dict[str, Callable[[Setting], Suite]] = {
    "table1": table1,
    "ablation": ablation,
    "mismatch": mismatch,
    "subclasses": subclasses,
    "readings": readings,
}
