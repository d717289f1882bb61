"""RankStats: labels first, then pairs by the largest features, over one head for all classes."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from builders import LABELS, SEEN, UNLABELED, Case, make_case, normal, output_of, step_of
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS, total
from protofission.methods import RankStats, WithFission
from protofission.methods.rankstats import TINY, pair_risk, same_top
from protofission.training.presets import preset
from reference import rankstats as scalar
from reference.methods import Logits, Loss, with_fission

close = pytest.approx


def weighted(case: Case) -> dict[str, float]:
    return {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}


def twin(case: Case, base: RankStats) -> Loss:
    scene = case.scene()

    def loss(logits: Logits, slots: bool = False) -> Loss:
        options = {"num_seen": SEEN, "progress": case.progress, **asdict(base)}
        return scalar.rankstats(scene, logits, **options)

    if case.method is base:
        return loss(scene.max_logits)
    classes = scalar.rankstats_classes(
        scene,
        progress=case.progress,
        transfer_share=base.transfer_share,
        hard_threshold=base.hard_threshold,
    )
    return with_fission(
        scene,
        loss,
        classes,
        case.head.l.tolist(),
        num_seen=SEEN,
        remembered=[],
        diversity_weight=case.method.diversity_weight,
    )


OPTIONS = [
    {},
    {"top": 2, "pair_weight": 0.4},
    {"top": 1, "view_weight": 3.0, "ramp": 0.9},
    {"top": 3, "ramp": 0.0, "hard_threshold": 0.4},
    {"top": 2, "transfer_share": 0.15},
    {"transfer_share": 0.0},
]
STAGES = (0.2, 0.35)
"""The first stage, where `transfer_share` is 0.3, and the second while the views rise."""


@pytest.mark.parametrize("progress", STAGES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_every_term_equals_its_twin(options: dict[str, float], seed: int, progress: float) -> None:
    case = make_case(RankStats(**options), seed, progress=progress)
    expected = twin(case, case.method)
    assert weighted(case) == {name: close(value, rel=1e-9) for name, value in expected.items()}


@pytest.mark.parametrize("progress", STAGES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_carries_over_to_fission(options: dict[str, float], progress: float) -> None:
    base = RankStats(**options)
    case = make_case(WithFission(base, diversity_weight=0.5), 1, progress=progress)
    expected = twin(case, base)
    assert weighted(case) == {name: close(value, rel=1e-9) for name, value in expected.items()}


def test_the_cases_hold_pairs_of_both_kinds() -> None:
    case = make_case(RankStats(top=2))
    alike = case.method.decide(case.step()).alike
    assert UNLABELED < alike.sum() < UNLABELED**2


def test_images_are_alike_if_the_same_features_are_largest_in_any_order() -> None:
    features = torch.tensor(
        [
            [9.0, 5.0, 1.0, 0.0],
            [5.0, 9.0, 0.0, 1.0],
            [-9.0, -5.0, 2.0, 0.0],  # by magnitude
            [9.0, 1.0, 5.0, 0.0],
        ]
    )
    first = [True, True, True, False]
    assert same_top(features, 2).tolist() == [first, first, first, [False, False, False, True]]
    assert same_top(features, 1)[0].tolist() == [True, False, True, True]
    assert same_top(features, 9).all()


@pytest.mark.parametrize("top", [1, 2, 3])
def test_being_alike_is_an_equivalence(top: int) -> None:
    alike = same_top(normal(60, 4), top).float()
    assert torch.equal(alike, alike.T)
    assert alike.diagonal().all()
    assert torch.equal((alike @ alike > 0).float(), alike)


def test_the_risk_of_pairs_by_hand() -> None:
    probs = torch.tensor([[0.5, 0.5], [0.2, 0.8]])
    found = pair_risk(probs, probs, torch.eye(2))
    assert found.flatten().tolist() == close(
        [-math.log(p) for p in (0.5, 0.5, 0.5, 0.68)], abs=1e-6
    )


def test_a_pair_that_is_certain_and_wrong_costs_much_but_not_infinitely() -> None:
    logits = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    probs = logits.softmax(-1)
    loss = pair_risk(probs, probs, 1 - torch.eye(2))
    loss.sum().backward()
    assert loss.max().item() == close(-math.log(TINY), rel=1e-3)
    assert logits.grad.isfinite().all()


def test_pairs_are_of_unlabeled_images_whatever_their_class() -> None:
    """No pair holds a labeled image, and no one asks which images are novel."""
    case = make_case(RankStats())
    step = case.step()
    terms = {t.name: t.value for t in case.method.terms(step)}
    terms["pairs"].backward()
    moved = case.features.grad.norm(dim=-1) > 0
    assert not moved[case.rows("labeled", 0) + case.rows("labeled", 1)].any()
    assert moved[case.rows("unlabeled", 0) + case.rows("unlabeled", 1)].all()


def test_labels_are_classes_and_sure_images_have_hard_ones() -> None:
    logits = torch.zeros(8, 5)
    logits[3, 4] = logits[6, 1] = 20.0  # an unlabeled image in view 1, another in view 2
    for progress, hard in ((0.2, [NO_CLASS, NO_CLASS]), (0.3, [4, 1])):  # from the second stage on
        step = step_of(RankStats(), output_of(logits), [0, 2], 2, progress=progress)
        found = RankStats().decide(step).classes.tolist()
        assert found == [0, 2, NO_CLASS, hard[0], 0, 2, hard[1], NO_CLASS]


@pytest.mark.parametrize("method", [RankStats(), WithFission(RankStats())])
def test_labels_of_the_first_stage_close_no_novel_head(method: Any) -> None:
    """Cross entropy over all heads would push down those of classes that have no label yet."""
    for progress, still in ((0.2, True), (0.3, False)):
        case = make_case(method, progress=progress)
        total(case.method.terms(case.step())).backward()
        for name, parameter in case.head.named_parameters():
            if name in ("weight", "bias", "g"):  # L_ldiv moves local parts at any time
                assert parameter.grad[:SEEN].any(), name
                assert parameter.grad[SEEN:].any() != still, name


def test_the_first_stage_is_the_labels_alone() -> None:
    case = make_case(RankStats(), progress=0.2)
    total(case.method.terms(case.step())).backward()
    moved = case.features.grad.norm(dim=-1) > 0
    assert moved.nonzero()[:, 0].tolist() == case.rows("labeled", 0)


def test_the_views_rise_within_the_second_stage() -> None:
    """Half a ramp of 0.2 of the last seven tenths is 0.37 of training."""
    rises = {
        progress: RankStats(ramp=0.2).decide(make_case(RankStats(), progress=progress).step()).ramp
        for progress in (0.3, 0.37, 0.44, 0.9)
    }
    assert rises == {
        progress: close(value)
        for progress, value in {0.3: math.exp(-5), 0.37: math.exp(-1.25), 0.44: 1, 0.9: 1}.items()
    }


def test_it_has_no_head_that_begins_late() -> None:
    """Its heads are the labels' from the first step on."""
    assert RankStats().traits.head_starts_at == WithFission(RankStats()).traits.head_starts_at == 0


def test_without_its_extras_it_is_the_supervised_risk() -> None:
    case = make_case(RankStats(pair_weight=0, view_weight=0))
    found = weighted(case)
    assert (found["pairs"], found["views"]) == (0, 0)
    logits = case.step().logits[: len(LABELS)]
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(LABELS))
    assert sum(found.values()) == close(expected.item())


def test_its_heads_are_pinned_on_every_tier() -> None:
    for name in ("digits", "features/cifar10", "features/cifar100", "paper/cifar10"):
        for method in ("rankstats", "rankstats+pf"):
            experiment = preset(name, method)
            experiment.check()
            assert experiment.method.traits.novel == "heads"
    assert replace(RankStats(), top=3).top == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, r"^top = 0 must be at least 1\.$"),
        ({"pair_weight": -1}, r"^pair_weight = -1 must be at least 0\.$"),
        ({"ramp": -0.1}, r"^ramp = -0.1 must be between 0 and 1\.$"),
        ({"transfer_share": 1}, r"^transfer_share = 1 must be at least 0 and below 1\.$"),
        ({"transfer_share": -0.1}, r"^transfer_share = -0.1 must be at least 0 and below 1\.$"),
        ({"hard_threshold": 2}, r"^hard_threshold = 2 must be above 0, at most 1\.$"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RankStats(**options)
