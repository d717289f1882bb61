"""OpenCoS: its loss and its survey against a scalar twin, and how it parts the pool."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from builders import LABELS, SEEN, UNLABELED, WIDTH, Case, make_case, normal, output_of
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS, Survey, total
from protofission.methods import METHODS, OpenCos, WithFission
from reference import opencos as scalar

close = pytest.approx


def options_of(method: OpenCos) -> dict[str, float]:
    return {field.name: getattr(method, field.name) for field in fields(method)}


def survey_of(features: torch.Tensor, labels: list[int], chunk: int = 4) -> Survey:
    chunks = [output_of(normal(len(rows), SEEN), rows) for rows in features.split(chunk)]
    return Survey(chunks, torch.tensor(labels), iter(()))


def case_of(method: Any, seed: int = 1) -> Case:
    """A case that has surveyed its own labeled images."""
    case = make_case(method, seed)
    rows = case.features.detach()[case.rows("labeled", 0)]
    case.method.survey(case.memory, survey_of(rows, list(LABELS)))
    return case


def twin(case: Case, method: OpenCos, memory: Any, logits: Any = None) -> scalar.Loss:
    scene = case.scene()
    statistics = memory.usual.item(), memory.deviation.item()
    means = memory.means.tolist()
    return scalar.opencos(
        scene, logits or scene.max_logits, means, *statistics, **options_of(method)
    )


OPTIONS = [
    {},
    {"threshold": 0.6},
    {"deviations": 0.5},
    {"deviations": 0.5, "soft_temperature": 1.0, "threshold": 0.6},
    {"deviations": -0.5, "unlabeled_weight": 0.3, "auxiliary_weight": 2.0},
    {"deviations": 50.0},
    {"deviations": -50.0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_every_term_equals_its_twin(seed, options):
    case = case_of(OpenCos(**options), seed)
    found = {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}
    expected = twin(case, case.method, case.memory)
    assert found == {name: close(value, rel=1e-9, abs=1e-12) for name, value in expected.items()}


def test_with_fission_every_slot_is_charged_with_the_same_targets():
    base = OpenCos(threshold=0.6, deviations=0.5)
    method = WithFission(base, diversity_weight=0.0, consistency_weight=1.0)
    case = case_of(method)
    scene = case.scene()
    terms = {t.name: t.value.item() for t in method.terms(case.step())}
    slots = [twin(case, base, case.memory.base, scene.slot_logits(s)) for s in range(scene.slots)]
    assert terms["consistency"] == close(sum(sum(s.values()) for s in slots) / scene.slots)


@pytest.mark.parametrize("option", [field.name for field in fields(OpenCos)])
def test_every_option_has_an_effect(option):
    changed = {"threshold": 0.9999}
    case = case_of(OpenCos(threshold=0.6, deviations=0.5))
    other = replace(case.method, **{option: changed.get(option, 3.0)})
    assert not torch.isclose(total(case.method.terms(case.step())), total(other.terms(case.step())))


def test_the_case_holds_images_of_both_parts():
    """Or else equality with the twin would say little."""
    method = OpenCos(threshold=0.6, deviations=0.5)
    targets = method.decide(case_of(method).step())
    assert 0 < targets.trusted.sum() <= targets.inside.sum() < UNLABELED


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_the_survey_equals_its_twin_whatever_the_chunks(chunk):
    features, labels = normal(11, WIDTH, seed=2), [0, 1, 2, 2, 1, 0, 0, 1, 2, 0, 0]
    case = make_case(OpenCos())
    case.method.survey(case.memory, survey_of(features, labels, chunk))
    means = scalar.class_means(features.tolist(), labels, SEEN)
    usual, deviation = scalar.usual_and_deviation(features.tolist(), means)
    assert_close(case.memory.means, torch.tensor(means, dtype=torch.float64))
    assert case.memory.usual.item() == close(usual)
    assert case.memory.deviation.item() == close(deviation)


def test_before_the_first_survey_every_image_is_inside():
    case = make_case(OpenCos())
    assert case.method.decide(case.step()).inside.eq(1).all()


def test_an_image_of_no_seen_class_has_no_class_however_sure_the_classifier_is():
    case = case_of(OpenCos(threshold=0.01, deviations=0.5))
    step = case.step()
    targets = case.method.decide(step)
    outside = targets.inside == 0
    classes = step.unlabeled(targets.classes, 1)
    assert outside.any()
    assert torch.equal(classes == NO_CLASS, outside)


def test_each_part_of_the_pool_learns_on_a_view_of_its_own():
    """Strong views of images inside, weak views of images outside."""
    case = case_of(OpenCos(threshold=0.01, deviations=0.5))
    targets = case.method.decide(case.step())
    total(case.method.charge(case.step(), targets)).backward()
    moved = case.features.grad.norm(dim=-1) > 0
    assert torch.equal(moved[case.rows("unlabeled", 0)], targets.inside == 0)
    assert torch.equal(moved[case.rows("unlabeled", 1)], targets.inside == 1)


def test_soft_labels_follow_the_cosines_and_the_temperature():
    cold, warm = (
        case_of(OpenCos(soft_temperature=t)).method.decide(case_of(OpenCos()).step()).soft_labels
        for t in (0.01, 100.0)
    )
    assert_close(cold.sum(1), torch.ones(UNLABELED, dtype=torch.float64))
    assert cold.amax(1).mean() > 0.9
    assert (warm - 1 / SEEN).abs().max() < 0.02
    assert torch.equal(cold.argmax(1), warm.argmax(1))


def test_the_length_of_features_means_nothing_to_the_parting():
    case = case_of(OpenCos(deviations=0.5))
    longer = case.method.decide(case.step(3 * case.features.detach()))
    assert torch.equal(longer.inside, case.method.decide(case.step()).inside)


def test_the_own_score_is_the_cosine_to_the_nearest_mean():
    case = case_of(OpenCos())
    found = case.method.ood_score(case.head(case.features), case.memory, SEEN)
    means = case.memory.means.tolist()
    expected = [-max(scalar.cosines(row, means)) for row in case.features.tolist()]
    assert found.tolist() == close(expected)


def test_defaults_are_the_authors():
    method = OpenCos()
    assert (method.threshold, method.deviations) == (0.95, 2.0)
    assert (method.soft_temperature, method.auxiliary_weight) == (0.1, 0.5)
    assert METHODS["opencos+pf"] == WithFission(method)


def test_bad_options_are_refused_by_name():
    with pytest.raises(InputError, match=r"^threshold = 0 must be above 0, at most 1\.$"):
        OpenCos(threshold=0)
    with pytest.raises(InputError, match=r"^soft_temperature = 0 must be above 0\.$"):
        OpenCos(soft_temperature=0)
