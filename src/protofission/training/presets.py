"""Named experiments. A preset is a function of a method's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from protofission.core.errors import require, unknown
from protofission.data.datasets import DataSpec
from protofission.data.splits import spec_of
from protofission.methods import (
    DTC,
    GCD,
    Cpl,
    FixMatchSigmoid,
    Method,
    OpenLDN,
    Orca,
    RankStats,
    SimCLRKMeans,
    SimGCD,
    StepOOD,
    WithFission,
    method_named,
)
from protofission.models.adapters import ADAPTERS
from protofission.models.backbones import backbone_named
from protofission.system.distributed import best_accelerator
from protofission.training.experiment import Experiment, Judging, Recipe, experiment_of

PROJECTION = 256
"""Hidden units of SimGCD's projection on a CPU: with the authors' 2048, it is most of a step."""


def digits(name: str) -> Experiment:
    """scikit-learn's digits, 0-4 seen, 5-9 novel: the demo's recipe, seconds on a laptop.

    What differs from the methods' defaults is the same for a base and its version with fission:
    - ORCA: an entropy weight of 3 and a margin of at most 0.2 T. With 1 and 0.5, a novel digit
      settled on a seen head in every other run of these few hundred steps. Prototypes start from
      the data, as on features: from random ones, two novel digits shared a head in some run.
    - FixMatch-Sigmoid: literal, that is, no warm-up and no ignore band. With them, the linear head
      learns to be sure of strangers before they can be taken for OOD.
    - RankStats: one largest feature, not five. Of the net's 64 features, five are the same in one
      pair of a thousand, so that nearly all images of a class are told apart.
    Fission has a diversity weight of 0.3: with 0.001, one of the five prototypes does all the work.
    """
    experiment = experiment_of(name)
    method = experiment.method
    if not method.traits.views.labeled:
        return replace(
            experiment,
            data=DataSpec(pool_has_labeled=True),
            recipe=Recipe(
                epochs=20,
                epoch="pool",
                unlabeled_batch=256,
                learning_rate=0.2,
                schedule="cosine",
                trainable_stages=None,
            ),
        )
    if method.traits.novel != "reject":
        recipe = Recipe(epochs=30, labeled_batch=64, unlabeled_batch=192, learning_rate=0.05)
    else:
        recipe = Recipe(
            epochs=20, epoch="pool", labeled_batch=32, unlabeled_batch=224, learning_rate=0.05
        )
    if isinstance(_base(name), Orca):
        experiment = replace(experiment, head=replace(experiment.head, init="data"))
    return replace(experiment, method=_for_digits(method), recipe=recipe)


def _for_digits(method: Method[Any]) -> Method[Any]:
    match method:
        case WithFission():
            return replace(method, base=_for_digits(method.base), diversity_weight=0.3)
        case Orca():
            return replace(method, entropy_weight=3.0, margin_cap=0.2)
        case FixMatchSigmoid():
            return replace(method, literal=True)
        case RankStats():
            return replace(method, top=1)
        case OpenLDN():  # a hundred steps of the net in the place of twelve thousand
            return replace(method, net_rate=0.01)
        case SimGCD():
            return replace(method, projection_width=PROJECTION)
        case StepOOD():  # a hundred steps in the place of fifteen hundred
            return replace(method, projection_rate=0.02)
        case _:
            return method


def literal(name: str) -> Experiment:
    """The digits with the paper's words and weights to the letter, in the demo's training time."""
    own = experiment_of(name)
    return replace(digits(name), head=own.head, method=literally(own.method))


def literally(method: Method[Any]) -> Method[Any]:
    """A method as the paper's words have it, without our departures."""
    match method:
        case WithFission():
            return replace(
                method,
                base=literally(method.base),
                local_diversity_weight=0.0,
                diversity_min_samples=1,
            )
        case Orca():
            return replace(method, entropy_on="max")
        case FixMatchSigmoid():
            return replace(method, literal=True)
        case _:
            return method


Paper = Literal["cifar10", "cifar100", "imagenet100"]
Cifar = Literal["cifar10", "cifar100"]


def paper(dataset: Paper, name: str) -> Experiment:
    """The paper's protocol: a SimCLR-pretrained ResNet whose last stage and head learn.

    ORCA's recipe, for 200 epochs, on ORCA's split; FixMatch's batches, on the paper's mismatched
    split, an epoch being a pass over the pool. The pretrained weights are the user's:
    `backbone.weights=...`, as `protofission pretrain` makes them.
    """
    large = dataset == "imagenet100"
    backbone = replace(
        backbone_named("resnet50" if large else "resnet18"),
        stem="imagenet" if large else "cifar",
        pixels="imagenet" if dataset == "imagenet100" else dataset,
    )
    experiment = experiment_of(name, backbone=backbone)
    if name == "simclr":
        return _pretraining(experiment, dataset, _SIMCLR)
    recipe = Recipe(frozen_statistics="orca")
    if large:
        recipe = replace(recipe, epochs=90, milestones=(1 / 3, 2 / 3), weight_decay=1e-4)
    return _on(dataset, experiment, recipe)


def fixmatch(dataset: Cifar, name: str) -> Experiment:
    """FixMatch's own recipe: a Wide-ResNet from scratch, 2^20 steps, a moving average."""
    few = dataset == "cifar10"
    backbone = replace(backbone_named("wrn-28-2"), width=32 if few else 128, pixels=dataset)
    experiment = experiment_of(name, backbone=backbone)
    if name == "simclr":
        return _pretraining(experiment, dataset, _SIMCLR)
    recipe = Recipe(
        epochs=None,
        steps=2**20,
        steps_per_epoch=1024,
        learning_rate=0.03,
        schedule="fixmatch",
        nesterov=True,
        weight_decay=5e-4 if few else 1e-3,
        decay_vectors=False,
        ema=0.999,
        trainable_stages=None,
    )
    return _on(dataset, experiment, recipe)


def cpu(dataset: Cifar, name: str) -> Experiment:
    """The paper's protocol at a size that two cores finish: the compact net, our own weights."""
    compact = backbone_named("compact")
    if name == "simclr":
        experiment = experiment_of(name, backbone=compact)
        return _pretraining(experiment, dataset, _CPU_SIMCLR, views="natural-24")
    pretrained = replace(compact, weights=f"simclr-{dataset}")
    experiment = experiment_of(name, backbone=pretrained, judging=Judging(every=5))
    return _on(dataset, experiment, Recipe(epochs=20, learning_rate=0.05))


def features(dataset: Paper | None, name: str) -> Experiment:
    """Features of a frozen encoder (`protofission embed`): an adapter and the head learn.

    ORCA, with and without fission, starts its prototypes from the data and has an entropy weight of
    2. With a random start and 1, novel classes settle on seen heads, on CIFAR-100 nearly all of
    them (docs/features.md). The others have FixMatch's learning rate, as with 0.1 a linear head
    diverges on CIFAR-100, and FixMatch-Sigmoid is literal: with a warm-up, its head learns to be
    sure of strangers before they can be taken for OOD (docs/results.md). CPL starts from the data
    too: from random directions it takes many times as long to come near the features. DTC learns
    slowly: with 0.1, the labels take the features away from clusters of novel classes. RankStats
    has a rectified adapter and three largest features: of features that may be negative, or of more
    of them, hardly a pair has the same ones. And a cosine head that starts from the data: of the
    linear one's heads, most novel classes share one (`all` 48 against 64, seed 0).
    """
    ranked = isinstance(_base(name), RankStats)
    adapter = ADAPTERS["adapter-rectified" if ranked else "adapter-linear"]
    experiment = experiment_of(name, backbone=adapter, judging=Judging(every=5))
    recipe = Recipe(epochs=30, trainable_stages=None)
    if name == "simclr":
        data = DataSpec(dataset, pool_has_labeled=True)
        recipe = replace(recipe, epoch="pool", unlabeled_batch=512, schedule="cosine")
        return replace(experiment, data=data, recipe=recipe)
    experiment = _on(dataset, experiment, recipe)
    data, method = replace(experiment.data, views=None), _for_features(experiment.method)
    experiment = replace(experiment, data=data, method=method)  # the views are the store's
    if isinstance(_base(name), DTC):
        recipe = replace(experiment.recipe, learning_rate=0.01)
        return replace(experiment, recipe=recipe, head=replace(experiment.head, init="data"))
    if isinstance(method, RankStats):
        experiment = replace(experiment, head=replace(experiment.head, kind="cosine"))
    starts = method.traits.has_novel_heads and experiment.head.can_start_from_data
    if starts or isinstance(method, Cpl):
        experiment = replace(experiment, head=replace(experiment.head, init="data"))
    if method.traits.has_novel_heads and _base(name).traits.head.can_start_from_data:
        return experiment
    return replace(experiment, recipe=replace(experiment.recipe, learning_rate=0.03))


def _base(name: str) -> Method[Any]:
    """The method of that name, without fission."""
    method = method_named(name)
    return method.base if isinstance(method, WithFission) else method


def _for_features(method: Method[Any]) -> Method[Any]:
    match method:
        case WithFission():
            return replace(method, base=_for_features(method.base))
        case Orca():
            return replace(method, entropy_weight=2.0)
        case FixMatchSigmoid():
            return replace(method, literal=True)
        case GCD() | SimCLRKMeans():  # stores have no views of SimCLR unless asked for
            return replace(method, view="strong")
        case RankStats():
            return replace(method, top=3)
        case SimGCD():
            return replace(method, projection_width=PROJECTION)
        case StepOOD():  # some hundred steps in the place of fifteen hundred
            return replace(method, projection_rate=0.003)
        case _:
            return method


def features_literally(dataset: Paper, name: str) -> Experiment:
    """Features of a frozen encoder, the paper's words to the letter and the methods' own heads."""
    experiment = features(dataset, name)
    own = experiment_of(name)
    method = _on(dataset, own, experiment.recipe).method
    return replace(experiment, head=own.head, method=literally(method))


_SIMCLR = Recipe(
    epochs=500,
    epoch="pool",
    unlabeled_batch=512,
    optimizer="lars",
    learning_rate=1.0,
    schedule="cosine",
    warmup_epochs=10,
    weight_decay=1e-6,
    decay_vectors=False,
    trainable_stages=None,
)
"""After SimCLR's for CIFAR, which takes 1000 epochs and a temperature of 0.5."""

_CPU_SIMCLR = replace(
    _SIMCLR,
    epochs=36,
    unlabeled_batch=256,
    optimizer="sgd",
    learning_rate=0.2,
    warmup_epochs=1,
    weight_decay=5e-4,
    decay_vectors=True,
)


def _pretraining(
    experiment: Experiment, dataset: str, recipe: Recipe, views: str | None = None
) -> Experiment:
    """Pretraining on every training image; their labels are for the neighbours' accuracy only."""
    data = DataSpec(dataset, split=spec_of("full"), pool_has_labeled=True, views=views)
    head = replace(experiment.head, norm=True)
    return replace(experiment, data=data, head=head, recipe=recipe, judging=Judging(every=10))


def _on(dataset: str | None, experiment: Experiment, recipe: Recipe) -> Experiment:
    """An experiment with a recipe on a data set.

    ORCA's split, views and batches for methods that speak of novel classes; the paper's mismatched
    split and FixMatch's batches for those that reject. A method that looks at no label learns from
    the labeled images as well. With fission, the paper's weights of the two forces: for
    CIFAR-10, and for data of a hundred classes.
    """
    method = experiment.method
    data = DataSpec(dataset, split=spec_of("orca"), views="natural-orca")
    if not method.traits.views.labeled:
        data = replace(data, pool_has_labeled=True)
        recipe = replace(recipe, epoch="pool", unlabeled_batch=512, schedule="cosine")
    elif method.traits.novel == "reject":
        # images of one's own seldom have an official test set, which the mismatched split wants
        split = spec_of("orca" if dataset is None else "ds3l")
        data = DataSpec(dataset, split=split)
        recipe = replace(recipe, epoch="pool", labeled_batch=64, unlabeled_batch=448)
    if isinstance(_base(experiment.name), OpenLDN):
        # its authors' batch: the work of its net grows with the square
        recipe = replace(recipe, labeled_batch=50, unlabeled_batch=150)
    if isinstance(method, WithFission):
        many = dataset in ("cifar100", "imagenet100")
        diversity, consistency = (0.01, 0.3) if many else (0.001, 0.6)
        method = replace(method, diversity_weight=diversity, consistency_weight=consistency)
    return replace(experiment, data=data, method=method, recipe=recipe)


def paper_literally(dataset: Paper, name: str) -> Experiment:
    """The paper's protocol, with its words to the letter."""
    experiment = paper(dataset, name)
    return replace(experiment, method=literally(experiment.method))


PRESETS: dict[str, Callable[[str], Experiment]] = {
    "digits": digits,
    "digits/literal": literal,
    "cpu/cifar10": partial(cpu, "cifar10"),
    "cpu/cifar100": partial(cpu, "cifar100"),
    "features": partial(features, None),
    "features/cifar10": partial(features, "cifar10"),
    "features/cifar100": partial(features, "cifar100"),
    "features/imagenet100": partial(features, "imagenet100"),
    "features/cifar10/literal": partial(features_literally, "cifar10"),
    "features/cifar100/literal": partial(features_literally, "cifar100"),
    "features/imagenet100/literal": partial(features_literally, "imagenet100"),
    "paper/cifar10": partial(paper, "cifar10"),
    "paper/cifar100": partial(paper, "cifar100"),
    "paper/imagenet100": partial(paper, "imagenet100"),
    "paper/cifar10/literal": partial(paper_literally, "cifar10"),
    "paper/cifar100/literal": partial(paper_literally, "cifar100"),
    "paper/imagenet100/literal": partial(paper_literally, "imagenet100"),
    "fixmatch/cifar10": partial(fixmatch, "cifar10"),
    "fixmatch/cifar100": partial(fixmatch, "cifar100"),
}


def preset(name: str, method: str) -> Experiment:
    """The experiment of a preset for a method, both by name."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name](method)


def summary(name: str) -> str:
    """A preset in a line."""
    build = PRESETS[name]
    text = build.func.__doc__ if isinstance(build, partial) else build.__doc__
    return (text or "").partition("\n")[0]


def fits_a_cpu(name: str) -> str:
    """The preset to use in a preset's place where there is no accelerator; often itself."""
    family, _, rest = name.partition("/")
    if family not in ("paper", "fixmatch"):
        return name
    return f"cpu/{rest.partition('/')[0]}" if "cifar" in rest else "cpu/cifar100"


def check_accelerator(name: str, accelerator: str) -> None:
    """Refuse a preset that wants an accelerator where there is none, unless a CPU is asked for."""
    if accelerator == "auto":
        require(
            best_accelerator() != "cpu" or fits_a_cpu(name) == name,
            f"The preset {name} wants a GPU, and there is none here: use --preset "
            f"{fits_a_cpu(name)}, or --accelerator cpu if you have weeks.",
        )
