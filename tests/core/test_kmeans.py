"""K-means with owned rows: against its twin on the sphere, scikit-learn's in the ball."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as some
from sklearn.cluster import KMeans
from torch.testing import assert_close

from builders import normal, rng
from protofission.core.kmeans import BALL, ROUNDS, cluster_rows, far_rows, k_means
from protofission.core.records import NO_CLASS
from reference.prototypes import dot, unit


def scalar_k_means(rows, owners, centers, rounds):
    """Members, centers and costs of spherical k-means without empty clusters, row by row."""
    costs = []
    for _ in range(rounds):
        members = [
            owner if owner >= 0 else max(range(len(centers)), key=lambda k: dot(row, centers[k]))
            for row, owner in zip(rows, owners, strict=True)
        ]
        costs.append(sum(1 - dot(r, centers[k]) for r, k in zip(rows, members, strict=True)))
        for k in range(len(centers)):
            own = [row for row, member in zip(rows, members, strict=True) if member == k]
            centers[k] = unit([math.fsum(column) for column in zip(*own, strict=True)])
    return members, centers, costs


@pytest.mark.parametrize("seed", range(4))
def test_k_means_equals_its_twin(seed):
    rows = F.normalize(normal(30, 4, seed=seed), dim=-1)
    owners = torch.tensor([0, 0, 0, 1, 1] + [NO_CLASS] * 25)
    found = k_means(rows, owners, rows[[0, 3, 10, 20]])
    members, centers, costs = scalar_k_means(
        rows.tolist(), owners.tolist(), rows[[0, 3, 10, 20]].tolist(), len(found.costs)
    )
    assert 2 < len(found.costs) < ROUNDS
    assert found.members.tolist() == members
    assert found.members[:5].tolist() == [0, 0, 0, 1, 1]
    assert_close(found.centers, torch.tensor(centers, dtype=torch.float64))
    assert found.costs == pytest.approx(costs)


@pytest.mark.parametrize("seed", range(3))
def test_k_means_in_the_ball_is_that_of_scikit_learn(seed):
    rows = normal(60, 4, seed=seed)
    rows = (rows - rows.mean(0)) / 9
    found = k_means(rows, torch.full((60,), NO_CLASS), rows[:5], BALL)
    same = KMeans(5, init=rows[:5].numpy(), n_init=1, tol=0).fit(rows.numpy())
    assert found.members.tolist() == same.labels_.tolist()
    assert_close(found.centers, torch.from_numpy(same.cluster_centers_))
    assert found.costs[-1] == pytest.approx(same.inertia_)
    assert all(b <= a + 1e-12 for a, b in zip(found.costs, found.costs[1:], strict=False))


@settings(max_examples=40)
@given(seed=some.integers(0, 10**6), clusters=some.integers(1, 8), copies=some.integers(0, 4))
def test_costs_never_rise_and_owned_rows_stay(seed, clusters, copies):
    """Also with rows that repeat, and with centers that nobody is near to at first."""
    rows = F.normalize(normal(20, 3, seed=seed), dim=-1)
    rows = torch.cat([rows, rows[:copies].repeat(2, 1)])
    centers = F.normalize(normal(clusters, 3, seed=seed + 1).abs(), dim=-1)
    owners = torch.full((len(rows),), NO_CLASS)
    owners[:6] = torch.arange(6) % clusters
    found = k_means(rows, owners, centers)
    assert all(b <= a + 1e-9 for a, b in zip(found.costs, found.costs[1:], strict=False))
    assert torch.equal(found.members[:6], owners[:6])
    assert found.members.unique().tolist() == list(range(clusters))
    assert_close(found.centers.norm(dim=-1), torch.ones(clusters, dtype=torch.float64))


def test_empty_clusters_start_anew_at_the_farthest_rows():
    axes = torch.eye(4, dtype=torch.float64)
    rows = F.normalize(axes.repeat_interleave(5, 0) + 0.05 * normal(20, 4), dim=-1)
    found = k_means(rows, torch.full((20,), NO_CLASS), rows[[0, 0, 0, 0]])
    assert sorted(found.members[::5].tolist()) == [0, 1, 2, 3]
    assert (found.members.view(4, 5) == found.members[::5, None]).all()


def test_empty_clusters_take_no_row_that_has_an_owner():
    axes = torch.eye(4, dtype=torch.float64)
    rows = torch.cat([-axes[:1], axes[[0, 0, 0]], F.normalize(axes[:1] + axes[1:3], dim=-1)])
    owners = torch.tensor([0, 0, 0, 0, NO_CLASS, NO_CLASS])  # the first is the costliest by far
    found = k_means(rows, owners, axes[[0, 0, 0]])
    assert found.members[:4].tolist() == [0] * 4
    assert sorted(found.members[4:].tolist()) == [1, 2]


def test_rows_that_are_all_the_same_stay_together():
    rows = torch.eye(4, dtype=torch.float64)[[0] * 5]
    found = k_means(rows, torch.full((5,), NO_CLASS), rows[:2])
    assert found.members.tolist() == [0] * 5
    assert len(found.costs) == 2


def test_new_centers_lie_far_from_all_and_end_with_the_rows():
    axes = torch.eye(4, dtype=torch.float64)
    rows = axes.repeat_interleave(torch.tensor([90, 3, 3, 1]), 0)
    chosen = far_rows(rows, axes[:1], 2, rng(0))
    assert chosen.argmax(1).unique().numel() == 2
    assert (chosen @ axes[0] == 0).all()
    chosen = far_rows(rows, axes[:1], 9, rng(0))
    assert sorted(chosen.argmax(1).tolist()) == [1, 2, 3]
    assert len(far_rows(rows, axes[:0], 9, rng(0))) == 4


def test_more_runs_are_never_worse():
    rows = F.normalize(normal(200, 5), dim=-1)
    free = torch.full((200,), NO_CLASS)
    costs = []
    for runs in (1, 2, 8):
        found = cluster_rows(rows, free, rows[:0], 12, rng(0), restarts=runs)
        costs.append(found.costs[-1])
    assert costs[0] >= costs[1] >= costs[2]
    assert costs[0] > costs[2]


def test_an_empty_cluster_stays_where_it_is_unless_it_is_refilled():
    rows = F.normalize(normal(20, 4).abs(), dim=-1)
    free, starts = torch.full((20,), NO_CLASS), torch.cat([rows[:2], -rows[:1]])
    found = k_means(rows, free, starts, refills=False)
    assert set(found.members.tolist()) == {0, 1}
    assert torch.equal(found.centers[2], -rows[0])
    assert set(k_means(rows, free, starts).members.tolist()) == {0, 1, 2}


def test_rounds_are_counted():
    rows = F.normalize(normal(200, 5), dim=-1)
    free = torch.full((200,), NO_CLASS)
    whole = k_means(rows, free, rows[:12])
    assert len(whole.costs) > 4
    for rounds in (1, 3):
        assert k_means(rows, free, rows[:12], rounds=rounds).costs == whole.costs[:rounds]
