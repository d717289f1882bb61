"""The paper's tables and figures as suites."""

from __future__ import annotations

from collections.abc import Callable

from protofission.core.errors import require
from protofission.experiments.suite import Suite
from protofission.experiments.suites.merged import merged
from protofission.experiments.suites.paper_numbers import ABLATION, TABLE_1, published_on
from protofission.experiments.suites.readings import readings
from protofission.experiments.suites.setting import Setting
from protofission.methods import METHODS, title_of

RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
SLOTS = (1, 2, 5, 10)
ACCURACIES = ("seen", "novel_orca", "novel_strict", "all_orca", "all_strict", "auc", "effective")


def table1(setting: Setting) -> Suite:
    """Every method on ORCA's split, beside the paper's table."""
    rows = [name for name, method in METHODS.items() if method.traits.predicts]
    cases = [
        setting.case(title_of(row), row, dataset, *_on_orcas_split(row))
        for dataset in setting.datasets
        for row in rows
    ]
    return Suite(
        "table1",
        "Every method on ORCA's split",
        tuple(cases),
        ACCURACIES,
        pairs=_fissions(rows),
        published=published_on(TABLE_1, (*setting.datasets, "imagenet100")),
        note="The paper's numbers are of a ResNet that learns from images, by ORCA's protocol; "
        "its ORCA is the one that its authors trained again.",
    )


def _on_orcas_split(method: str) -> tuple[str, ...]:
    return () if METHODS[method].traits.has_novel_heads else ("data.split=orca",)


def _fissions(rows: list[str]) -> tuple[tuple[str, str], ...]:
    """Each method with fission, and its base."""
    return tuple(
        (title_of(row), title_of(row.removesuffix("+pf"))) for row in rows if row.endswith("+pf")
    )


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
        published=published_on(ABLATION, setting.datasets),
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
    "merged": merged,
}
