"""OpenMatch: its loss against a scalar twin, and what it learns from."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
import torch
from torch.testing import assert_close

from builders import SEEN, UNLABELED, WIDTH, Case, make_case, normal, rng
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS, total
from protofission.methods import METHODS, OpenMatch, WithFission
from protofission.methods.openmatch import ova_entropy, soft_consistency
from protofission.methods.parts.one_vs_all import OneVsAll, OneVsAllOutput, ova_loss
from reference import openmatch as scalar

close = pytest.approx


def options_of(method: OpenMatch) -> dict[str, float]:
    return {field.name: getattr(method, field.name) for field in fields(method)}


def verdicts_of(inside: torch.Tensor) -> OneVsAllOutput:
    return OneVsAllOutput(inside.log(), (1 - inside).log())


def expected_terms(case: Case) -> scalar.Loss:
    scene, heads = case.scene(), case.memory.weight.tolist()
    options = options_of(case.method)
    return scalar.openmatch(scene, scene.max_logits, heads, progress=case.progress, **options)


OPTIONS = [
    {},
    {"threshold": 0.7},
    {"unknown_below": 0.9, "threshold": 0.9},
    {"fix_warmup": 0.6},
    {"unlabeled_weight": 0.3, "ova_weight": 0.4, "entropy_weight": 2.0, "socr_weight": 1.5},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_every_term_equals_its_twin(seed, options):
    case = make_case(OpenMatch(**options), seed)
    found = {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}
    expected = expected_terms(case)
    assert found == {name: close(value, rel=1e-9, abs=1e-12) for name, value in expected.items()}


def test_with_fission_slots_are_charged_with_the_same_inliers_and_the_heads_once():
    method = WithFission(OpenMatch(threshold=0.5), diversity_weight=0.0, consistency_weight=1.0)
    case = make_case(method, 1)
    scene, heads = case.scene(), case.memory.base.weight.tolist()
    options = options_of(method.base)

    def twin(logits):
        return scalar.openmatch(scene, logits, heads, progress=case.progress, **options)

    terms = {t.name: t.value.item() for t in method.terms(case.step())}
    slots = [twin(scene.slot_logits(slot)) for slot in range(scene.slots)]
    charged = sum(slot["supervised"] + slot["pseudo"] for slot in slots) / scene.slots
    assert charged == close(terms["consistency"])
    assert terms["ova"] == close(twin(scene.max_logits)["ova"])


@pytest.mark.parametrize("option", [field.name for field in fields(OpenMatch)])
def test_every_option_has_an_effect(option):
    changed = {
        "threshold": 0.999,
        "unknown_below": 0.02,
        "fix_warmup": 0.6,
    }
    case = make_case(OpenMatch(), 1)
    other = replace(case.method, **{option: changed.get(option, 3.0)})
    assert not torch.isclose(total(case.method.terms(case.step())), total(other.terms(case.step())))


def test_the_case_holds_inliers_and_outliers():
    """Or else equality with the twin would say little."""
    method = OpenMatch(unknown_below=0.9, threshold=0.9)
    targets = method.decide(make_case(method, 1).step())
    assert 0 < targets.trusted.sum() < targets.inliers.sum() < UNLABELED


def test_an_outlier_has_no_class_however_sure_the_classifier_is():
    case = make_case(OpenMatch(), 1)
    with torch.no_grad():
        case.memory.weight.zero_()
        case.memory.weight[:, 1] = case.features[case.rows("unlabeled", 0)[0]]
    step = case.step()
    targets = case.method.decide(step)
    assert targets.inliers[0] == 0
    assert step.unlabeled(targets.classes, 2)[0] == NO_CLASS
    term = next(t for t in case.method.charge(step, targets) if t.name == "pseudo")
    gradient = torch.autograd.grad(term.value, case.features)[0]
    assert gradient[case.rows("unlabeled", 2)[0]].norm() == 0


def test_in_the_warm_up_the_classifier_learns_from_labels_alone():
    case = make_case(OpenMatch(fix_warmup=0.4), 1, progress=0.39)
    targets = case.method.decide(case.step())
    assert targets.inliers.sum() == 0
    assert case.method.charge(case.step(), targets)[1].value == 0
    later = make_case(OpenMatch(fix_warmup=0.4), 1, progress=0.4)
    assert later.method.decide(later.step()).inliers.sum() > 0


def test_the_one_vs_all_loss_by_hand_counts_the_hardest_negative_alone():
    said = verdicts_of(torch.tensor([[0.8, 0.3, 0.1], [0.5, 0.9, 0.25]]))
    found = ova_loss(said, torch.tensor([0, 2]))
    assert found.tolist() == [
        close(-math.log(0.8) - math.log(0.7)),
        close(-math.log(0.25) - math.log(0.1)),
    ]


def test_entropy_and_consistency_by_hand():
    first = verdicts_of(torch.tensor([[0.5, 0.5], [0.5, 0.9]]))
    second = verdicts_of(torch.tensor([[0.5, 0.3], [0.5, 0.9]]))
    sure = -0.9 * math.log(0.9) - 0.1 * math.log(0.1)
    assert ova_entropy(first).tolist() == [close(math.log(2)), close((math.log(2) + sure) / 2)]
    assert soft_consistency(first, second).tolist() == [close(2 * 0.2**2), close(0, abs=1e-12)]


def test_losses_stay_finite_where_the_heads_are_certain():
    heads = OneVsAll(2, 2, rng(0))
    features = torch.tensor([[1e4, -1e4], [0.0, 1e4]], requires_grad=True)
    said = heads(features)
    loss = ova_loss(said, torch.tensor([0, 1])) + ova_entropy(said)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert features.grad.isfinite().all()


def test_only_the_difference_of_the_two_logits_of_a_class_counts():
    heads = OneVsAll(WIDTH, SEEN, rng(0)).double()
    features = normal(4, WIDTH)
    before = heads(features)
    with torch.no_grad():
        heads.weight += normal(SEEN, 1, WIDTH, seed=3)
    for a, b in zip(before, heads(features), strict=True):
        assert_close(a, b)


def test_the_own_score_is_the_outlier_probability_of_the_predicted_class():
    case = make_case(OpenMatch(), 1)
    output = case.head(case.features)
    scores = case.method.ood_score(output, case.memory, SEEN).sigmoid().tolist()
    for row, logits, score in zip(
        case.features.tolist(), output.logits.tolist(), scores, strict=True
    ):
        said = scalar.answers(row, case.memory.weight.tolist())
        assert score == close(said[logits.index(max(logits))][1])
    assert not case.method.ood_score(output, case.memory, SEEN).requires_grad


def test_the_pool_teaches_the_one_vs_all_heads_without_labels():
    """Entropy and consistency reach the heads; the classifier's risk does not."""
    case = make_case(OpenMatch(), 1)
    step = case.step()
    for term in case.method.terms(step):
        (gradient,) = torch.autograd.grad(
            term.value, case.memory.weight, retain_graph=True, allow_unused=True
        )
        assert (gradient is not None) == (term.name in ("ova", "ova_entropy", "socr"))


def test_defaults_are_the_authors():
    method = OpenMatch()
    assert (method.threshold, method.unknown_below) == (0.0, 0.5)
    assert (method.entropy_weight, method.socr_weight) == (0.1, 0.5)
    assert METHODS["openmatch+pf"] == WithFission(method)
    assert method.traits.views.unlabeled == ("weak", "weak", "strong")


@pytest.mark.parametrize("name", ["threshold", "unknown_below", "fix_warmup"])
def test_bad_options_are_refused_by_name(name):
    with pytest.raises(InputError, match=rf"^{name} = 1.5 must be between 0 and 1\.$"):
        OpenMatch(**{name: 1.5})
