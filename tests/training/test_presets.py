"""Presets: each fits every method, and has the numbers that were published."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protofission.core.errors import InputError
from protofission.data.augment.natural_views import NATURAL_24, NATURAL_ORCA
from protofission.data.datasets import DATASETS, VIEWS
from protofission.data.splits.labeling import Labeling
from protofission.methods import METHODS
from protofission.models.backbones import BACKBONES, BackboneSpec
from protofission.training import presets
from protofission.training.experiment import Experiment
from protofission.training.presets import (
    PRESETS,
    check_accelerator,
    preset,
    preset_for_cpu,
    summary,
)
from protofission.training.presets.tables import GROUPS, Preset
from protofission.training.recipe import Recipe
from protofission.training.schedules import learning_rate

PAPER = [name for name in PRESETS if name.startswith("paper/")]
CLASSIFIERS = [name for name, method in METHODS.items() if method.traits.classifies]
DISCOVERERS = [name for name in CLASSIFIERS if METHODS[name].traits.novel != "reject"]
REJECTERS = [name for name in CLASSIFIERS if name not in DISCOVERERS]
WITH_FISSION = [name for name in METHODS if name.endswith("+pf")]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_every_method(name):
    dataset = next((part for part in name.split("/") if part in DATASETS), None)
    for method in METHODS:
        experiment = preset(name, method)
        experiment.check()
        assert experiment.name == method
        assert type(experiment.method) is type(METHODS[method]), method
        assert experiment.data.dataset == dataset, method


@pytest.mark.parametrize("name", PRESETS)
def test_a_method_has_the_recipe_data_and_backbone_of_its_base(name):
    for method in WITH_FISSION:
        own, base = preset(name, method), preset(name, method.removesuffix("+pf"))
        shared = (base.recipe, base.data, base.backbone)
        assert (own.recipe, own.data, own.backbone) == shared, method


# The tables


def test_every_row_of_every_table_is_of_a_group_or_a_method():
    assert not set(GROUPS) & set(METHODS)
    for name, known in PRESETS.items():
        for table in known.tables:
            assert set(table) <= {*GROUPS, *METHODS}, name
            for key, options in table.items():
                assert isinstance(options, tuple), (name, key)  # ("a=b") is a text of letters


def test_every_group_has_methods_and_each_method_is_in_one_of_four():
    four = ("pretrains", "clusters", "discovers", "rejects")
    for method in METHODS.values():
        assert sum(GROUPS[group](method) for group in four) == 1
    members = {
        group: [name for name, method in METHODS.items() if fits(method)]
        for group, fits in GROUPS.items()
    }
    assert all(members.values())
    assert members["pretrains"] == ["simclr"]
    assert members["clusters"] == ["simclr-kmeans"]
    assert members["rejects"] == REJECTERS
    assert members["with fission"] == WITH_FISSION
    assert set(members["predicts"]) == set(METHODS) - {"simclr"}


def test_a_later_row_and_a_later_table_have_the_last_word():
    first = {"orca": ("recipe.epochs=1", "recipe.epochs=2"), "all": ("recipe.momentum=0.1",)}
    second = {"with fission": ("recipe.momentum=0.2",), "fixmatch": ("recipe.epochs=9",)}
    known = Preset("", (first, second))
    found = [known.experiment(name).recipe for name in ("orca", "orca+pf", "supervised")]
    assert [(recipe.epochs, recipe.momentum) for recipe in found] == [
        (2, 0.1),
        (2, 0.2),
        (200, 0.1),
    ]
    assert list(known.options("orca+pf")) == [
        *first["orca"],
        *first["all"],
        *second["with fission"],
    ]
    assert known.experiment("fixmatch-sigmoid").recipe.epochs == 200  # a name is a whole name


def test_a_method_of_the_user_s_own_fits_every_preset(monkeypatch):
    monkeypatch.setitem(METHODS, "own", METHODS["orca"])
    monkeypatch.setitem(METHODS, "own+pf", METHODS["orca+pf"])
    for name in PRESETS:
        own, theirs = preset(name, "own+pf"), preset(name, "openldn+pf")
        own.check()
        assert own.data == theirs.data
    assert preset("paper/cifar100", "own+pf").method.diversity_weight == 0.01


def rates(experiment: Experiment, epochs: list[int], per_epoch: int) -> list[float]:
    recipe = experiment.recipe
    steps = recipe.steps or recipe.epochs * per_epoch
    return [learning_rate(recipe, epoch * per_epoch, steps, per_epoch) for epoch in epochs]


# The paper's numbers


def learning_of(name: str, methods: list[str]) -> tuple[Experiment, Recipe, BackboneSpec]:
    """The parts that all methods share: an experiment, its recipe without batches, its backbone."""
    found = {method: preset(name, method) for method in methods}
    first, batches = found[methods[0]], ("labeled_batch", "unlabeled_batch", "epoch")
    for method, experiment in found.items():
        own = {batch: getattr(first.recipe, batch) for batch in batches}
        assert replace(experiment.recipe, **own) == first.recipe, method
        assert experiment.backbone == first.backbone, method
        assert experiment.data.dataset == first.data.dataset, method
    assert isinstance(first.backbone, BackboneSpec)
    return first, first.recipe, first.backbone


@pytest.mark.parametrize("name", [name for name in PAPER if "cifar" in name])
def test_the_paper_s_cifar(name):
    experiment, recipe, backbone = learning_of(name, CLASSIFIERS)
    assert (recipe.learning_rate, recipe.weight_decay, recipe.epochs) == (0.1, 5e-4, 200)
    assert (recipe.momentum, recipe.optimizer, recipe.nesterov) == (0.9, "sgd", False)
    found = rates(experiment, [0, 139, 140, 179, 180, 199], 99)
    assert found == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert recipe.trainable_stages == 1
    assert recipe.frozen_statistics == "orca"
    dataset = experiment.data.dataset
    assert backbone == replace(BACKBONES["resnet18"], pixels=dataset)
    assert (backbone.stem, backbone.width, backbone.blocks) == ("cifar", 64, (2, 2, 2, 2))
    assert (recipe.steps, recipe.steps_per_epoch, recipe.ema) == (None, None, 0.0)


@pytest.mark.parametrize("name", [name for name in PAPER if "imagenet" in name])
def test_the_paper_s_imagenet(name):
    experiment, recipe, backbone = learning_of(name, CLASSIFIERS)
    assert (recipe.learning_rate, recipe.weight_decay, recipe.epochs) == (0.1, 1e-4, 90)
    found = rates(experiment, [0, 29, 30, 59, 60, 89], 251)
    assert found == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert recipe.trainable_stages == 1
    assert recipe.frozen_statistics == "orca"
    expected = replace(BACKBONES["resnet50"], stem="imagenet", pixels="imagenet")
    assert backbone == expected
    assert (backbone.block, backbone.blocks) == ("bottleneck", (3, 4, 6, 3))


BATCHED = [name for name in PRESETS if name.startswith(("paper/", "fixmatch/", "cpu/"))]


@pytest.mark.parametrize("name", BATCHED)
def test_orca_s_batches_split_and_views_or_fixmatch_s(name):
    for method in DISCOVERERS:
        experiment = preset(name, method)
        recipe, data = experiment.recipe, experiment.data
        own = method.startswith("openldn")  # whose net compares all pairs of a batch
        batches = (50, 150) if own else (128, 384)
        assert (recipe.labeled_batch, recipe.unlabeled_batch) == batches
        assert recipe.epoch == "labeled"
        assert data.split.name == "orca"
        assert VIEWS[data.views] is NATURAL_ORCA
    for method in REJECTERS:
        experiment = preset(name, method)
        recipe, data = experiment.recipe, experiment.data
        assert (recipe.labeled_batch, recipe.unlabeled_batch) == (64, 448)
        assert recipe.epoch == "pool"
        assert data.split.name == "ds3l"
        assert data.views is None


@pytest.mark.parametrize("name", BATCHED)
def test_the_weights_of_the_two_forces(name):
    expected = (0.01, 0.3) if "100" in name else (0.001, 0.6)
    for method in WITH_FISSION:
        found = preset(name, method).method
        assert (found.diversity_weight, found.consistency_weight) == expected, method


@pytest.mark.parametrize("name", [name for name in PRESETS if name.endswith("/literal")])
def test_a_literal_preset_changes_the_method_and_what_was_ours_of_the_head(name):
    for method in METHODS:
        ours, words = preset(name.removesuffix("/literal"), method), preset(name, method)
        own = METHODS[method].traits.head
        if name.startswith("features"):
            assert words.head == own
            starts = METHODS[method].traits.has_novel_heads and own.can_start_from_data
            from_data = starts or method in ("cpl", "p-odn", "pmal", "rankstats")
            assert ours.head.init == ("data" if from_data else "random")
            assert ours.head.kind == ("cosine" if method == "rankstats" else own.kind)
            ours = replace(ours, head=own)
        if name.startswith("digits"):
            assert words.head == own
            assert ours.head.init == ("data" if method in ("orca", "orca+pf") else own.init)
            ours = replace(ours, head=own)
        assert replace(words, method=ours.method) == ours
    fission = preset(name, "orca+pf").method
    if not name.startswith("digits"):
        assert fission.base.entropy_weight == preset(name, "orca").method.entropy_weight == 1.0
    assert (fission.local_diversity_weight, fission.diversity_min_samples) == (0.0, 1)
    assert fission.base.entropy_on == "max"
    for method in ("fixmatch-sigmoid+pf", "fixmatch-sigmoid"):
        found = preset(name, method).method
        assert getattr(found, "base", found).literal


# FixMatch's numbers


@pytest.mark.parametrize(
    ("name", "width", "decay"), [("fixmatch/cifar10", 32, 5e-4), ("fixmatch/cifar100", 128, 1e-3)]
)
def test_fixmatch_s_own_recipe(name, width, decay):
    experiment, recipe, backbone = learning_of(name, CLASSIFIERS)
    assert (recipe.steps, recipe.steps_per_epoch) == (1_048_576, 1024)
    assert (recipe.learning_rate, recipe.schedule) == (0.03, "fixmatch")
    assert (recipe.optimizer, recipe.nesterov, recipe.momentum) == ("sgd", True, 0.9)
    assert (recipe.weight_decay, recipe.decay_vectors, recipe.ema) == (decay, False, 0.999)
    assert (recipe.trainable_stages, recipe.warmup_epochs) == (None, 0)
    half, end = rates(experiment, [512, 1024], 1024)
    assert half == pytest.approx(0.03 * np.cos(7 * np.pi / 32))
    assert end == pytest.approx(0.03 * np.cos(7 * np.pi / 16))
    expected = replace(BACKBONES["wrn-28-2"], width=width, pixels=experiment.data.dataset)
    assert backbone == expected
    assert (backbone.block, backbone.blocks, backbone.weights) == ("preactivated", (4, 4, 4), None)


# Pretraining, and what two cores finish


@pytest.mark.parametrize("name", BATCHED)
def test_pretraining_sees_every_training_image_and_no_label(name):
    experiment = preset(name, "simclr")
    data, recipe = experiment.data, experiment.recipe
    assert (data.split.name, data.pool_has_labeled) == ("full", True)
    assert (recipe.epoch, recipe.trainable_stages, recipe.schedule) == ("pool", None, "cosine")
    assert experiment.head.norm
    assert experiment.backbone.weights is None
    small = name.startswith("cpu/")
    assert recipe.optimizer == ("sgd" if small else "lars")
    assert VIEWS[data.views or "natural"] is VIEWS["natural-24" if small else "natural"]
    assert VIEWS["natural-24"] is NATURAL_24
    if not small:
        assert (recipe.unlabeled_batch, recipe.learning_rate) == (512, 1.0)
        assert (recipe.epochs, recipe.warmup_epochs) == (500, 10)
        assert (recipe.weight_decay, recipe.decay_vectors) == (1e-6, False)


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_the_small_protocol_fine_tunes_what_its_own_pretraining_makes(dataset):
    name = f"cpu/{dataset}"
    pretrained = preset(name, "simclr").backbone
    for method in CLASSIFIERS:
        experiment = preset(name, method)
        assert replace(experiment.backbone, weights=None) == pretrained == BACKBONES["compact"]
        assert experiment.backbone.weights == f"simclr-{dataset}"
        assert (experiment.recipe.trainable_stages, experiment.recipe.epochs) == (1, 20)


SIZES = {"cifar10": (10, 5000, 1000), "cifar100": (100, 500, 100), "imagenet100": (100, 1280, 50)}
"""Classes, and images of each for training and for the test."""


@pytest.mark.parametrize("dataset", SIZES)
def test_the_splits_of_a_preset_suit_its_data_set(dataset):
    classes, train, test = SIZES[dataset]
    labels = np.arange(classes)
    labeling = Labeling(np.tile(labels, train), classes, np.tile(labels, test))
    named = [name for name in PRESETS if dataset in name.split("/")]
    specs = {preset(name, method).data.split for name in named for method in METHODS}
    assert {spec.name for spec in specs} == {"orca", "ds3l", "full"}
    for spec in specs:
        split = spec.split(labeling)
        assert len(split.labeled)
        assert len(split.test)


# Where there is no accelerator


def test_the_preset_that_fits_a_cpu_exists_and_fits():
    for name in PRESETS:
        fitting = preset_for_cpu(name)
        assert fitting in PRESETS
        assert preset_for_cpu(fitting) == fitting
        assert (fitting == name) == name.startswith(("digits", "cpu/", "features")), name
        dataset = preset(name, "orca").data.dataset
        nearest = dataset
        if dataset == "imagenet100" and fitting != name:
            nearest = "cifar100"
        assert preset(fitting, "orca").data.dataset == nearest


def test_a_preset_that_wants_a_gpu_is_refused_with_the_one_that_does_not(monkeypatch):
    monkeypatch.setattr(presets, "best_accelerator", lambda: "cpu")
    for name in PRESETS:
        check_accelerator(name, "cpu")  # asked for: weeks
        if preset_for_cpu(name) == name:
            check_accelerator(name, "auto")
            continue
        with pytest.raises(InputError) as refusal:
            check_accelerator(name, "auto")
        assert f"The preset {name} wants a GPU" in str(refusal.value)
        assert f"--preset {preset_for_cpu(name)}," in str(refusal.value)
        assert "--accelerator cpu" in str(refusal.value)


@pytest.mark.parametrize("best", ["cuda", "mps"])
def test_with_a_gpu_every_preset_is_allowed(best, monkeypatch):
    monkeypatch.setattr(presets, "best_accelerator", lambda: best)
    for name in PRESETS:
        check_accelerator(name, "auto")


def test_every_preset_has_a_line_that_tells_of_it():
    for name in PRESETS:
        assert summary(name).endswith((".", ":"))
        assert len(f"    {summary(name)}") <= 100
