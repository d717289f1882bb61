"""Near-duplicates against a slow twin, and the facts that their docstring states."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from protofission.core import near_duplicates as module
from protofission.core.errors import InputError
from protofission.core.near_duplicates import members, near_duplicates
from reference.near_duplicates import slow_groups


def crowd(number: int, width: int, seed: int = 0) -> NDArray[np.float32]:
    """Features of images in eight dense clusters, positive as those of an encoder."""
    rng = np.random.default_rng(seed)
    centers = rng.exponential(size=(8, width))
    return (centers[rng.integers(0, 8, number)] * rng.gamma(4, 0.25, (number, width))).astype("f4")


def with_copies(rows: NDArray[np.float32], noise: float, copies: int) -> NDArray[np.float32]:
    """The rows, then noisy copies of the first ones."""
    rng = np.random.default_rng(1)
    same = rows[:copies] * (1 + noise * rng.normal(size=(copies, rows.shape[1])))
    return np.concatenate([rows, same.astype(np.float32)])


@pytest.mark.parametrize(("number", "width"), [(2, 3), (3, 4), (15, 6), (100, 20), (80, 150)])
@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_groups_are_those_of_the_slow_twin(number: int, width: int, noise: float) -> None:
    rows = with_copies(crowd(number, width), noise, min(number, 30))
    assert near_duplicates(rows).tolist() == slow_groups(rows.astype(float).tolist())


def test_copies_are_found_and_others_are_alone() -> None:
    rows = with_copies(crowd(300, 90), 0.05, 40)
    groups = near_duplicates(rows)
    assert (groups[300:] == groups[:40]).all()
    assert groups[:300].tolist() == list(range(300))
    assert [group.tolist() for group in members(groups)] == [[i, 300 + i] for i in range(40)]


def test_a_dense_crowd_is_no_group() -> None:
    """Rows that are all alike, at equal distances, are as little near-duplicates as any others."""
    rng = np.random.default_rng(0)
    rows = 100 + 1e-3 * rng.normal(size=(200, 50))
    assert near_duplicates(rows).tolist() == list(range(200))


def test_units_and_shifts_of_features_do_not_matter() -> None:
    rows = with_copies(crowd(200, 30), 0.1, 20).astype(np.float64)
    units = 2.0 ** (np.arange(30) % 7 - 3)
    assert near_duplicates(rows * units + 3 * units).tolist() == near_duplicates(rows).tolist()


def test_groups_follow_their_images() -> None:
    rows = with_copies(crowd(200, 30), 0.1, 20)
    order = np.random.default_rng(0).permutation(len(rows))
    shuffled, groups = near_duplicates(rows[order]), near_duplicates(rows)[order]
    assert ((shuffled[:, None] == shuffled) == (groups[:, None] == groups)).all()


def test_a_hundred_equal_images_and_a_long_burst_are_one_group_each() -> None:
    rows = crowd(300, 90)
    burst = rows[1] * (1 + 0.003 * np.random.default_rng(0).normal(size=(25, 90)))
    groups = near_duplicates(np.concatenate([rows, np.tile(rows[:1], (100, 1)), burst]))
    assert (groups[300:400] == groups[0]).all()
    assert (groups[400:] == groups[1]).all()
    assert groups[0] != groups[1]
    assert sum(map(len, members(groups))) == 127


def test_a_chain_is_cut_where_the_center_is_no_longer_near() -> None:
    """Pairs 0-1-2-3-4: the first with two neighbors is a center, and takes one on each side."""
    left = np.arange(4)
    assert module._stars(left, left + 1, 6).tolist() == [1, 1, 1, 3, 3, 5]


def test_neither_blocks_nor_threads_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = with_copies(crowd(200, 100), 0.25, 50)
    whole, before = near_duplicates(rows), torch.get_num_threads()
    monkeypatch.setattr(module, "BLOCK_NUMBERS", 2000)
    try:
        torch.set_num_threads(2)
        assert near_duplicates(rows).tolist() == whole.tolist()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_small_and_bad_inputs() -> None:
    assert near_duplicates(np.zeros((0, 3))).tolist() == []
    assert near_duplicates(np.ones((1, 3))).tolist() == [0]
    assert near_duplicates(np.ones((3, 3))).tolist() == [0, 0, 0]
    assert near_duplicates([[0.0, 1.0], [-0.0, 1.0], [5.0, 2.0]]).tolist() == [0, 0, 1]
    for bad in (np.zeros(3), np.full((2, 2), np.nan), np.zeros((2, 0))):
        with pytest.raises(InputError, match=r"are no \(N, D\) finite numbers: give a row per im"):
            near_duplicates(bad)
