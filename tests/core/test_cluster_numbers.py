"""Numbers of clusters: losses against a slow twin, counts where the truth is clear."""

from __future__ import annotations

import numpy as np
import pytest

from protofission.core.cluster_numbers import (
    GAP,
    PAIRS_OF_HALVES,
    PRICE,
    _halves,
    candidate_numbers,
    cheapest_number,
    count_clusters,
    gaussian_gap,
    held_out_losses,
)
from protofission.core.errors import InputError
from protofission.core.unit_maps import unit_rows


def units(seed: int, number: int, each: int, spread: float, width: int = 16) -> np.ndarray:
    """Unit vectors around so many random directions."""
    random = np.random.default_rng(seed)
    centers = unit_rows(random.normal(size=(number, width)))
    rows = np.repeat(centers, each, axis=0)
    return unit_rows(rows + spread / width**0.5 * random.normal(size=rows.shape))


def test_the_loss_of_one_center_equals_its_twin():
    rows = units(0, 3, 8, 1.0)
    found = held_out_losses(rows, np.array([1, 3]), seed=4)
    assert found.shape == (PAIRS_OF_HALVES, 2)
    for turn, loss in enumerate(found[:, 0]):
        (first, second), _ = _halves(rows, 4, turn)
        one, other = (half.mean(0) / np.linalg.norm(half.mean(0)) for half in (first, second))
        cosines = [row @ other for row in first] + [row @ one for row in second]
        assert loss == pytest.approx(1 - np.mean(cosines))
    assert (found[:, 1] < found[:, 0]).all()
    equal = np.tile([[0.6, 0.8]], (8, 1))
    assert held_out_losses(equal, np.array([1, 2]), 0) == pytest.approx(0)


def test_losses_of_far_clusters_stop_falling_at_their_number():
    losses = held_out_losses(units(1, 4, 30, 0.5), np.array([3, 4, 5]), 0).mean(0)
    assert losses[0] - losses[1] > PRICE * np.log(4 / 3)
    assert losses[1] - losses[2] < PRICE * np.log(5 / 4) / 3


def test_the_cheapest_number_pays_for_each_step():
    tried, losses = np.array([1, 2, 4]), np.array([1.0, 0.8, 0.7])
    found = [cheapest_number(tried, losses, price) for price in (0.1, 0.2, 0.3)]
    assert found == [4, 2, 1]  # slopes are 0.2 / log 2 = 0.29 and 0.1 / log 2 = 0.14


@pytest.mark.parametrize(("number", "each"), [(1, 60), (2, 40), (5, 24), (12, 20)])
def test_clear_clusters_are_counted(number, each):
    rows = units(3, number, each, 0.7)
    found = count_clusters(rows, most=number + 4, seed=1)
    assert found.low <= number <= found.high
    assert abs(found.number - number) <= number // 10
    if number == 2:
        assert found == count_clusters(rows, most=number + 4, seed=1)


@pytest.mark.parametrize("stretch", [1.0, 1.6])
def test_a_round_and_a_long_gaussian_are_one_piece(stretch):
    rows = np.random.default_rng(0).normal(size=(200, 16))
    rows[:, 0] *= stretch
    rows = unit_rows(rows - rows.mean(0))
    losses = held_out_losses(rows, np.array([1, 2]), 0).mean(0)
    assert losses[0] - losses[1] > PRICE * np.log(2)  # a cut in two gains, and yet
    assert gaussian_gap(rows, losses[0] - losses[1], 2, 0) < GAP
    assert count_clusters(rows, most=6).number == 1


def test_overlap_widens_the_range():
    far, near = (count_clusters(units(5, 5, 24, spread), most=8) for spread in (0.5, 1.8))
    assert near.high - near.low > far.high - far.low


def test_a_higher_price_never_gives_more_clusters():
    rows = units(2, 6, 16, 1.5)
    found = [count_clusters(rows, most=8, price=price) for price in (0.03, 0.11, 0.5)]
    assert found[0].number >= found[1].number >= found[2].number
    assert [each.losses for each in found] == [found[0].losses] * 3


def test_numbers_that_are_tried():
    assert candidate_numbers(5).tolist() == [1, 2, 3, 4, 5]
    assert candidate_numbers(0).tolist() == []
    many = candidate_numbers(60)
    assert many[:8].tolist() == list(range(1, 9))
    assert many[-1] == 60
    assert (many[1:] / many[:-1])[7:].max() <= 1.25


@pytest.mark.parametrize("rows", [0, 1, 3, 20])
def test_few_and_equal_rows_are_at_most_one_cluster(rows):
    assert count_clusters(np.zeros((rows, 3))).number == min(rows, 1)
    assert count_clusters(np.tile([1.0, 0, 0], (rows, 1))).number == min(rows, 1)


def test_bad_limits_are_refused():
    with pytest.raises(InputError, match="most = 0 must be 1 or more"):
        count_clusters(np.zeros((3, 3)), most=0)
    with pytest.raises(InputError, match="price = 0 must be above 0"):
        count_clusters(np.zeros((3, 3)), price=0)
