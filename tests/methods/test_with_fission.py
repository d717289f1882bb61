"""Prototype Fission around every method: its limits, its invariances, its options."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from builders import (
    SEEN,
    WIDTH,
    Case,
    make_case,
    make_head,
    output_of,
    step_of,
)
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS, Sizes, total
from protofission.methods import (
    METHODS,
    FixMatch,
    FixMatchSigmoid,
    Method,
    Orca,
    Supervised,
    Traits,
    WithFission,
)
from protofission.models.heads import HeadSpec
from protofission.models.heads.cosine import CosineHead
from reference import methods as scalar

BASES = {name: m.base for name, m in METHODS.items() if isinstance(m, WithFission)}
ADDED = ("consistency", "diversity", "local_diversity")


@pytest.mark.parametrize(
    "base",
    [m for m in METHODS.values() if not isinstance(m, WithFission)],
    ids=lambda method: type(method).__name__,
)
def test_the_traits_are_the_base_s_but_for_the_head(base: Method[Any]) -> None:
    wrapped = WithFission(base)
    assert replace(wrapped.traits, head=base.traits.head) == base.traits
    assert wrapped.traits.head == replace(base.traits.head, kind="fission")
    assert wrapped.sigma == base.sigma == base.traits.sigma


@pytest.mark.parametrize("trait", [part.name for part in fields(Traits) if part.name != "head"])
def test_a_trait_that_no_method_has_is_forwarded(trait: str) -> None:
    value = object()
    own = type("Own", (Supervised,), {"traits": replace(Traits(), **{trait: value})})
    assert getattr(WithFission(own()).traits, trait) is value


def test_every_function_of_a_method_is_written_for_fission_but_the_sum_of_two():
    functions = {name for name, part in vars(Method).items() if inspect.isfunction(part)}
    generated = {name for name in functions if name.startswith("__")}
    assert functions - generated - set(vars(WithFission)) == {"terms"}


def cosine_twin(case: Case) -> Case:
    """The base method on a cosine head whose weight is the effective prototype."""
    head = case.head
    twin = make_case(case.method.base, head=HeadSpec("cosine"))
    cosine = CosineHead(
        WIDTH, len(head.g), temperature=head.temperature, offset=head.offset
    ).double()
    with torch.no_grad():
        cosine.weight.copy_(head.prototypes().combined[:, 0])
    features = case.features.detach().clone().requires_grad_()
    memory = case.memory.get_submodule("base")
    return replace(twin, head=cosine, features=features, memory=memory)


def loss_of_the_model(case: Case) -> Tensor:
    """All terms, but for what follows an inner step: it moves g, l and delta, not a weight."""
    step = case.step()
    targets = case.method.decide(step)
    inner = case.method.other_terms(step, targets) if case.method.traits.inner_step else ()
    names = {term.name for term in inner}
    return total([t for t in case.method.charge(step, targets) if t.name not in names])


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("seed", range(3))
def test_one_prototype_without_consistency_is_the_base_method_on_a_cosine_head(name, seed):
    base = BASES[name]
    method = WithFission(base, consistency_weight=0.0, diversity_weight=0.5)
    case = make_case(method, seed, head=replace(method.traits.head, prototypes=1))
    twin = cosine_twin(case)
    assert_close(case.step().logits, twin.step().logits)
    losses = [loss_of_the_model(c) for c in (case, twin)]
    assert_close(*losses)
    for loss in losses:
        loss.backward()
    assert twin.features.grad.norm() > 1e-3
    assert_close(case.features.grad, twin.features.grad)


@pytest.mark.parametrize("name", BASES)
def test_one_prototype_makes_consistency_the_max_risk_and_the_diversities_zero(name):
    base = BASES[name]
    if isinstance(base, FixMatchSigmoid):
        base = replace(base, ood_on="slots")
    case = make_case(
        WithFission(base), head=replace(base.traits.head, kind="fission", prototypes=1)
    )
    step = case.step()
    targets = case.method.decide(step)
    terms = {term.name: term for term in case.method.charge(step, targets)}
    on_max = total(case.method.risk(step, targets, step.logits))  # what sees no logits is no risk
    assert_close(terms["consistency"].value, on_max)
    assert terms["diversity"].value.item() == 0
    assert terms["local_diversity"].value.item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", BASES)
def test_max_logits_and_slots_are_charged_as_if_each_were_alone(name):
    case = make_case(WithFission(BASES[name]))
    step = case.step()
    targets = case.method.decide(step)
    terms = case.method.charge(step, targets)
    for found, alone in zip(terms, case.method.risk(step, targets, step.logits), strict=False):
        assert (found.name, found.weight) == (alone.name, alone.weight)
        assert_close(found.value, alone.value)
    own = BASES[name].slot_targets(targets)
    slots = step.output.slot_logits.unbind(-1)
    each = torch.stack([total(case.method.risk(step, own, logits)) for logits in slots])
    assert_close({term.name: term.value for term in terms}["consistency"], each.mean())


def reordered(case: Case, order: list[int], classes: slice) -> Case:
    """The same case with the slots of some classes in another order, everywhere."""
    head = make_head(HeadSpec("fission", prototypes=4), len(case.head.g), 0)
    head.load_state_dict(case.head.state_dict())
    head.temperature, head.offset = case.head.temperature, case.head.offset
    with torch.no_grad():
        head.l[classes] = head.l[classes][:, order]
        head.delta[classes] = head.delta[classes][:, order]
    return replace(case, head=head)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("negatives", ["same_slot", "max_slot", "all"])
def test_slots_of_all_classes_in_another_order_change_no_term_of_any_method(name, negatives):
    case = make_case(WithFission(BASES[name], consistency_negatives=negatives))
    other = reordered(case, [2, 0, 3, 1], slice(None))
    for a, b in zip(case.method.terms(case.step()), case.method.terms(other.step()), strict=True):
        assert_close(b.value, a.value, msg=a.name)


@pytest.mark.parametrize(
    ("name", "negatives", "matters"),
    [
        ("supervised+pf", "same_slot", True),
        ("fixmatch+pf", "same_slot", True),
        ("orca+pf", "same_slot", True),
        ("fixmatch-sigmoid+pf", "same_slot", False),  # one-vs-all: no class meets another
        ("supervised+pf", "max_slot", False),
        ("supervised+pf", "all", False),
        ("fixmatch+pf", "max_slot", False),
    ],
)
def test_slots_of_one_class_in_another_order_change_consistency_alone(name, negatives, matters):
    """And consistency only where slot i of one class meets slot i of another."""
    case = make_case(WithFission(BASES[name], consistency_negatives=negatives))
    other = reordered(case, [2, 0, 3, 1], slice(1, 2))
    for a, b in zip(case.method.terms(case.step()), case.method.terms(other.step()), strict=True):
        if a.name == "consistency" and matters:
            assert abs(a.value - b.value) > 1e-4
        else:
            assert_close(b.value, a.value, msg=a.name)


def terms_of(case: Case) -> dict[str, float]:
    return {term.name: term.value.item() for term in case.method.terms(case.step())}


def test_zero_weights_leave_the_base_method():
    """On the same head, whatever V."""
    for base in BASES.values():
        case = make_case(WithFission(base, consistency_weight=0.0, diversity_weight=0.0))
        plain = replace(case, method=base, memory=case.memory.get_submodule("base"))
        assert_close(total(case.method.terms(case.step())), total(base.terms(plain.step())))


@pytest.mark.parametrize(
    ("options", "idle"),
    [
        ({"consistency_weight": 0.0}, {"consistency"}),
        ({"diversity_weight": 0.0}, {"diversity", "local_diversity"}),
        ({"local_diversity_weight": 0.0}, {"local_diversity"}),
    ],
)
@pytest.mark.parametrize("name", BASES)
def test_a_term_without_weight_is_reported_and_asks_for_no_gradient(name, options, idle):
    full, case = (make_case(WithFission(BASES[name], **o)) for o in ({}, options))
    expected = {t.name: t.value for t in full.method.terms(full.step())}
    terms = case.method.terms(case.step())
    assert [t.name for t in terms] == list(expected)
    for term in terms:
        assert_close(term.value.detach(), expected[term.name].detach())
        learns = expected[term.name].requires_grad and term.name not in idle
        assert term.value.requires_grad == learns
    with torch.no_grad():
        assert not any(t.value.requires_grad for t in full.method.terms(full.step()))


def test_slots_are_charged_against_the_partner_s_max_logits():
    """Eq. 13, by hand: one unlabeled and one labeled image, two heads, two slots."""
    method = WithFission(Orca(pair_labeled=False, entropy_weight=0, margin_cap=0))
    view1 = torch.tensor([[[0.0, 0.0], [0.0, 0.0]], [[2.0, 1.0], [0.5, 1.5]]])  # labeled, unlabeled
    view2 = torch.tensor([[[1.0, 3.0], [0.0, -1.0]], [[0.0, 0.0], [0.0, 0.0]]])
    step = step_of(method, output_of(torch.cat([view1, view2]).double()), [0], 1)
    theirs = torch.tensor([3.0, 0.0]).double().softmax(-1)  # of the labeled partner, view 2
    slots = torch.tensor([[2.0, 0.5], [1.0, 1.5]]).double()
    pairs = -(slots.softmax(-1) @ theirs).log().mean()
    supervised = torch.tensor(2.0).log()  # slots of the labeled image say nothing
    found = {term.name: term.value for term in method.terms(step)}
    assert found["consistency"].item() == pytest.approx((supervised + pairs).item())
    best = -(torch.tensor([2.0, 1.5]).double().softmax(-1) @ theirs).log()
    assert found["pairs"].item() == pytest.approx(best.item())


def test_what_a_slot_is_compared_with_by_hand():
    sims = torch.tensor([[[0.1, 0.4], [0.3, 0.2]], [[0.5, 0.6], [0.8, 0.7]]]).double()
    output, classes = output_of(sims, temperature=2.0), torch.tensor([1, NO_CLASS])
    same = WithFission(Supervised()).logits_by_slot(output, classes)
    assert_close(same, 2 * sims)
    nearest = WithFission(Supervised(), consistency_negatives="max_slot").logits_by_slot(
        output, classes
    )
    assert nearest[0].flatten().tolist() == pytest.approx([0.8, 0.8, 0.6, 0.4])
    assert_close(nearest[1], 2 * sims[1])
    every = WithFission(Supervised(), consistency_negatives="all").logits_by_slot(output, classes)
    both = torch.tensor([0.2, 0.8]).exp().sum().log().item()
    assert every[0].flatten().tolist() == pytest.approx([both, both, 0.6, 0.4])
    assert_close(every[1], 2 * sims[1])


def test_images_taken_for_ood_stay_out_of_diversity_and_of_the_slots():
    """Eq. 9 replaces L for them."""
    case = make_case(WithFission(FixMatchSigmoid(literal=True), diversity_weight=1.0))
    targets = case.method.decide(case.step())
    assert targets.ood.sum() > 0
    terms = {t.name: t.value for t in case.method.charge(case.step(), targets)}
    (terms["consistency"] + terms["diversity"]).backward()
    strong = torch.tensor(case.rows("unlabeled", 1))
    assert case.features.grad[strong[targets.ood.bool()]].eq(0).all()
    assert case.features.grad[strong[targets.trusted.bool()]].norm() > 0


def test_novel_classes_can_be_left_undivided():
    """Hard classes beyond the seen ones count, unless the option says otherwise."""
    terms = [
        terms_of(make_case(WithFission(Orca(hard_threshold=0.6), diversity_classes=which), 1))
        for which in ("all", "seen")
    ]
    assert abs(terms[0]["diversity"] - terms[1]["diversity"]) > 1e-3


def test_a_class_of_too_few_rows_is_left_out_of_diversity():
    """Class 2 has one labeled row."""
    found = [
        terms_of(make_case(WithFission(Supervised(), diversity_min_samples=least)))["diversity"]
        for least in (1, 2, 3, 4)
    ]
    assert len({round(value, 6) for value in found}) == 4
    assert found[-1] == 0


@pytest.mark.parametrize("base", [Supervised(), FixMatch(threshold=0.6), Orca(hard_threshold=0.6)])
@pytest.mark.parametrize("which", ["all", "seen"])
def test_the_running_usage_follows_its_twin(base, which):
    method = WithFission(
        base, diversity_scope="ema", diversity_momentum=0.8, diversity_classes=which
    )
    case = make_case(method, 1)
    before = case.memory.usage.tolist()
    step = case.step()
    method.update(step, method.decide(step))
    scene = case.scene()
    match base:
        case Orca():
            classes = scalar.orca_classes(scene, 0.6)
        case FixMatch():
            classes = scalar.fixmatch_classes(scene, scalar.softmax, 0.6)
        case _:
            classes = scene.label_classes()
    divided, assigned = scalar.divide(scene, classes, SEEN, which, 10.0)
    expected = scalar.running_usage(before, assigned, divided, 0.8)
    assert_close(case.memory.usage, torch.tensor(expected, dtype=torch.float64))
    assert not case.memory.usage.requires_grad
    if which == "seen":
        assert case.memory.usage[SEEN:].tolist() == before[SEEN:]


def test_the_running_usage_starts_even_and_its_loss_is_that_of_the_blend():
    method = WithFission(Supervised(), diversity_scope="ema", diversity_momentum=0.9)
    assert (
        method.memory(Sizes(6, 3, 3, 5), torch.Generator()).usage.tolist()
        == [[pytest.approx(0.2)] * 5] * 3
    )
    sims = torch.tensor([[[9.0, 0.0]] * 3]).double()  # sure of slot 0; two classes absent
    step = step_of(method, output_of(sims), [0], 0)
    diversity = method.diversity(step, method.decide(step))
    blend = torch.tensor([0.9 * 0.5 + 0.1, 0.9 * 0.5]).double()
    assert diversity.item() == pytest.approx((blend * (2 * blend).log()).sum().item(), rel=1e-5)


def test_deciding_and_charging_leave_the_memory_alone():
    for base in BASES.values():
        case = make_case(WithFission(base, diversity_scope="ema"))
        before = {name: b.clone() for name, b in case.memory.named_buffers()}
        case.method.terms(case.step())
        for name, buffer in case.memory.named_buffers():
            assert torch.equal(buffer, before[name])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WithFission(WithFission(Orca())), "already carries fission"),
        (lambda: WithFission(Orca(), consistency_weight=-1), "^consistency_weight = -1 "),
        (lambda: WithFission(Orca(), diversity_weight=-0.5), "^diversity_weight = -0.5 "),
        (lambda: WithFission(Orca(), diversity_momentum=1.0), "^diversity_momentum = 1.0 "),
        (
            lambda: WithFission(Orca(), diversity_scope="ema", diversity_reduce="per_sample"),
            "has no per_sample form",
        ),
        (lambda: WithFission(Orca(), prior=(0.5, 0.6)), r"^prior = \(0.5, 0.6\) "),
        (lambda: WithFission(Orca(), prior=(1.0, 0.0)), r"^prior = \(1.0, 0.0\) "),
        (
            lambda: WithFission(Orca(), prior=(0.5, 0.5)).check(HeadSpec("fission", prototypes=4)),
            "each of the 4 prototypes",
        ),
    ],
)
def test_bad_options_are_refused_by_name(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WithFission(Orca(), prior=()), r"prior = \(\) must be positive"),
        (
            lambda: WithFission(Orca(), assign_temperature=-1),
            "assign_temperature = -1 must be above",
        ),
        (lambda: WithFission(Orca(), diversity_min_samples=0), "diversity_min_samples = 0"),
        (lambda: Orca(entropy_weight=-1), "entropy_weight = -1 must be at least 0"),
        (
            lambda: WithFission(Orca(), diversity_scope="ema", diversity_reduce="per_sample"),
            "choose one of the two",
        ),
    ],
)
def test_options_without_a_meaning_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
