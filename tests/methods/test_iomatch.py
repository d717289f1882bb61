"""IOMatch: its loss against a scalar twin, and how its open-set targets are made."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from builders import SEEN, UNLABELED, Case, make_case, normal
from protofission.core.errors import InputError
from protofission.core.records import total
from protofission.methods import METHODS, IOMatch, WithFission
from protofission.methods.iomatch import align, open_targets
from protofission.methods.parts.one_vs_all import OneVsAllOutput
from reference import iomatch as scalar

close = pytest.approx


def options_of(method: IOMatch) -> dict[str, Any]:
    return {field.name: getattr(method, field.name) for field in fields(method)}


def case_of(method: Any, seed: int = 1, **others: Any) -> Case:
    """A case whose heads are away from their start, with a few batches remembered."""
    case = make_case(method, seed, **others)
    memory = case.memory.base if isinstance(method, WithFission) else case.memory
    with torch.no_grad():
        for number, parameter in enumerate(memory.parameters()):
            parameter.add_(0.3 * normal(*parameter.shape, seed=number))
        memory.recent[-3:] = normal(len(memory.recent[-3:]), SEEN, seed=9).softmax(-1)
    return case


def twin(case: Case, method: IOMatch, memory: Any, logits: Any = None) -> scalar.Loss:
    scene = case.scene()
    names = ("hidden", "hidden_bias", "projection", "projection_bias")
    parts = [getattr(memory, name).tolist() for name in names]
    others = [p.tolist() for p in (memory.binary.weight, memory.open, memory.open_bias)]
    recent = [row for row in memory.recent.tolist() if any(row)]
    return scalar.iomatch(
        scene,
        logits or scene.max_logits,
        scalar.Net(*parts, *others),
        recent,
        progress=case.progress,
        **options_of(method),
    )


OPTIONS = [
    {},
    {"p_cut": 0.6, "q_cut": 0.7},
    {"p_cut": 0.6, "outlier_below": 0.9},
    {"q_cut": 0.2, "align": False},
    {"align_batches": 2, "p_cut": 0.6},
    {"open_warmup": 0.6},
    {"width": 7, "unlabeled_weight": 0.4, "binary_weight": 2.0, "open_weight": 1.7},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_every_term_equals_its_twin(seed, options):
    case = case_of(IOMatch(**options), seed)
    found = {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}
    expected = twin(case, case.method, case.memory)
    assert found == {name: close(value, rel=1e-9, abs=1e-12) for name, value in expected.items()}


def test_with_fission_slots_are_charged_with_the_same_targets_and_the_heads_once():
    method = WithFission(IOMatch(p_cut=0.6), diversity_weight=0.0, consistency_weight=1.0)
    case = case_of(method)
    scene, base = case.scene(), case.memory.base
    terms = {t.name: t.value.item() for t in method.terms(case.step())}
    slots = [twin(case, method.base, base, scene.slot_logits(s)) for s in range(scene.slots)]
    charged = sum(slot["supervised"] + slot["pseudo"] for slot in slots) / scene.slots
    assert terms["consistency"] == close(charged)
    whole = twin(case, method.base, base)
    assert (terms["open"], terms["binary"]) == (close(whole["open"]), close(whole["binary"]))


@pytest.mark.parametrize("option", [f.name for f in fields(IOMatch) if f.name != "width"])
def test_every_option_has_an_effect(option):
    changed = {
        "p_cut": 0.999999,
        "q_cut": 0.99,
        "outlier_below": 0.05,
        "align": False,
        "align_batches": 1,
        "open_warmup": 0.6,
    }
    case = case_of(IOMatch(p_cut=0.6))
    other = replace(case.method, **{option: changed.get(option, 3.0)})
    memory = case.memory
    if option == "align_batches":
        memory = case_of(other).memory
    step = case.step()
    mine = total(case.method.terms(step))
    assert not torch.isclose(mine, total(other.terms(replace(step, memory=memory))))


def test_the_width_is_that_of_the_projection():
    assert make_case(IOMatch(width=7)).memory.projection.shape[0] == 7


def test_the_case_holds_inliers_and_outliers():
    """Or else equality with the twin would say little."""
    method = IOMatch(p_cut=0.6, q_cut=0.7)
    targets = method.decide(case_of(method).step())
    assert 0 < targets.trusted.sum() < UNLABELED
    assert 0 < targets.sure.sum() < UNLABELED
    taken_for_outliers = targets.opened.argmax(1) == SEEN
    assert 0 < (taken_for_outliers & targets.sure.bool()).sum() < targets.sure.sum()


def test_open_set_targets_by_hand_are_a_distribution():
    closed = torch.tensor([[0.7, 0.3]])
    inside = torch.tensor([[0.9, 0.2]])
    found = open_targets(closed, OneVsAllOutput(inside.log(), (1 - inside).log()))
    assert found.tolist() == [[close(0.63), close(0.06), close(0.07 + 0.24)]]
    assert found.sum().item() == close(1)


def test_alignment_divides_by_the_usual_and_does_not_see_its_scale():
    probs = torch.tensor([[0.6, 0.4], [0.9, 0.1]])
    usual = torch.tensor([0.75, 0.25])
    assert align(probs, usual)[0].tolist() == [close(0.8 / 2.4), close(1.6 / 2.4)]
    assert_close(align(probs, usual), align(probs, 7 * usual))
    assert_close(align(probs, torch.ones(2)), probs)


def test_a_class_that_nobody_was_given_does_not_break_alignment():
    found = align(torch.tensor([[1.0, 0.0]]), torch.tensor([1.0, 0.0]))
    assert found.tolist() == [[1, 0]]


def test_the_memory_of_batches_forgets_the_oldest():
    case = make_case(IOMatch(align_batches=2), 1)
    means = []
    for seed in range(3):
        step = case.step(case.features.detach() * (seed + 1))
        means.append(step.unlabeled(step.logits, 0).softmax(-1).mean(0))
        case.method.update(step, case.method.decide(step))
    assert_close(case.memory.recent, torch.stack(means[-2:]).detach())


def test_the_open_set_head_rests_in_the_warm_up():
    case = case_of(IOMatch(open_warmup=0.5), progress=0.49)
    assert case.method.decide(case.step()).sure.sum() == 0
    case = case_of(IOMatch(open_warmup=0.5), progress=0.5)
    assert case.method.decide(case.step()).sure.sum() > 0


def test_outliers_teach_the_open_set_head_and_not_the_classifier():
    case = case_of(IOMatch(p_cut=0.6))
    step = case.step()
    targets = case.method.decide(step)
    terms = {t.name: t.value for t in case.method.charge(step, targets)}
    strong = case.rows("unlabeled", 1)
    moved = {
        name: torch.autograd.grad(terms[name], case.features, retain_graph=True)[0][strong]
        .norm(dim=-1)
        .gt(0)
        for name in ("pseudo", "open")
    }
    assert torch.equal(moved["pseudo"], targets.trusted.bool())
    assert torch.equal(moved["open"], targets.sure.bool())
    assert (targets.opened[targets.trusted.bool(), -1] < 0.5).all()


def test_the_own_score_is_the_probability_of_the_last_class():
    case = case_of(IOMatch())
    output = case.head(case.features)
    found = case.method.ood_score(output, case.memory, SEEN)
    expected = case.memory(case.features).open_logits.softmax(-1)[:, -1]
    assert_close(found.sigmoid(), expected.detach())
    assert not found.requires_grad


def test_defaults_are_the_authors():
    method = IOMatch()
    assert (method.p_cut, method.q_cut, method.align, method.align_batches) == (
        0.95,
        0.5,
        True,
        128,
    )
    assert (method.unlabeled_weight, method.binary_weight, method.open_weight) == (1, 1, 1)
    assert METHODS["iomatch+pf"] == WithFission(method)


@pytest.mark.parametrize("name", ["p_cut", "q_cut", "outlier_below", "open_warmup"])
def test_bad_shares_are_refused_by_name(name):
    with pytest.raises(InputError, match=rf"^{name} = -1 must be between 0 and 1\.$"):
        IOMatch(**{name: -1})


@pytest.mark.parametrize("name", ["width", "align_batches"])
def test_bad_sizes_are_refused_by_name(name):
    with pytest.raises(InputError, match=rf"^{name} = 0 must be at least 1\.$"):
        IOMatch(**{name: 0})
