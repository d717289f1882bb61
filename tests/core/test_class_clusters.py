"""Clusters of rejected rows and parts of classes: found where clear, and tolerant of odd input."""

from __future__ import annotations

import numpy as np
import pytest

from protofission.core.class_parts import split_classes
from protofission.core.errors import InputError
from protofission.core.rejected_clusters import cluster_rejected
from protofission.core.unit_clusters import cluster_units, nearest_units

WIDTH = 16


def blobs(number: int, each: int, seed: int = 0, apart: float = 2.0):
    """Features of so many blobs, long in one direction, and the blob of each."""
    random = np.random.default_rng(seed)
    which = np.repeat(np.arange(number), each)
    noise = random.normal(size=(len(which), WIDTH))
    noise[:, 0] *= 8  # what differs most says nothing about classes
    return apart * random.normal(size=(number, WIDTH))[which] + noise, which


def scene(novel: int = 3):
    features, which = blobs(3 + novel, 60)
    labeled = (which < 3) & (np.tile(np.arange(60), 3 + novel) < 20)
    return features[labeled], which[labeled], features[~labeled], which[~labeled]


@pytest.mark.parametrize("number", [3, None])
def test_rejected_rows_are_told_apart(number):
    labeled, labels, pool, which = scene()
    found = cluster_rejected(labeled, labels, pool, which >= 3, number, most=6)
    assert len(found.centers) == 3
    rows = found.space.apply(pool[which >= 3])
    assert (nearest_units(rows, found.centers) == found.members).all()
    assert matched(found.members, which[which >= 3] - 3) > 0.95
    assert (found.counted is None) == (number is not None)


def matched(members, which):
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((members.max() + 1, which.max() + 1))
    np.add.at(counts, (members, which), 1)
    return counts[linear_sum_assignment(counts, maximize=True)].sum() / len(which)


def test_the_scatter_within_classes_weighs_less():
    """Whitening by labels finds what plain k-means of the same rows does not."""
    labeled, labels, pool, which = scene()
    found = cluster_rejected(labeled, labels, pool, which >= 3, 3)
    own = pool[which >= 3]
    plain = cluster_units(own / np.linalg.norm(own, axis=1, keepdims=True), 3, 0)
    true = which[which >= 3] - 3
    assert matched(found.members, true) > matched(plain.members, true) + 0.2


def test_what_known_classes_explain_is_not_new():
    labeled, labels, pool, which = scene()
    few = np.arange(len(pool)) % 9 == 0
    assert cluster_rejected(labeled, labels, pool, few, known=few.sum()).counted.number == 0
    more = cluster_rejected(labeled, labels, pool, which >= 3, known=9.0, most=4)
    assert more.counted.number == 3


def test_clusters_come_by_size_and_repeat():
    rows = np.repeat(np.eye(3), [2, 9, 5], axis=0)
    found = cluster_units(rows, 3, seed=4)
    assert np.bincount(found.members).tolist() == [9, 5, 2]
    assert (found.centers == cluster_units(rows, 3, seed=4).centers).all()
    assert len(cluster_units(rows, 8, seed=4).centers) == 3


def test_of_many_rows_a_sample_finds_the_clusters(monkeypatch):
    monkeypatch.setattr("protofission.core.unit_clusters.ROWS", 60)
    rows = np.repeat(np.eye(3), [20, 90, 50], axis=0)
    assert np.bincount(cluster_units(rows, 3, seed=0).members).tolist() == [90, 50, 20]


@pytest.mark.parametrize("rejected", [0, 1, 2, 5])
@pytest.mark.parametrize("number", [0, 4, None])
def test_few_rejected_rows_are_no_trouble(rejected, number):
    labeled, labels, pool, _ = scene()
    found = cluster_rejected(labeled, labels, pool, np.arange(len(pool)) < rejected, number)
    wanted = min(rejected, number) if number is not None else rejected // 5
    assert found.centers.shape == (wanted, WIDTH)
    assert found.members.shape == (rejected,)
    assert found.members.max(initial=-1) == wanted - 1


def test_equal_features_are_no_trouble():
    same = np.ones((9, 4))
    found = cluster_rejected(same, np.arange(9) // 3, same, np.ones(9, bool), 2)
    assert len(found.centers) == 0
    parts = split_classes(same, np.arange(9) // 3, [2, 2, 2])
    assert parts.members.tolist() == [-1] * 9


def test_parts_of_classes_are_told_apart():
    features, which = blobs(6, 50, seed=1, apart=4.0)
    found = split_classes(features, which // 2, [2, 2, 2])
    for name in range(3):
        own = which // 2 == name
        assert matched(found.members[own], which[own] - 2 * name) > 0.95
        rows = found.space.apply(features[own])
        assert (nearest_units(rows, found.centers[name]) == found.members[own]).all()


def test_each_class_has_its_own_number_of_parts():
    features, which = blobs(6, 50, seed=1, apart=4.0)
    classes = np.array([0, 0, 0, 1, 1, 2])[which]
    found = split_classes(features, classes, most=4)
    assert [len(centers) for centers in found.centers] == [3, 2, 1]
    assert [counted.number for counted in found.counted] == [3, 2, 1]


def test_bad_input_is_refused():
    labeled, labels, pool, which = scene()
    with pytest.raises(InputError, match=r"rejected has the shape \(2,\) for 300 pool rows"):
        cluster_rejected(labeled, labels, pool, [True, False], 2)
    with pytest.raises(InputError, match="number = -1 of clusters must be 0 or more"):
        cluster_rejected(labeled, labels, pool, which >= 3, -1)
    with pytest.raises(InputError, match="2 numbers of parts for 3 classes: give one each"):
        split_classes(labeled, labels, [1, 2])
