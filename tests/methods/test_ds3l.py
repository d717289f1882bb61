"""DS3L: equality with its twin, and a net that tells what helps from what harms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from builders import (
    LABELS,
    SEEN,
    UNLABELED,
    Case,
    HeadAgain,
    make_case,
    normal,
    output_of,
    rng,
    step_of,
)
from protofission.core.errors import InputError
from protofission.core.records import NO_CLASS
from protofission.methods import DS3L, Adam, WithFission
from protofission.methods.ds3l import DS3LTargets
from protofission.methods.parts.inner_step import net_of
from protofission.models.heads.linear import LinearHead
from reference import ds3l as scalar
from reference.inner import outer
from reference.methods import Logits, Loss, with_fission
from scalar_nets import scalar_net

close = pytest.approx


def twin(case: Case, method: DS3L, prefix: str = "") -> tuple[Any, Any]:
    """The scene of a case, and the twin's loss for any logits."""
    scene, net = case.scene(), scalar_net(case.memory.get_submodule(f"{prefix}net"))

    def loss(logits: Logits, slots: bool = False) -> Loss:
        return scalar.ds3l(
            scene,
            logits,
            net=net,
            progress=case.progress,
            unlabeled_weight=method.unlabeled_weight,
            ramp=method.ramp,
        )

    return scene, loss


OPTIONS = [
    {},
    {"unlabeled_weight": 3.0},
    {"ramp": 0.8},
    {"ramp": 0.4},
    {"ramp": 0.0},
    {"inner_rate": 0.5},
    {"net_width": 7, "unlabeled_weight": 40.0, "inner_rate": 1.5},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_term_equals_its_twin(options: dict[str, Any]) -> None:
    method = DS3L(**options)
    case = make_case(method, 1)
    scene, loss = twin(case, method)
    head = case.head
    expected = loss(scene.max_logits) | {
        "outer": outer(scene, head.weight.tolist(), head.bias.tolist(), loss, method.inner_rate)
    }
    found = {t.name: t.weight * t.value.item() for t in method.terms(case.step())}
    assert found == {name: close(value, rel=1e-9, abs=1e-12) for name, value in expected.items()}


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_fission_charges_it_to_every_slot(options: dict[str, Any]) -> None:
    base = DS3L(**options)
    case = make_case(WithFission(base, diversity_weight=0.5), 1)
    scene, loss = twin(case, base, "base.")
    expected = with_fission(
        scene,
        loss,
        scene.label_classes(),
        case.head.l.tolist(),
        num_seen=SEEN,
        remembered=[],
        diversity_weight=0.5,
    )
    found = {t.name: t.weight * t.value.item() for t in case.method.terms(case.step())}
    assert found.pop("outer") > 0
    assert found == {name: close(value, rel=1e-9, abs=1e-12) for name, value in expected.items()}


def test_the_first_view_decides_and_gets_no_gradient() -> None:
    case = make_case(DS3L())
    step = case.step()
    terms = case.method.risk(step, case.method.decide(step), step.logits)
    (agreement,) = (term for term in terms if term.name == "agreement")
    agreement.value.backward()
    moved = case.features.grad.norm(dim=-1) > 0
    assert moved.nonzero()[:, 0].tolist() == case.rows("unlabeled", 1)


def test_only_labels_are_classes() -> None:
    case = make_case(DS3L())
    classes = case.method.decide(case.step()).classes
    assert classes[: len(LABELS)].tolist() == list(LABELS)
    assert classes[len(LABELS) :].eq(NO_CLASS).all()


def targets_with(case: Case, weights: torch.Tensor) -> DS3LTargets:
    targets = case.method.decide(case.step())
    return DS3LTargets(targets.classes, targets.probs, weights, targets.ramp)


def agreement(case: Case, weights: torch.Tensor) -> float:
    terms = case.method.risk(case.step(), targets_with(case, weights), case.step().logits)
    return terms[1].value.item()


def test_weights_are_shares() -> None:
    """Twice all weights is the same loss; an image alone counts fully; none without a weight."""
    case, weights = make_case(DS3L()), torch.rand(UNLABELED, generator=rng(0)).double()
    assert agreement(case, 2 * weights) == close(agreement(case, weights))
    alone = [agreement(case, torch.eye(UNLABELED).double()[u]) for u in range(UNLABELED)]
    shares = (weights / weights.sum()).tolist()
    assert agreement(case, weights) == close(sum(s * a for s, a in zip(shares, alone, strict=True)))
    assert agreement(case, 0 * weights) == 0


def test_a_net_without_an_opinion_weighs_all_images_alike() -> None:
    case = make_case(DS3L())
    torch.nn.init.zeros_(net_of(case.memory).weight)
    weights = case.method.decide(case.step()).weights
    assert torch.equal(weights, weights[0].expand(UNLABELED))


@pytest.mark.parametrize(
    ("ramp", "progress", "risen"),
    [(1.0, 0.0, math.exp(-5)), (1.0, 0.5, math.exp(-1.25)), (0.5, 0.5, 1.0), (0.0, 0.0, 1.0)],
)
def test_unlabeled_images_come_to_count(ramp: float, progress: float, risen: float) -> None:
    step = step_of(DS3L(), output_of(normal(5, 3).float()), [0], 2, progress=progress)
    assert DS3L(ramp=ramp).decide(step).ramp == close(risen)


def test_the_net_learns_to_weigh_what_helps_above_what_harms() -> None:
    """Two images look like class 0. One is said to be of class 0, the other of class 1."""
    method, head = DS3L(inner_rate=1.0, net_rate=0.01, ramp=0.0), LinearHead(2, 2, rng(0))
    views = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    again = HeadAgain(head, views)
    step = step_of(method, head(views), [0, 1], 2, again=again)
    probs = torch.tensor([[0.95, 0.05], [0.05, 0.95]])
    optimizer = torch.optim.Adam(step.memory.parameters(), lr=method.net_rate)
    for _ in range(100):
        optimizer.zero_grad()
        targets = DS3LTargets(torch.empty(0), probs, torch.empty(0), 1.0)
        method.other_terms(step, targets)[0].value.backward()
        optimizer.step()
    helps, harms = net_of(step.memory)(probs).tolist()
    assert helps > 0.7
    assert harms < 0.3


def test_the_net_is_made_and_taught_as_the_options_say() -> None:
    assert DS3L(net_rate=0.3).traits.memory_optimizer == Adam(0.3)
    assert DS3L().traits.memory_optimizer == Adam(6e-5)
    assert net_of(make_case(DS3L(net_width=9)).memory).hidden.shape == (9, SEEN)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ramp": 1.5}, r"^ramp = 1.5 must be between 0 and 1\.$"),
        ({"inner_rate": 0}, r"^inner_rate = 0 must be above 0\.$"),
        ({"net_rate": -1}, r"^net_rate = -1 must be above 0\.$"),
        ({"net_width": 0}, r"^net_width = 0 must be at least 1\.$"),
        ({"unlabeled_weight": -1}, r"^unlabeled_weight = -1 must be at least 0\.$"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DS3L(**options)
