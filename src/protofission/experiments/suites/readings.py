"""The suite of open choices: each choice that the paper leaves open, one changed at a time."""

from __future__ import annotations

from pathlib import Path

from protofission.experiments.suite import Case, Suite
from protofission.experiments.suites.setting import Setting
from protofission.training.experiment import Experiment

ORCA_READINGS: dict[str, tuple[str, ...]] = {
    "1 L_div of each sample": ("method.diversity_reduce=per_sample",),
    "2 single samples in L_div": ("method.diversity_min_samples=1",),
    "2 L_div of a running mean": ("method.diversity_scope=ema",),
    "3 without L_ldiv": ("method.local_diversity_weight=0",),
    "3 L_ldiv summed over pairs": ("method.local_diversity_reduction=sum",),
    "4 slots against the nearest slots": ("method.consistency_negatives=max_slot",),
    "4 slots against all slots": ("method.consistency_negatives=all",),
    "6 logits at T = 5": ("head.temperature=5",),
    "6 logits at T = 20": ("head.temperature=20",),
    "6 assignments at T = 30": ("method.assign_temperature=30",),
    "7 margin on the max-logits alone": ("method.margin_on=max",),
    "7 margin of at most 0.2 T": ("method.margin_cap=0.2",),
    "8 partners by logits": ("method.pair_space=logit",),
    "8 partners by probabilities": ("method.pair_space=prob",),
    "8 partners among unlabeled images": ("method.pair_among=unlabeled",),
    "9 no partners of labeled images": ("method.pair_labeled=false",),
    "10 partners without gradient": ("method.pair_detach=true",),
    "11 entropy on the max-logits alone": ("method.entropy_on=max",),
    "11 entropy of weight 1": ("method.entropy_weight=1",),
    "11 entropy of weight 2": ("method.entropy_weight=2",),
    "11 entropy of weight 3": ("method.entropy_weight=3",),
    "19 an epoch is a pass over the pool": ("recipe.epoch=pool",),
    "22 ID by all heads": ("judging.auc_heads=all",),
    "22 ID by energy": ("judging.ood_score=energy",),
    "23 hard classes from 0.8 on": ("method.hard_threshold=0.8",),
    "23 L_div of seen classes alone": ("method.diversity_classes=seen",),
    "24 weight decay on delta": ("recipe.decay_delta=true",),
    "24 lambda starts at 0.12": ("head.delta=-1",),
    "24 lambda starts at 0.88": ("head.delta=1",),
    "24 prototypes from random directions": ("head.init=random",),
    "24 prototypes from the data": ("head.init=data",),
    "26 one prototype for a novel class": ("head.novel_prototypes=1",),
    "lambda_cst = 0.1": ("method.consistency_weight=0.1",),
    "lambda_cst = 1": ("method.consistency_weight=1",),
    "lambda_div = 0.1": ("method.diversity_weight=0.1",),
    "lambda_div = 1": ("method.diversity_weight=1",),
    "Euclidean, from a random start, a tenth of the learning rate": (
        "head.similarity=euclidean",
        "head.init=random",
        "recipe.learning_rate=0.01",
    ),
    "V = 2": ("head.prototypes=2",),
    "V = 10": ("head.prototypes=10",),
    "literal": (
        "method.local_diversity_weight=0",
        "method.diversity_min_samples=1",
        "method.entropy_on=max",
        "method.entropy_weight=1",
        "method.pair_space=logit",
        "method.pair_among=unlabeled",
        "method.pair_labeled=false",
        "head.init=random",
    ),
}
"""PF+ORCA, one open choice changed at a time; the numbers are those of docs/method.md. What is the
default already is left out."""

SIGMOID_READINGS: dict[str, tuple[str, ...]] = {
    "13 binary risks averaged over classes": ("method.bce_reduction=mean",),
    "14 OOD charged to each slot": ("method.ood_on=slots",),
    "14 OOD of weight 0.5": ("method.ood_weight=0.5",),
    "15 no warm-up, no band": ("method.literal=true",),
    "15 a warm-up, and OOD below 0.5": ("method.literal=false",),
    "15 a warm-up, and OOD below 0.25": ("method.literal=false", "method.ood_below=0.25"),
    "15 no warm-up, OOD below 0.5": ("method.literal=false", "method.ood_warmup=0"),
    "21 labeled images in the pool": ("data.pool_has_labeled=true",),
    "22 ID by energy": ("judging.ood_score=energy",),
    "b = 3": ("head.offset=3",),
    "thr = 0.8": ("method.threshold=0.8",),
    "lambda_cst = 0.1": ("method.consistency_weight=0.1",),
    "lambda_div = 0.1": ("method.diversity_weight=0.1",),
}
"""PF+FixMatch-Sigmoid on the mismatched split, r = 0.5."""


ORCA_BASES: dict[str, tuple[str, ...]] = {
    "orca": (),
    "orca, 1.6 times the entropy's weight": ("method.entropy_weight=3.2",),
}
SIGMOID_BASES: dict[str, tuple[str, ...]] = {
    "fixmatch-sigmoid": (),
    "fixmatch-sigmoid, 17 cosine head": ("head.kind=cosine",),
}
"""The methods without fission, as they are and on terms that are nearer to fission's: the weight of
a regularizer that is charged to the slots too, and the same similarity."""


def readings(setting: Setting) -> Suite:
    """Each open choice of the method, one changed at a time: which ones matter."""
    cases: list[Case] = []
    pairs: list[tuple[str, str]] = []
    for method, split, changes, bases in (
        ("orca+pf", ("data.split=orca",), ORCA_READINGS, ORCA_BASES),
        (
            "fixmatch-sigmoid+pf",
            ("data.split=ds3l", "data.split.ratio=0.5"),
            SIGMOID_READINGS,
            SIGMOID_BASES,
        ),
    ):
        base = method.removesuffix("+pf")
        ways = {method: (method, ())} | {name: (base, options) for name, options in bases.items()}
        ways |= {f"{method}: {name}": (method, options) for name, options in changes.items()}
        for dataset in setting.datasets:
            panel = f"{Path(dataset).name}, {split[0].removeprefix('data.split=')}"
            known: dict[Experiment, Case] = {}
            for row, (own, options) in ways.items():
                case = setting.case(row, own, dataset, *split, *options, panel=panel)
                known.setdefault(case.experiment(0), case)
            cases += known.values()
            pairs += [(case.row, method) for case in known.values() if case.row != method]
    return Suite(
        "readings",
        "Open choices, one changed at a time",
        tuple(cases),
        ("all_strict", "seen", "novel_strict", "auc", "effective"),
        pairs=tuple(dict.fromkeys(pairs)),
        note="Differences are to the same method with its defaults. A number before a reading is "
        "that of the table of open choices in docs/method.md. Among so many intervals some miss 0 "
        "by chance: of twenty, one.",
    )
