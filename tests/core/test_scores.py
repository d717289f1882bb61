"""OOD scores against their twins; one sign for all."""

from __future__ import annotations

import math

import pytest
import torch

from builders import normal
from protofission.core.scores import SCORES
from reference import scores as scalar

close = pytest.approx


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("activation", [torch.Tensor.sigmoid, lambda z: z.softmax(-1)])
@pytest.mark.parametrize("heads", [5, 3])
def test_scores_equal_their_twins(name, activation, heads):
    """Over all heads, and over the seen ones of a larger head."""
    logits = 3 * normal(8, 5)
    seen, probs = logits[:, :heads], activation(logits)[:, :heads]
    expected = [
        getattr(scalar, name)(z, p) for z, p in zip(seen.tolist(), probs.tolist(), strict=True)
    ]
    assert SCORES[name](seen, probs).tolist() == close(expected)


@pytest.mark.parametrize("name", SCORES)
def test_a_doubtful_image_scores_above_a_sure_one(name):
    """Of four heads the first two are seen: one image is sure of a seen class, one of nothing."""
    logits = torch.tensor([[8.0, -2.0, -2.0, -2.0], [0.1, 0.0, 0.1, 0.0]])
    sure, doubtful = SCORES[name](logits[:, :2], logits.softmax(-1)[:, :2]).tolist()
    assert doubtful > sure


@pytest.mark.parametrize("name", ["max_probability", "max_logit", "energy", "lack_of_mass"])
def test_an_image_that_is_sure_of_a_novel_head_is_ood(name):
    logits = torch.tensor([[6.0, 0.0, 1.0, 0.0], [1.0, 0.0, 9.0, 0.0]])
    seen, novel = SCORES[name](logits[:, :2], logits.softmax(-1)[:, :2]).tolist()
    # Energy and the max-logit do not look at novel heads: they tell by the lower seen logits.
    assert novel > seen


def test_scores_by_hand():
    logits = torch.tensor([[math.log(6), math.log(3)]])
    probs = torch.tensor([[0.6, 0.3]])  # 0.1 went to novel heads
    found = {name: score(logits, probs).item() for name, score in SCORES.items()}
    assert found == {
        "max_probability": close(0.4),
        "max_logit": close(-math.log(6)),
        "energy": close(-math.log(9)),
        "entropy": close(math.log(3) - 2 / 3 * math.log(2)),  # of the shares 2/3, 1/3
        "lack_of_mass": close(0.1),
    }


def test_entropy_of_a_probability_of_zero_is_zero():
    assert SCORES["entropy"](torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])).item() == 0


def test_entropy_of_an_image_without_any_id_probability_is_the_highest():
    logits = torch.tensor([[-200.0, -200.0, 0.0]])
    assert SCORES["entropy"](logits[:, :2], logits.softmax(-1)[:, :2]).item() == close(math.log(2))
