"""The reading of NACH: near pairs, aligned probabilities, and a threshold for each group."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

from builders import LABELS, NOVEL, SEEN, UNLABELED, Case, make_case, normal
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS
from protofission.methods import Nach, WithFission
from protofission.methods.nach import likeness_of_classes
from reference import nach as scalar

close = pytest.approx
CONFIDENCE = [0.9, 0.5]


def case_of(method: Any, seed: int = 0) -> Case:
    """A case whose running means are away from their start."""
    case = make_case(method, seed)
    for name, buffer in case.memory.named_buffers():
        if name.endswith("use"):
            buffer.copy_(normal(SEEN + NOVEL, seed=seed + 3).softmax(-1))
        elif name.endswith("confidence"):
            buffer.copy_(torch.tensor(CONFIDENCE))
    return case


def use_of(case: Case) -> list[float]:
    return next(b for n, b in case.memory.named_buffers() if n.endswith("use")).tolist()


def terms_of(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


def twin(case: Case, method: Nach, logits: Any = None) -> dict[str, float]:
    options = {f.name: getattr(method, f.name) for f in fields(method) if f.name != "momentum"}
    scene = case.scene()
    use = use_of(case)
    return scalar.nach(scene, logits or scene.max_logits, use, CONFIDENCE, SEEN, **options)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"threshold": 0.6},
    {"pair_weight": 0.3},
    {"unlabeled_weight": 0.3, "threshold": 0.5},
    {"entropy_weight": 0.3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_every_term_equals_its_twin(options, seed):
    case = case_of(Nach(**options), seed)
    assert terms_of(case) == close(twin(case, case.method), rel=1e-9, abs=1e-12)


def test_with_fission_every_slot_meets_the_max_logits_of_the_partner():
    base = Nach(threshold=0.6)
    case = case_of(WithFission(base), 1)
    found, scene = terms_of(case), case.scene()
    slots = [sum(twin(case, base, scene.slot_logits(s)).values()) for s in range(scene.slots)]
    assert found["consistency"] == close(0.6 * sum(slots) / len(slots), rel=1e-9)


def test_the_cases_hold_pairs_and_images_of_all_kinds():
    found = [case_of(Nach(threshold=0.7), seed) for seed in range(6)]
    targets = [case.method.decide(case.step()) for case in found]
    assert {0.0, 1.0} == {p for t in targets for p in t.paired.tolist()}
    assert {0.0, 1.0} == {p for t in targets for p in t.trusted.tolist()}
    partners = [p for t in targets for p in t.partners.tolist()]
    assert min(partners) < len(LABELS) <= max(partners)
    sure = [t.pseudo_labels[t.trusted.bool()] for t in targets]
    assert {c >= SEEN for own in sure for c in own.tolist()} == {False, True}
    for case, own in zip(found, targets, strict=True):
        strong = own.classes[case.rows("unlabeled", 1)]
        assert strong.eq(NO_CLASS).tolist() == own.trusted.eq(0).tolist()
        assert own.classes[case.rows("labeled", 0)].tolist() == list(LABELS)


def test_novel_classes_have_the_lower_threshold_by_how_sure_they_are():
    case = case_of(Nach(threshold=0.9))
    assert case.method.thresholds(case.step()).tolist() == close([0.9, 0.9 * 5 / 9])
    case.memory.confidence.copy_(torch.tensor([0.5, 0.8]))
    assert case.method.thresholds(case.step()).tolist() == close([0.9, 0.9])


def test_alignment_makes_up_for_a_head_that_is_used_too_much():
    case = case_of(Nach())
    case.memory.use.copy_(torch.tensor([0.96, 0.01, 0.01, 0.01, 0.01]))
    step = case.step()
    plain = step.unlabeled(step.logits).softmax(-1)
    found = case.method.aligned(step)
    assert found.sum(-1).tolist() == close([1.0] * UNLABELED)
    assert (found[:, 0] < plain[:, 0]).all()
    ratios = found[:, 1:] / plain[:, 1:]
    assert torch.allclose(ratios, ratios[:, :1].expand_as(ratios))


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_the_running_means_move_as_their_twins_do(momentum):
    case = case_of(Nach(momentum=momentum), 2)
    step = case.step()
    expected = scalar.moved(case.scene(), use_of(case), CONFIDENCE, SEEN, momentum)
    case.method.update(step, case.method.decide(step))
    assert use_of(case) == close(expected[0])
    assert case.memory.confidence.tolist() == close(expected[1])


def test_the_likeness_of_classes_by_hand():
    units = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.0]])
    assert likeness_of_classes(units, torch.tensor([0, 1, 0, 0])).item() == close(
        (0.6 + 1.0 + 0.6) / 3
    )
    assert likeness_of_classes(units, torch.tensor([0, 1, 2, 3])).item() == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.0}, r"^threshold = 0.0 must be above 0, at most 1\.$"),
        ({"momentum": 1.0}, r"^momentum = 1.0 must be at least 0 and below 1\.$"),
        ({"pair_weight": -1.0}, r"^pair_weight = -1.0 must be at least 0\.$"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        Nach(**options)
