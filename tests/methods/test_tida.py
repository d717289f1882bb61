"""TIDA: self-labels at three levels, and how the levels predict the class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from builders import LABELS, NOVEL, SEEN, UNLABELED, WIDTH, Case, make_case, normal, rng
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS, Sizes, total
from protofission.methods import Tida, WithFission
from protofission.methods.tida import Level
from protofission.models.heads import HeadSpec
from reference import tida as scalar

close = pytest.approx
SMALL = Tida(width=7, sub_per_class=2, classes_per_super=2)


def terms_of(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


def levels(case: Case, base: str = "") -> list[scalar.Level]:
    found = [case.memory.get_submodule(base + name) for name in ("sub", "super")]
    return [
        scalar.Level(
            [p.tolist() for p in level.projection.weights],
            [p.tolist() for p in level.projection.biases],
            level.prototypes.tolist(),
        )
        for level in found
    ]


def codes_of(case: Case, method: Tida) -> Any:
    return scalar.class_codes(
        case.scene(),
        SEEN,
        sharpness=method.sharpness,
        rounds=method.rounds,
        balance_over=method.balance_over,
        novel_threshold=method.novel_threshold,
    )


def twin(case: Case, method: Tida) -> dict[str, float]:
    scene, codes = case.scene(), codes_of(case, method)
    classes = case.step().output.prototypes.combined.tolist()
    found = scalar.risk(scene, scene.max_logits, codes, method.strong_weight)
    base = "" if case.method is method else "base."
    for name, level in zip(("sub", "super"), levels(case, base), strict=True):
        values = scalar.level_terms(
            scene,
            level,
            classes,
            codes,
            sharpness=method.sharpness,
            rounds=method.rounds,
            balance_over=method.balance_over,
            level_weight=method.level_weight,
            align_weight=method.align_weight,
            strong_weight=method.strong_weight,
        )
        keys = (f"{name}_clusters", f"{name}_classes", f"{name}_strong")
        found |= dict(zip(keys, values, strict=True))
    return found


OPTIONS: list[dict[str, Any]] = [
    {},
    {"sharpness": 0.5},
    {"rounds": 1, "sharpness": 0.3},
    {"novel_threshold": 0.9, "sharpness": 0.3},
    {"balance_over": "all"},
    {"level_weight": 0.3},
    {"align_weight": 0.3},
    {"strong_weight": 2.0},
    {"sub_per_class": 3},
    {"classes_per_super": 1},
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


def test_with_fission_a_class_is_as_like_a_sub_class_as_its_likest_slot():
    case = make_case(WithFission(SMALL), 1)
    found = terms_of(case)
    for name, value in twin(case, SMALL).items():
        assert found[name] == close(value, rel=1e-9)
    scene, codes = case.scene(), codes_of(case, SMALL)
    slots = [
        sum(scalar.risk(scene, scene.slot_logits(slot), codes, 0.33).values())
        for slot in range(scene.slots)
    ]
    assert found["consistency"] == close(0.6 * sum(slots) / len(slots), rel=1e-9)


def test_self_labels_use_all_classes_alike_and_the_other_view_decides():
    case = make_case(
        replace(SMALL, rounds=200, novel_threshold=1.0, sharpness=0.2, balance_over="pool")
    )
    targets = case.method.decide(case.step())
    heads = SEEN + NOVEL
    first, second = targets.codes.chunk(2)
    for codes in (first, second):
        assert_close(codes.sum(0), torch.full((heads,), UNLABELED / heads, dtype=torch.float64))
        assert_close(codes.sum(1), torch.ones(UNLABELED, dtype=torch.float64))
    assert_close(targets.strong, (first + second) / 2)
    features = case.features.detach().clone()
    features[case.rows("unlabeled", 0)] = normal(UNLABELED, WIDTH, seed=9)
    others = case.method.decide(case.step(features)).codes.chunk(2)
    assert torch.equal(others[0], first)
    assert not torch.allclose(others[1], second)


def test_hard_classes_are_labels_and_self_labels_above_the_threshold():
    case = make_case(SMALL)
    targets = case.method.decide(case.step())
    assert targets.classes[case.rows("labeled", 0)].tolist() == list(LABELS)
    for view, codes in enumerate(targets.codes.chunk(2)):
        expected = [c.argmax().item() if c.max() >= 0.5 else NO_CLASS for c in codes]
        assert targets.classes[case.rows("unlabeled", view)].tolist() == expected
        novel = codes[codes[:, SEEN:].amax(-1) >= 0.5]
        assert len(novel) > 0
        assert set(novel.flatten().tolist()) <= {0.0, 1.0}
    assert targets.classes[case.rows("unlabeled", 2)].eq(NO_CLASS).all()


def test_a_level_whose_prototypes_are_the_classes_predicts_by_their_cosines():
    level = Level(Sizes(4, 4, 2), 4, 3, rng(0)).double()
    with torch.no_grad():
        level.prototypes.copy_(2 * torch.eye(4))
    cosines = normal(5, 4).tanh()
    axes = 3 * torch.eye(4, dtype=torch.float64)
    assert_close(level.by_class(cosines, axes[:, None]), cosines)
    twice = torch.stack([axes, -axes], 1)  # the likest slot counts
    expected = cosines @ torch.eye(4, dtype=torch.float64)
    assert_close(level.by_class(cosines, twice), expected)


@pytest.mark.parametrize(("per_super", "above"), [(1, 20), (5, 4), (7, 2), (100, 2)])
def test_the_numbers_of_prototypes_follow_the_classes(per_super, above):
    memory = replace(SMALL, sub_per_class=3, classes_per_super=per_super).memory(
        Sizes(6, 20, 10), rng(0)
    )
    assert memory.sub.prototypes.shape == (60, 6)
    assert memory.super.prototypes.shape == (above, 6)


def test_both_levels_learn_and_teach_the_features():
    case = make_case(SMALL)
    step = case.step()
    total(case.method.other_terms(step, case.method.decide(step))).backward()
    assert all(p.grad.norm() > 0 for p in case.memory.parameters())
    assert (case.features.grad.norm(dim=-1) > 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sub_per_class": 0}, r"^sub_per_class = 0 must be at least 1\.$"),
        ({"classes_per_super": 0}, r"^classes_per_super = 0 must be at least 1\.$"),
        ({"sharpness": 0.0}, r"^sharpness = 0.0 must be above 0\.$"),
        ({"rounds": 0}, r"^rounds = 0 must be at least 1\.$"),
        ({"novel_threshold": 1.5}, r"^novel_threshold = 1.5 must be above 0, at most 1\.$"),
        ({"align_weight": -1.0}, r"^align_weight = -1.0 must be at least 0\.$"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        Tida(**options)


def test_a_head_without_cosines_is_refused():
    with pytest.raises(InputError, match=r"^head\.kind = linear does not fit"):
        Tida().check(HeadSpec("linear"))
