"""GCD and SimCLR with k-means: contrast makes features, clusters make classes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch

from builders import LABELS, make_case
from protofission.core.errors import InputError
from protofission.core.records import Views
from protofission.methods import GCD, SimCLR, SimCLRKMeans, WithFission
from protofission.training.presets import preset
from reference import gcd as scalar

close = pytest.approx
TIERS = ("digits", "cpu/cifar10", "features", "features/cifar100", "paper/cifar10")


def weighted(method: Any, seed: int = 0) -> dict[str, float]:
    case = make_case(method, seed)
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"supervised_weight": 0.8, "class_temperature": 0.5},
        {"contrast_temperature": 0.2, "view": "weak"},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(3))
def test_both_contrasts_equal_their_twins(options: dict[str, Any], seed: int) -> None:
    case = make_case(GCD(**options), seed)
    scene = case.scene()
    expected = scalar.gcd(scene, scene.max_logits, **asdict(case.method))
    found = weighted(case.method, seed)
    assert found == {name: close(value, rel=1e-9) for name, value in expected.items()}


def test_the_weight_of_the_labels_goes_from_none_to_all() -> None:
    assert weighted(GCD(supervised_weight=0))["class_contrast"] == 0
    assert weighted(GCD(supervised_weight=1))["contrast"] == 0


def test_the_contrast_of_views_is_over_labeled_and_unlabeled_images() -> None:
    case = make_case(GCD())
    terms = {t.name: t.value for t in case.method.terms(case.step())}
    terms["contrast"].backward(retain_graph=True)
    assert (case.features.grad.norm(dim=-1) > 0).all()
    case.features.grad = None
    terms["class_contrast"].backward()
    moved = (case.features.grad.norm(dim=-1) > 0).nonzero()[:, 0].tolist()
    assert moved == case.rows("labeled", 0) + case.rows("labeled", 1)


def test_labels_are_read_by_the_contrast_of_classes_alone() -> None:
    case = make_case(GCD())
    before = {t.name: t.value.item() for t in case.method.terms(case.step())}
    step = case.step()
    object.__setattr__(step, "labels", torch.tensor(LABELS[::-1]))
    after = {t.name: t.value.item() for t in case.method.terms(step)}
    assert before["contrast"] == after["contrast"]
    assert before["class_contrast"] != after["class_contrast"]


@pytest.mark.parametrize("seed", range(2))
def test_simclr_with_k_means_trains_as_simclr_does(seed: int) -> None:
    for temperature in (0.2, 0.7):
        options = {"contrast_temperature": temperature}
        assert weighted(SimCLRKMeans(**options), seed) == weighted(SimCLR(**options), seed)


def test_the_view_is_what_the_option_says() -> None:
    assert SimCLRKMeans().traits.views == SimCLR().traits.views
    assert SimCLRKMeans(view="strong").traits.views == Views((), ("strong", "strong"))
    assert GCD(view="weak").traits.views == Views(("weak", "weak"), ("weak", "weak"))


def test_features_are_theirs_and_classes_are_of_clusters() -> None:
    assert (GCD().traits.novel, SimCLRKMeans().traits.novel) == ("anchor", "cluster")
    for method in (GCD(), SimCLRKMeans()):
        assert not method.traits.classifies
        assert method.traits.predicts
        assert method.traits.head.kind == "projection"
    assert not SimCLR().traits.predicts


@pytest.mark.parametrize("name", TIERS)
def test_every_tier_has_a_preset_on_orcas_split(name: str) -> None:
    for method in ("gcd", "simclr-kmeans"):
        experiment = preset(name, method)
        experiment.check()
        assert experiment.data.split == preset(name, "orca").data.split
        assert experiment.head.init == "random"
    assert preset(name, "simclr-kmeans").data.pool_has_labeled
    assert not preset(name, "gcd").data.pool_has_labeled


@pytest.mark.parametrize("base", [GCD(), SimCLRKMeans()], ids=["gcd", "simclr-kmeans"])
def test_there_is_no_fission_without_class_logits(base: Any) -> None:
    method = WithFission(base)
    with pytest.raises(
        InputError,
        match=r"^head\.kind = fission does not fit: the method needs head\.kind = projection",
    ):
        method.check(method.traits.head)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GCD(supervised_weight=1.2), r"^supervised_weight = 1.2 must be between 0 and 1"),
        (lambda: GCD(supervised_weight=-1), r"^supervised_weight = -1 must be at least 0\.$"),
        (lambda: GCD(class_temperature=0), r"^class_temperature = 0 must be above 0\.$"),
        (lambda: GCD(contrast_temperature=0), r"^contrast_temperature = 0 must be above 0\.$"),
        (lambda: SimCLRKMeans(view="blurred"), r"view"),  # type: ignore[arg-type]
    ],
)
def test_bad_options_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
