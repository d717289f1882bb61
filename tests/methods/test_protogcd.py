"""ProtoGCD: who teaches hard classes, and the separation of prototypes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from builders import LABELS, UNLABELED, Case, make_case, normal, output_of, step_of
from protofission.core.errors import InputError
from protofission.core.records import Sizes
from protofission.methods import ProtoGCD, WithFission
from protofission.methods.protogcd import separation
from reference import protogcd as scalar
from reference import simgcd

close = pytest.approx
SMALL = ProtoGCD(projection_width=7, projection_size=4)


def terms_of(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


def twin(case: Case, method: ProtoGCD) -> dict[str, float]:
    scene = case.scene()
    own = case.memory.get_submodule("projection" if case.method is method else "base.projection")
    layers = [p.tolist() for p in own.weights], [p.tolist() for p in own.biases]
    vectors = {key: simgcd.projected(row, *layers) for key, row in scene.features.items()}
    s = method.supervised_weight
    share = scalar.share_at(case.progress, method.start_share, method.end_share, method.ramp)
    taught = scalar.teachers(scene, share, method.teacher_temperature)
    prototypes = case.step().output.prototypes.combined.tolist()
    apart = scalar.separation(prototypes, method.separation_temperature)
    risk = simgcd.risk(
        scene, scene.max_logits, supervised=s, entropy=method.entropy_weight, temperature=1.0
    )
    contrasts = simgcd.contrasts(
        scene,
        vectors,
        supervised=s,
        views_temperature=method.contrast_temperature,
        class_temperature=method.class_temperature,
    )
    return {
        **risk,
        "distillation": (1 - s) * scalar.distillation(scene, scene.max_logits, taught),
        **contrasts,
        "separation": (1 - s) * method.separation_weight * apart,
    }


OPTIONS: list[dict[str, Any]] = [
    {},
    {"supervised_weight": 0.8},
    {"entropy_weight": 4.0},
    {"ramp": 1.0, "start_share": 0.1},
    {"end_share": 0.3},
    {"end_share": 0.3, "teacher_temperature": 0.3},
    {"separation_weight": 0.2},
    {"separation_temperature": 0.5},
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


def test_with_fission_the_max_logits_are_charged_alike_and_all_prototypes_parted():
    case = make_case(WithFission(SMALL), 1)
    found = terms_of(case)
    for name, value in twin(case, SMALL).items():
        assert found[name] == close(value, rel=1e-9)
    assert list(found)[6:] == ["consistency", "diversity", "local_diversity"]


@pytest.mark.parametrize(("progress", "expected"), [(0.0, 0.2), (0.25, 0.6), (0.5, 1), (0.9, 1)])
def test_the_share_of_hard_teachers_rises_over_the_ramp(progress, expected):
    assert ProtoGCD().share_at(progress) == close(expected)


def test_without_a_ramp_all_teach_hard_classes_at_once():
    case = make_case(replace(SMALL, ramp=0.0), progress=0.0)
    teachers = case.method.decide(case.step()).teachers
    assert set(teachers.flatten().tolist()) == {0.0, 1.0}


def test_the_surest_of_each_view_teach_a_hard_class_and_no_other():
    """Six images a view of which half teach hard classes; one view is surer than the other."""
    gaps = torch.tensor([0.1, 0.6, 0.3, 0.2, 0.5, 0.4], dtype=torch.float64)
    sims = torch.cat([torch.stack([gaps * scale, 0 * gaps], 1) for scale in (1.0, 0.1)])
    method = replace(SMALL, start_share=0.5, end_share=0.5)
    step = step_of(method, output_of(sims), [0, 1], 4)
    teachers = method.decide(step).teachers
    hard = ((teachers == 0) | (teachers == 1)).all(-1)
    assert hard.tolist() == [False, True, False, False, True, True] * 2
    soft = 1 / (1 + math.exp(-0.1 / 0.05))
    assert teachers[6].tolist() == close([soft, 1 - soft])  # image 0, taught by its first view


def test_a_teacher_is_the_other_view_and_no_gradient_passes_it():
    case = make_case(replace(SMALL, start_share=0.0, end_share=0.0))
    step = case.step()
    targets = case.method.decide(step)
    probs = (step.output.nearest / 0.05).softmax(-1).detach()
    for kind in ("labeled", "unlabeled"):
        assert_close(targets.teachers[case.rows(kind, 0)], probs[case.rows(kind, 1)])
        assert_close(targets.teachers[case.rows(kind, 1)], probs[case.rows(kind, 0)])
    assert not targets.teachers.requires_grad
    assert len(targets.teachers) == 2 * (len(LABELS) + UNLABELED)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_the_separation_equals_its_twin(temperature):
    prototypes = normal(4, 3, 5)
    expected = scalar.separation(prototypes.tolist(), temperature)
    assert separation(prototypes, temperature).item() == close(expected)


def test_opposite_prototypes_are_parted_best_whatever_their_length_and_slots_may_coincide():
    ends = torch.tensor([[1.0, 0.0], [-3.0, 0.0]], dtype=torch.float64)
    assert separation(ends[:, None], 0.1).item() == close(-10)
    assert separation(ends[:, None].repeat(1, 3, 1), 0.1).item() == close(-10)
    aside = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    assert separation(aside[:, None], 0.1).item() == close(0, abs=1e-12)


def test_one_class_is_refused_in_words():
    with pytest.raises(InputError, match=r"^protogcd parts the prototypes of classes, .* only one"):
        SMALL.memory(Sizes(6, 1, 1), torch.Generator())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_share": 1.5}, r"^start_share = 1.5 must be between 0 and 1\.$"),
        ({"end_share": -0.1}, r"^end_share = -0.1 must be between 0 and 1\.$"),
        ({"ramp": 2.0}, r"^ramp = 2.0 must be between 0 and 1\.$"),
        ({"separation_temperature": 0.0}, r"^separation_temperature = 0.0 must be above 0\.$"),
        ({"separation_weight": -1.0}, r"^separation_weight = -1.0 must be at least 0\.$"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        ProtoGCD(**options)
