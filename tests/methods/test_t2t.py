"""T2T: matches of images with classes, the division of the pool, and what follows from it."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from builders import LABELS, SEEN, WIDTH, Case, make_case, normal, output_of, rng
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS, Sizes, Survey
from protofission.methods.t2t import T2T, doubt_loss, matching_loss, otsu
from protofission.methods.with_fission import WithFission
from reference import t2t as scalar

close = pytest.approx


def case_of(method: Any, seed: int = 0, threshold: float = 0.4, **options: Any) -> Case:
    case = make_case(method, seed, **options)
    for name, buffer in case.memory.named_buffers():
        if name.endswith("threshold"):
            buffer.fill_(threshold)
    return case


def terms_of(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


OPTIONS = [
    {},
    {"threshold": 0.5, "sharpen_temperature": 1.5, "agreement_weight": 0.7},
    {"threshold": 0.0, "matching_weight": 0.3, "doubt_weight": 1.9, "pretext_weight": 0.2},
    {"threshold": 0.0, "warmup": 0.4, "ramp": 0.5, "pretext_temperature": 0.1, "hidden": 3},
    {"threshold": 0.0, "warmup": 0.5, "ramp": 0.0},
    {"threshold": 0.0, "warmup": 0.6},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_every_term_equals_its_twin(options, seed):
    case = case_of(T2T(**options), seed)
    weights = {name: p.tolist() for name, p in case.memory.named_parameters()}
    limit = case.memory.threshold.item()
    expected = scalar.t2t(
        case.scene(), weights, limit, progress=case.progress, **asdict(case.method)
    )
    assert terms_of(case) == {name: close(value) for name, value in expected.items()}


def test_the_cases_hold_trusted_images_and_others():
    targets = [
        c.method.decide(c.step()) for c in (case_of(T2T(threshold=0.5), s) for s in range(3))
    ]
    trusted = torch.cat([t.trusted for t in targets])
    assert 0 < trusted.sum() < len(trusted)


def test_an_image_is_trusted_if_it_is_sure_and_matches_and_the_warm_up_is_over():
    for threshold, progress, expected in (
        (0.0, 0.5, True),
        (1.0, 0.5, False),
        (0.0, 0.1, False),
    ):
        case = case_of(T2T(threshold=0.0), threshold=threshold, progress=progress)
        targets = case.method.decide(case.step())
        assert targets.trusted.bool().all() == expected
        assert targets.trusted.bool().any() == expected
        strong = targets.classes[case.rows("unlabeled", 1)]
        assert torch.equal(strong, torch.where(targets.trusted > 0, targets.likeliest, NO_CLASS))
        assert targets.classes[case.rows("unlabeled", 0)].eq(NO_CLASS).all()
        assert targets.classes[case.rows("labeled", 0)].tolist() == list(LABELS)


@pytest.mark.parametrize(
    ("progress", "strength"), [(0.0, 0), (0.19, 0), (0.2, 0), (0.28, 0.5), (0.36, 1), (0.9, 1)]
)
def test_the_pool_s_losses_rise_after_the_warm_up(progress, strength):
    method = T2T()
    assert method.strength(progress) == close(strength)
    case = case_of(method, progress=progress)
    weights = {t.name: t.weight for t in method.terms(case.step())}
    assert weights["agreement"] == close(strength)
    assert weights["doubt"] == close(strength)
    assert weights["pretext"] == weights["matching"] == 1


def test_the_matching_loss_by_hand():
    """Own class even odds, hard class e : 1, two easy classes at odds of 1 : 3."""
    scores = torch.tensor([[0.0, 1.0, -math.log(3), -math.log(3)]])
    found = matching_loss(scores, torch.tensor([0]), torch.tensor([1]))
    expected = math.log(2) + math.log(1 + math.e) + math.log(4 / 3)
    assert found.item() == close(expected / 3)
    two = matching_loss(scores[:, :2], torch.tensor([0]), torch.tensor([1]))
    assert two.item() == close((math.log(2) + math.log(1 + math.e)) / 3)


def test_the_doubt_by_hand():
    """Even odds are one bit of doubt, certainty none, whichever way it goes."""
    scores = torch.tensor([[0.0, 60.0, -60.0]])
    assert doubt_loss(scores, torch.tensor([0])).item() == close(math.log(2) / 2)
    assert doubt_loss(scores, torch.tensor([1])).item() == close(math.log(2) / 4)


def test_the_hard_class_is_the_likeliest_wrong_one():
    case = case_of(T2T())
    targets = case.method.decide(case.step())
    logits = case.step().logits[case.rows("labeled", 0)]
    for row, y, hard in zip(logits.tolist(), LABELS, targets.hard.tolist(), strict=True):
        assert hard == max((c for c in range(SEEN) if c != y), key=lambda c: row[c])


@pytest.mark.parametrize("seed", range(5))
def test_otsu_finds_the_cut_that_brute_force_finds(seed):
    values = torch.cat([0.2 * normal(17, seed=seed), 1 + 0.3 * normal(9, seed=seed + 1)])
    assert otsu(values).item() == close(scalar.otsu(values.tolist()))


def test_otsu_divides_two_groups_between_them():
    values = torch.tensor([0.9, 0.1, 0.8, 0.2, 0.15])
    assert otsu(values).item() == close(0.2)
    assert otsu(torch.tensor([0.7])).item() == close(0.7)


def test_the_survey_divides_the_whole_pool_by_its_matches():
    method = T2T()
    memory = method.memory(Sizes(WIDTH, SEEN, SEEN), rng(0)).double()
    chunks = [output_of(normal(n, SEEN, seed=n), normal(n, WIDTH, seed=n)) for n in (9, 4)]
    method.survey(memory, Survey([], torch.empty(0, dtype=torch.long), chunks))
    weights = {name: p.tolist() for name, p in memory.named_parameters()}
    matches = [
        scalar.match(weights, row, logits.index(max(logits)))
        for chunk in chunks
        for row, logits in zip(chunk.features.tolist(), chunk.logits.tolist(), strict=True)
    ]
    assert memory.threshold.item() == close(scalar.otsu(matches))


def test_the_score_is_the_mismatch_with_the_predicted_class():
    case = case_of(T2T())
    output = case.step().output
    found = case.method.ood_score(output, case.memory, SEEN)
    weights = {name: p.tolist() for name, p in case.memory.named_parameters()}
    for row, logits, score in zip(
        output.features.tolist(), output.logits.tolist(), found.tolist(), strict=True
    ):
        chance = scalar.match(weights, row, logits.index(max(logits)))
        assert score == close(-math.log(chance / (1 - chance)))
    assert not found.requires_grad


def test_all_but_agreement_and_labels_is_charged_once_whatever_the_head():
    case = case_of(WithFission(T2T(threshold=0.0)))
    terms = {t.name: t for t in case.method.terms(case.step())}
    on_max = terms["supervised"].value + terms["agreement"].value
    one = replace(case.method, consistency_weight=1.0)
    single = make_case(one, head=replace(one.traits.head, prototypes=1))
    charged = {t.name: t.value for t in single.method.terms(single.step())}
    total_risk = charged["supervised"] + charged["agreement"]
    assert charged["consistency"].item() == close(total_risk.item())
    assert on_max.isfinite()
    assert {"matching", "doubt", "pretext"} <= terms.keys()


def test_the_pretext_task_learns_from_images_that_are_not_trusted():
    case = case_of(T2T(), progress=0.0)
    terms = {t.name: t.value for t in case.method.terms(case.step())}
    terms["pretext"].backward()
    moved = case.features.grad.norm(dim=-1) > 0
    assert moved[case.rows("unlabeled", 0) + case.rows("unlabeled", 1)].all()
    assert not moved[case.rows("labeled", 0)].any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T2T(threshold=1.5), "^threshold = 1.5 must be between 0 and 1"),
        (lambda: T2T(warmup=-0.1), "^warmup = -0.1 must be between 0 and 1"),
        (lambda: T2T(ramp=2.0), "^ramp = 2.0 must be between 0 and 1"),
        (lambda: T2T(hidden=0), "^hidden = 0 must be at least 1"),
        (lambda: T2T(sharpen_temperature=0), "^sharpen_temperature = 0 must be above 0"),
        (lambda: T2T(doubt_weight=-1), "^doubt_weight = -1 must be at least 0"),
        (lambda: T2T().memory(Sizes(4, 1, 1), rng(0)), "one class only"),
    ],
)
def test_bad_options_are_refused_by_name(make, message):
    with pytest.raises(InputError, match=message):
        make()
