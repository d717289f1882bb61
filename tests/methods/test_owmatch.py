"""OwMatch: balanced self-labels that keep to the labels, and thresholds by class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from builders import LABELS, SEEN, UNLABELED, Case, make_case, normal, output_of, step_of
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS
from protofission.methods import OwMatch, WithFission
from protofission.methods.parts.balance import balance
from protofission.models.heads import HeadSpec
from reference import owmatch as scalar

close = pytest.approx
IMAGES = len(LABELS) + UNLABELED


def make(method: Any, seed: int = 0) -> Case:
    """A case whose memory has seen a few rows, and is not at its start."""
    case = make_case(method, seed)
    memory = case.memory if case.method is base_of(method) else case.memory.get_submodule("base")
    memory.get_buffer("queued").fill_(5)
    memory.get_buffer("earlier").copy_(normal(*memory.get_buffer("earlier").shape).tanh())
    memory.get_buffer("confidence").copy_(torch.tensor([0.99, 0.9]))
    memory.get_buffer("shares").copy_(torch.tensor([0.5, 0.3, 0.4, 0.2, 0.7]))
    return case


def base_of(method: Any) -> OwMatch:
    return method.base if isinstance(method, WithFission) else method


def twin(case: Case, slot: int | None = None) -> dict[str, float]:
    method, scene = base_of(case.method), case.scene()
    memory = case.memory if case.method is method else case.memory.get_submodule("base")
    buffers = {name: buffer.tolist() for name, buffer in memory.named_buffers()}
    queued = buffers["queued"]
    found = scalar.codes(
        scene,
        [rows[-queued:] if queued else [] for rows in buffers["earlier"]],
        sharpness=method.sharpness,
        rounds=method.rounds,
        queue=method.queue,
        conditional=method.conditional,
    )
    limits = scalar.thresholds(buffers["confidence"], buffers["shares"], SEEN, method.lowest)
    return scalar.loss(
        scene,
        scene.max_logits if slot is None else scene.slot_logits(slot),
        found,
        limits,
        self_label_weight=method.self_label_weight,
        pseudo_weight=method.pseudo_weight,
    )


def terms_of(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


OPTIONS: list[dict[str, Any]] = [
    {},
    {"self_label_weight": 0.3},
    {"pseudo_weight": 2.0},
    {"sharpness": 0.3},
    {"rounds": 1},
    {"queue": IMAGES + 2},
    {"queue": 3},
    {"conditional": False},
    {"lowest": 0.999},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_every_term_equals_its_twin_under_every_option(options, seed):
    case = make(OwMatch(**options), seed)
    found = terms_of(case)
    assert found == close(twin(case), rel=1e-9, abs=1e-12)
    if options:
        assert found != close(terms_of(make(OwMatch(), seed)), rel=1e-6)


def test_with_fission_slots_learn_the_same_self_labels():
    case = make(WithFission(OwMatch()), 1)
    found = {t.name: t.value.item() for t in case.method.terms(case.step())}
    expected = twin(case)
    assert {name: found[name] for name in expected} == close(expected, rel=1e-9)
    slots = [sum(twin(case, slot).values()) for slot in range(4)]
    assert found["consistency"] == close(sum(slots) / 4, rel=1e-9)


def test_the_cases_hold_all_kinds_of_images():
    targets = OwMatch().decide(make(OwMatch(), 1).step())
    assert 0 < targets.trusted.sum() < IMAGES


@pytest.mark.parametrize("rounds", [1, 3, 10])
def test_balance_equals_its_twin(rounds):
    scores = 3 * normal(7, 4)
    expected = scalar.balanced(scores.tolist(), rounds)
    assert_close(balance(scores, rounds), torch.tensor(expected, dtype=torch.float64))


def test_balance_uses_all_classes_alike_and_gives_each_row_a_whole():
    codes = balance(5 * normal(40, 4), 200)
    assert_close(codes.sum(1), torch.ones(40).double())
    assert_close(codes.sum(0), torch.full((4,), 10.0).double())


def test_balance_sees_no_constant_that_a_row_or_a_class_has_in_all_scores():
    scores = normal(6, 3)
    shifted = scores + normal(6, 1, seed=1) + normal(1, 3, seed=2)
    assert_close(balance(shifted, 300), balance(scores, 300))


def test_even_scores_give_even_self_labels():
    assert_close(balance(torch.zeros(5, 4), 1), torch.full((5, 4), 0.25))


def test_a_label_has_its_own_class_in_its_self_label():
    """Though the model says otherwise; without the condition it would follow the model."""
    wrong = -torch.eye(4)[[0, 0, 1, 2, 3]]
    for conditional, right in ((True, True), (False, False)):
        method = OwMatch(conditional=conditional)
        step = step_of(method, output_of(wrong.repeat(3, 1), temperature=10.0), [0, 0], 3)
        codes = method.decide(step).codes
        assert (codes[:2].argmax(1) == 0).all() == right


def test_each_view_learns_the_self_label_of_the_other():
    case = make(OwMatch())
    codes = case.method.decide(case.step()).codes
    changed = case.features.detach().clone()
    rows = case.rows("unlabeled", 1)
    changed[rows] = changed[rows].flip(0)
    moved = (case.method.decide(case.step(changed)).codes - codes).abs().amax(1) > 1e-9
    assert moved[:IMAGES].any()
    assert not moved[IMAGES:].any()


def test_the_queue_keeps_the_latest_rows_and_counts_them():
    method = OwMatch(queue=IMAGES + 3)
    case = make_case(method)
    step = case.step()
    earlier, queued = (case.memory.get_buffer(name) for name in ("earlier", "queued"))
    assert queued == 0
    method.update(step, method.decide(step))
    assert queued == IMAGES
    assert_close(earlier[:, 3:], method.scores(step))
    first = earlier[:, -3:].clone()
    method.update(step, method.decide(step))
    assert queued == IMAGES + 3
    assert_close(earlier[:, :3], first)


def test_the_scores_of_a_step_stay_as_they_are():
    case = make(OwMatch())
    step = case.step()
    before = step.output.nearest.detach().clone()
    case.method.update(step, case.method.decide(step))
    assert torch.equal(step.output.nearest, before)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_the_running_means_behind_the_thresholds_equal_their_twin(momentum, seed):
    case = make(OwMatch(momentum=momentum), seed)
    step = case.step()
    probs = step.both(step.logits, 1).softmax(-1).tolist()
    before = [case.memory.get_buffer(name).tolist() for name in ("confidence", "shares")]
    case.method.update(step, case.method.decide(step))
    expected = scalar.moved(probs, *before, SEEN, momentum)
    assert case.memory.get_buffer("confidence").tolist() == close(expected[0])
    assert case.memory.get_buffer("shares").tolist() == close(expected[1])


def test_a_group_that_nobody_is_taken_for_keeps_its_means():
    method = OwMatch()
    sure = torch.eye(5)[[0, 1, 2, 0]].repeat(3, 1)
    step = step_of(method, output_of(sure, temperature=10.0), [0], 3)
    before = {name: value.clone() for name, value in step.memory.named_buffers()}
    method.update(step, method.decide(step))
    assert step.memory.get_buffer("confidence")[1] == before["confidence"][1]
    assert torch.equal(step.memory.get_buffer("shares")[SEEN:], before["shares"][SEEN:])
    assert step.memory.get_buffer("confidence")[0] > before["confidence"][0]


def test_the_class_a_group_has_most_of_has_the_group_s_confidence_as_its_threshold():
    case = make(replace(OwMatch(), lowest=0.0))
    found = case.method.thresholds(case.step()).tolist()
    assert found == close([0.99, 0.99 * 0.6, 0.99 * 0.8, 0.9 * 2 / 7, 0.9])


def test_at_the_start_thresholds_are_even_and_at_least_the_lowest():
    case = make_case(OwMatch(lowest=0.4))
    assert case.method.thresholds(case.step()).tolist() == close([0.4, 0.4, 0.4, 0.5, 0.5])


def test_labels_and_trusted_strong_views_have_classes():
    case = make(OwMatch(), 1)
    targets = case.method.decide(case.step())
    for view in range(3):
        assert targets.classes[case.rows("labeled", view)].tolist() == list(LABELS)
    for view in range(2):
        assert targets.classes[case.rows("unlabeled", view)].eq(NO_CLASS).all()
    pool = slice(len(LABELS), None)
    expected = torch.where(targets.trusted[pool] > 0, targets.pseudo_labels[pool], NO_CLASS)
    assert torch.equal(targets.classes[case.rows("unlabeled", 2)], expected)


def test_without_novel_heads_there_is_one_group():
    method = OwMatch()
    step = step_of(method, output_of(normal(12, 3), temperature=10.0), [0, 1], 2)
    targets = method.decide(step)
    method.update(step, targets)
    assert targets.codes.isfinite().all()
    assert all(buffer.isfinite().all() for buffer in step.memory.buffers())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OwMatch(sharpness=0.0), r"^sharpness = 0.0 must be above 0\.$"),
        (lambda: OwMatch(momentum=1.0), r"^momentum = 1.0 must be at least 0 and below 1\.$"),
        (lambda: OwMatch(lowest=2.0), r"^lowest = 2.0 must be between 0 and 1\.$"),
        (lambda: OwMatch(rounds=0), r"^rounds = 0 must be at least 1\.$"),
        (lambda: OwMatch().check(HeadSpec("linear")), r"^head.kind = linear does not fit"),
    ],
)
def test_bad_options_and_heads_are_refused_by_name(make, message):
    with pytest.raises(InputError, match=message):
        make()
