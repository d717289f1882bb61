"""Activations and risks against their twins, by hand, and at the edges of what floats hold."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck
from torch.testing import assert_close

from builders import normal, rng
from protofission.core.risks import Sigmoid, Softmax
from reference import risks as scalar

SIGMAS = [Softmax(), Sigmoid(), Sigmoid("mean")]
close = pytest.approx
N, C = 7, 4


def draw(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return 4 * normal(N, C, seed=seed), torch.randint(C, (N,), generator=rng(seed))


@pytest.mark.parametrize("seed", range(3))
def test_softmax_and_cross_entropy_equal_their_twins(seed):
    logits, labels = draw(seed)
    rows = logits.tolist()
    probs = torch.tensor([scalar.softmax(z) for z in rows], dtype=torch.float64)
    assert_close(Softmax().probs(logits), probs)
    expected = [scalar.cross_entropy(z, y) for z, y in zip(rows, labels.tolist(), strict=True)]
    assert Softmax().risk(logits, labels).tolist() == close(expected)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("seed", range(3))
def test_sigmoid_and_one_vs_all_equal_their_twins(seed, reduction):
    logits, labels = draw(seed)
    rows, sigma = logits.tolist(), Sigmoid(reduction)
    probs = [[scalar.sigmoid(z) for z in row] for row in rows]
    assert_close(sigma.probs(logits), torch.tensor(probs, dtype=torch.float64))
    own = [scalar.one_vs_all(z, y, reduction) for z, y in zip(rows, labels.tolist(), strict=True)]
    none = [scalar.one_vs_all(z, None, reduction) for z in rows]
    assert sigma.risk(logits, labels).tolist() == close(own)
    assert sigma.none_risk(logits).tolist() == close(none)


def test_one_vs_all_adds_up_the_classes_unless_told_to_average():
    logits = torch.zeros(1, C)
    assert Sigmoid().risk(logits, torch.tensor([1])).item() == close(C * math.log(2))
    assert Sigmoid("mean").risk(logits, torch.tensor([1])).item() == close(math.log(2))
    assert Sigmoid().none_risk(logits).item() == close(C * math.log(2))


def test_the_risks_of_a_class_and_of_none_differ_by_the_logit():
    """-log s(z) + log(1 - s(z)) = -z."""
    logits, labels = draw(0)
    own = logits.gather(1, labels[:, None])[:, 0]
    assert_close(Sigmoid().risk(logits, labels) - Sigmoid().none_risk(logits), -own)


def test_two_sided_softmax_is_a_sigmoid():
    z = normal(N)
    both = torch.stack([z, torch.zeros_like(z)], 1)
    assert_close(Softmax().probs(both)[:, 0], Sigmoid().probs(z))


def test_at_t_10_and_b_5_a_threshold_of_095_asks_for_a_cosine_of_0794():
    needed = (5 + math.log(0.95 / 0.05)) / 10
    assert round(needed, 3) == 0.794
    cosines = torch.tensor([needed - 1e-6, needed + 1e-6]).double()
    assert (Sigmoid().probs(10 * cosines - 5) >= 0.95).tolist() == [False, True]


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_gradients_of_risks(sigma):
    logits, labels = draw(0)
    logits.requires_grad_()
    assert gradcheck(lambda z: sigma.risk(z, labels), logits)
    if isinstance(sigma, Sigmoid):
        assert gradcheck(sigma.none_risk, logits)


HUGE = [[300.0, -300.0, 0.0], [-300.0, 200.0, 900.0]]


def test_huge_logits_cost_what_they_should_and_keep_their_gradient():
    """A risk taken from rounded probabilities would stop at 0 or infinity, and stop learning."""
    labels = torch.tensor([1, 0])
    own = F.one_hot(labels, 3)
    risks = {
        "cross entropy": (Softmax().risk, scalar.cross_entropy, Softmax().probs, own),
        "one-vs-all": (Sigmoid().risk, scalar.one_vs_all, Sigmoid().probs, own),
        "none": (
            lambda z, y: Sigmoid().none_risk(z),
            lambda z, y: scalar.one_vs_all(z, None),
            Sigmoid().probs,
            0 * own,
        ),
    }
    for name, (risk, twin, probs, target) in risks.items():
        logits = torch.tensor(HUGE, requires_grad=True)
        found = risk(logits, labels)
        found.sum().backward()
        assert found.tolist() == close([twin(z, y) for z, y in zip(HUGE, (1, 0), strict=True)]), (
            name
        )
        assert_close(logits.grad, probs(logits.detach()) - target)
