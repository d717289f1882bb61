"""Features judged by their labeled neighbors: votes counted one by one."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from builders import normal, rng
from protofission.core.records import Output, Prototypes
from protofission.data.image_sets import TestData, TrainingData
from protofission.training.neighbors import neighbor_accuracy, neighbor_classes


def scalar_classes(
    bank: list[list[float]],
    labels: list[int],
    queries: list[list[float]],
    neighbors: int,
    temperature: float,
) -> list[int]:
    """The class with most of exp(cos / T) over the nearest, query by query."""

    def cosine(a: list[float], b: list[float]) -> float:
        product = sum(x * y for x, y in zip(a, b, strict=True))
        return product / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))

    found = []
    for query in queries:
        ranked = sorted(((cosine(query, row), y) for row, y in zip(bank, labels, strict=True)))
        votes: dict[int, float] = defaultdict(float)
        for similarity, label in ranked[::-1][:neighbors]:
            votes[label] += math.exp(similarity / temperature)
        found.append(max(votes, key=lambda label: votes[label]))
    return found


@pytest.mark.parametrize("neighbors", [1, 2, 5, 40, 41, 200])
@pytest.mark.parametrize("temperature", [0.02, 0.1, 1.0])
@pytest.mark.parametrize("chunk", [1000, 4])
def test_votes_equal_those_of_the_twin(neighbors, temperature, chunk, monkeypatch):
    monkeypatch.setattr("protofission.training.neighbors.QUERY_ROWS", chunk)
    bank, queries = normal(40, 3), normal(30, 3, seed=1)
    bank = bank * (1 + 9 * torch.rand(40, 1, generator=rng(2)))  # lengths mean nothing
    labels = torch.randint(4, (40,), generator=rng(3))
    found = neighbor_classes(bank, labels, queries, neighbors, temperature)
    assert found.tolist() == scalar_classes(
        bank.tolist(), labels.tolist(), queries.tolist(), neighbors, temperature
    )
    assert len(set(found.tolist())) > 1


def test_the_usual_temperature_is_a_tenth():
    bank, labels, queries = normal(60, 2), torch.arange(60) % 5, normal(200, 2, seed=1)
    usual = neighbor_classes(bank, labels, queries, 20)
    for temperature, same in ((0.1, True), (0.05, False), (0.2, False)):
        found = neighbor_classes(bank, labels, queries, 20, temperature)
        assert torch.equal(found, usual) == same


def test_one_that_is_near_outvotes_two_that_are_not_as_far_as_the_temperature_says():
    """exp(1 / T) against 2 exp(c / T): equal at T = (1 - c) / log 2."""
    angle = math.pi / 3
    far = [math.cos(angle), math.sin(angle)]
    bank = torch.tensor([[2.0, 0.0], far, far])
    labels, query = torch.tensor([0, 1, 1]), torch.tensor([[5.0, 0.0]])
    edge = (1 - math.cos(angle)) / math.log(2)
    assert neighbor_classes(bank, labels, query, 3, 0.99 * edge).tolist() == [0]
    assert neighbor_classes(bank, labels, query, 3, 1.01 * edge).tolist() == [1]
    assert neighbor_classes(bank, labels, query, 1, 1.01 * edge).tolist() == [0]


class Plain(nn.Module):
    """A model whose features are its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = nn.Flatten(), self.judged

    def judged(self, features: Tensor) -> Output:
        nothing = torch.ones(1, 1, 2)
        sims = torch.zeros(len(features), 1, 1)
        return Output(features, sims, sims[..., 0], Prototypes(nothing, nothing, nothing[..., 0]))


def points(*degrees: float) -> Tensor:
    """(n, 1, 1, 2): unit vectors."""
    angles = torch.tensor(degrees).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], 1)[:, None, None]


def test_the_labeled_images_judge_the_test_images_of_seen_classes_alone():
    labeled, labels = points(0, 10, 90, 100), torch.tensor([0, 0, 1, 1])
    training = TrainingData(labeled, labels, points(0), 2, 4)
    inputs = points(2, 94, 97, 40, 60, 91, 181, 271)
    truth = np.array([0, 1, 1, 1, 0, 3, 2, 3])
    test = TestData(inputs, truth)
    for k in (1, 2):
        assert neighbor_accuracy(Plain(), training, test, k) == pytest.approx(3 / 5)
    novel = truth >= 2
    for number in (0, 2, 3):  # novel images change nothing
        keep = torch.from_numpy(~novel | (np.cumsum(novel) <= number))
        fewer = TestData(inputs[keep], truth[keep.numpy()])
        assert neighbor_accuracy(Plain(), training, fewer, 1) == pytest.approx(3 / 5)


def test_the_number_of_neighbors_is_the_number_that_vote():
    """The nearest is of class 0; the second and the third, almost as near, are of class 1."""
    training = TrainingData(points(0, 1, 2), torch.tensor([0, 1, 1]), points(0), 2, 2)
    test = TestData(points(-1), np.array([1]))
    found = [neighbor_accuracy(Plain(), training, test, k) for k in (1, 3, 99)]
    assert found == [0.0, 1.0, 1.0]
