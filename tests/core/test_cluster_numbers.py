"""Numbers of clusters: statistics against slow twins, counts where the truth is clear."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from protofission.core.cluster_numbers import (
    _left_by_cut,
    candidate_numbers,
    count_clusters,
    cut_ratio,
    near_numbers,
    prediction_strengths,
    silhouette,
    smooth,
)
from protofission.core.errors import InputError
from protofission.core.unit_maps import unit_rows


def units(seed: int, number: int, each: int, spread: float, width: int = 16) -> np.ndarray:
    """Unit vectors around so many random directions."""
    random = np.random.default_rng(seed)
    centers = unit_rows(random.normal(size=(number, width)))
    rows = np.repeat(centers, each, axis=0)
    return unit_rows(rows + spread / width**0.5 * random.normal(size=rows.shape))


def test_the_silhouette_is_that_of_scikit_learn():
    rows, members = units(0, 4, 10, 1.5), np.arange(40) % 5
    members[0] = 5  # alone in its cluster
    wanted = silhouette_score(rows, members, metric="cosine")
    assert silhouette(rows, members) == pytest.approx(wanted)


def test_prediction_strengths_equal_their_twin():
    random = np.random.default_rng(0)
    members, others = random.integers(4, size=30), random.integers(3, size=30)
    for name, found in enumerate(prediction_strengths(members, others)):
        pairs = list(combinations(np.flatnonzero(members == name), 2))
        together = sum(others[a] == others[b] for a, b in pairs)
        assert found == pytest.approx(together / len(pairs))
    assert prediction_strengths(np.array([0, 1, 1]), np.array([0, 0, 0])).tolist() == [0, 1]


def test_a_cut_leaves_what_it_should():
    line = np.array([[0.0], [1.0], [4.0], [5.0]])
    assert _left_by_cut(line, np.array([[1.0], [4.0]])) == pytest.approx(0.25 / line.var())
    assert _left_by_cut(line, np.array([[8.0], [9.0]])) == 1
    normal = np.random.default_rng(0).normal(size=(20000, 3))
    centers = np.array([[1.0, 0, 0], [-1, 0, 0]])
    assert _left_by_cut(normal, centers) == pytest.approx(1 - 2 / np.pi, abs=0.01)


def test_one_piece_is_cut_into_more_variance_than_two():
    one, two = (cut_ratio(units(1, number, 100, 0.7), 0) for number in (1, 2))
    assert two < 0.1 < 0.25 < one


@pytest.mark.parametrize(("number", "each"), [(1, 60), (2, 40), (5, 24), (12, 20)])
def test_clear_clusters_are_counted(number, each):
    found = count_clusters(units(3, number, each, 0.7), most=number + 4, seed=1)
    assert found.low <= number <= found.high
    assert abs(found.number - number) <= number // 10
    if number == 2:
        assert found == count_clusters(units(3, number, each, 0.7), most=number + 4, seed=1)


def test_what_has_no_structure_is_one_piece():
    assert count_clusters(units(0, 1, 100, 50.0), most=6).number == 1


def test_overlap_widens_the_range():
    far, near = (count_clusters(units(5, 5, 24, spread), most=8) for spread in (0.5, 1.4))
    assert near.high - near.low > far.high - far.low


def test_numbers_that_are_tried():
    assert candidate_numbers(5).tolist() == [2, 3, 4, 5]
    assert candidate_numbers(1).tolist() == []
    many = candidate_numbers(60)
    assert many[:7].tolist() == list(range(2, 9))
    assert many[-1] == 60
    assert (many[1:] / many[:-1])[6:].max() <= 1.25


def test_the_range_has_what_is_nearly_as_good_and_what_was_not_tried():
    tried = np.array([7, 8, 10, 12, 14])
    assert near_numbers(tried, np.array([0.1, 0.1, 0.9, 1, 0.1])) == (9, 13)
    assert near_numbers(tried, np.array([1, 0.1, 0.1, 0.1, 0.86])) == (7, 14)


def test_only_large_numbers_are_smoothed():
    tried, quality = np.array([7, 8, 9, 11, 13]), np.array([1.0, 2, 6, 1, 5])
    assert smooth(tried, quality).tolist() == [1, 2, 3.75, 3.25, 4]


@pytest.mark.parametrize("rows", [0, 1, 3, 12])
def test_few_and_equal_rows_are_at_most_one_cluster(rows):
    assert count_clusters(np.zeros((rows, 3))).number == min(rows, 1)
    assert count_clusters(np.tile([1.0, 0, 0], (rows, 1))).number == min(rows, 1)


def test_a_largest_answer_below_one_is_refused():
    with pytest.raises(InputError, match="most = 0 must be 1 or more"):
        count_clusters(np.zeros((3, 3)), most=0)
