"""SimGCD: teachers across views, their temperature, and contrasts on a projection."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from builders import LABELS, UNLABELED, Case, make_case, normal, output_of, rng, step_of
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS, Sizes, total
from protofission.methods import SimGCD, WithFission
from protofission.methods.parts.contrast import class_contrast, nt_xent
from protofission.methods.parts.projection import Projection
from protofission.models.heads import HeadSpec
from reference import contrast as scalar_contrast
from reference import simgcd as scalar

close = pytest.approx
SMALL = SimGCD(projection_width=7, projection_size=4)


def terms_of(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


def twin(case: Case, method: SimGCD) -> dict[str, float]:
    scene = case.scene()
    temperature = scalar.teacher_temperature(
        case.progress, method.start_temperature, method.teacher_temperature, method.teacher_warmup
    )
    own = case.memory.get_submodule("projection" if case.method is method else "base.projection")
    layers = [p.tolist() for p in own.weights], [p.tolist() for p in own.biases]
    vectors = {key: scalar.projected(row, *layers) for key, row in scene.features.items()}
    share = method.supervised_weight
    return scalar.risk(
        scene,
        scene.max_logits,
        supervised=share,
        entropy=method.entropy_weight,
        temperature=temperature,
    ) | scalar.contrasts(
        scene,
        vectors,
        supervised=share,
        views_temperature=method.contrast_temperature,
        class_temperature=method.class_temperature,
    )


OPTIONS: list[dict[str, Any]] = [
    {},
    {"supervised_weight": 0.8},
    {"entropy_weight": 4.0},
    {"teacher_warmup": 1.0, "start_temperature": 0.3},
    {"teacher_temperature": 0.1},
    {"contrast_temperature": 0.2},
    {"class_temperature": 0.5},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_every_term_equals_its_twin_under_every_option(options, seed):
    method = replace(SMALL, **options)
    case = make_case(method, seed)
    found = terms_of(case)
    assert found == close(twin(case, method), rel=1e-9, abs=1e-12)
    if options:
        assert found != close(terms_of(make_case(SMALL, seed)), rel=1e-6)


def test_with_fission_the_max_logits_are_charged_alike_and_the_contrasts_once():
    case = make_case(WithFission(SMALL), 1)
    found = terms_of(case)
    for name, value in twin(case, SMALL).items():
        assert found[name] == close(value, rel=1e-9)
    assert list(found)[5:] == ["consistency", "diversity", "local_diversity"]


def test_every_slot_is_taught_by_the_nearest_slot_of_the_other_view():
    case = make_case(WithFission(SMALL), 1)
    scene = case.scene()
    slots = [
        sum(
            scalar.risk(
                scene, scene.slot_logits(slot), supervised=0.35, entropy=2.0, temperature=0.04
            ).values()
        )
        for slot in range(scene.slots)
    ]
    found = {t.name: t.value.item() for t in case.method.terms(case.step())}
    assert found["consistency"] == close(sum(slots) / len(slots), rel=1e-9)


@pytest.mark.parametrize(
    ("progress", "expected"), [(0.0, 0.07), (0.075, 0.055), (0.15, 0.04), (0.9, 0.04)]
)
def test_the_teacher_cools_over_the_warm_up(progress, expected):
    assert SimGCD().temperature_at(progress) == close(expected)


def test_without_a_warm_up_the_teacher_is_cool_at_once():
    assert SimGCD(teacher_warmup=0.0).temperature_at(0.0) == 0.04


def test_a_teacher_is_the_other_view_and_no_gradient_passes_it():
    case = make_case(SMALL)
    step = case.step()
    targets = case.method.decide(step)
    terms = {t.name: t.value for t in case.method.risk(step, targets, step.logits)}
    probs = (step.output.nearest / 0.04).softmax(-1)
    for kind in ("labeled", "unlabeled"):
        assert_close(targets.teachers[case.rows(kind, 0)], probs[case.rows(kind, 1)].detach())
        assert_close(targets.teachers[case.rows(kind, 1)], probs[case.rows(kind, 0)].detach())
    (gradient,) = torch.autograd.grad(terms["distillation"], step.output.nearest)
    student = step.logits.softmax(-1)
    expected = (student - targets.teachers) * step.output.temperature / len(student)
    assert_close(gradient, expected.detach())


def test_the_student_s_temperature_is_a_tenth():
    head = SimGCD().traits.head
    assert (head.kind, head.temperature) == ("cosine", 10.0)


def test_views_that_agree_surely_cost_nothing_but_labels_and_contrast():
    """Sure and even predictions: distillation is 0, the entropy is at its best."""
    sims = 5 * torch.eye(4, dtype=torch.float64).repeat(2, 1)
    step = step_of(SMALL, output_of(sims, temperature=40.0), [0, 1], 2)
    terms = {t.name: t for t in SMALL.risk(step, SMALL.decide(step), step.logits)}
    assert terms["distillation"].value.item() == close(0, abs=1e-8)
    assert terms["entropy"].value.item() == close(-math.log(4))
    assert terms["entropy"].weight == close(0.65 * 2)


def test_hard_classes_are_labels_and_sure_predictions():
    case = make_case(SMALL)
    classes = case.method.decide(case.step()).classes
    probs = case.step().logits.softmax(-1)
    for view in range(2):
        assert classes[case.rows("labeled", view)].tolist() == list(LABELS)
        rows = case.rows("unlabeled", view)
        sure = [p.argmax().item() if p.max() >= 0.95 else NO_CLASS for p in probs[rows]]
        assert classes[rows].tolist() == sure
    assert 0 < (classes[case.rows("unlabeled", 0)] == NO_CLASS).sum() < UNLABELED


def test_the_projection_starts_by_its_generator_alone():
    torch.manual_seed(0)
    first = SMALL.memory(Sizes(6, 5, 3), rng(3)).state_dict()
    torch.manual_seed(1)
    again = SMALL.memory(Sizes(6, 5, 3), rng(3)).state_dict()
    other = SMALL.memory(Sizes(6, 5, 3), rng(4)).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["projection.weights.0"], other["projection.weights.0"])
    assert [tuple(p.shape) for n, p in first.items() if "weights" in n] == [(7, 6), (7, 7), (4, 7)]


def test_the_projection_learns_from_both_contrasts():
    case = make_case(SMALL)
    step = case.step()
    total(case.method.other_terms(step, case.method.decide(step))).backward()
    assert all(p.grad.norm() > 0 for p in case.memory.parameters())
    assert case.features.grad.norm() > 0


def test_a_projection_of_one_layer_is_linear():
    layer = Projection((3, 2), rng(0)).double()
    rows = normal(4, 3)
    assert_close(layer(2 * rows), 2 * layer(rows))


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("classes", [[0, 1, 0, -1, 2, 0, 1], [-1] * 7, [0, 1, 2, 3, 4, 5, 6]])
def test_class_contrast_equals_its_twin(classes, temperature):
    vectors = normal(7, 3)
    known = [None if c == NO_CLASS else c for c in classes]
    expected = scalar_contrast.class_contrast(vectors.tolist(), known, temperature)
    assert class_contrast(vectors, torch.tensor(classes), temperature).item() == close(expected)


def test_class_contrast_with_a_class_an_image_is_the_contrast_of_views():
    first, second = normal(5, 3), normal(5, 3, seed=1)
    found = class_contrast(torch.cat([first, second]), torch.arange(5).repeat(2), 0.3)
    assert_close(found, nt_xent(first, second, 0.3))


def test_class_contrast_has_a_finite_gradient_where_nobody_has_a_class():
    vectors = normal(4, 3).requires_grad_()
    class_contrast(vectors, torch.full((4,), NO_CLASS), 0.1).backward()
    assert torch.equal(vectors.grad, torch.zeros(4, 3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"supervised_weight": 1.5}, r"^supervised_weight = 1.5 must be between 0 and 1\.$"),
        ({"teacher_warmup": -1.0}, r"^teacher_warmup = -1.0 must be between 0 and 1\.$"),
        ({"teacher_temperature": 0.0}, r"^teacher_temperature = 0.0 must be above 0\.$"),
        ({"hard_threshold": 0.0}, r"^hard_threshold = 0.0 must be above 0, at most 1\.$"),
        ({"projection_width": 0}, r"^projection_width = 0 must be at least 1\.$"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        SimGCD(**options)


@pytest.mark.parametrize("head", [HeadSpec("linear"), HeadSpec("fission", similarity="euclidean")])
def test_a_head_without_cosines_is_refused(head):
    with pytest.raises(InputError, match=r"^head\.kind = (linear|fission) does not fit"):
        SimGCD().check(head)
    SimGCD().check(HeadSpec("fission"))
