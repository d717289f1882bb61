"""Rows of several arrays in files, read as one array."""

from pathlib import Path

import numpy as np
import pytest

from protofission.data.store.mapped_arrays import JoinedRows


def mapped(path: Path, values: np.ndarray) -> np.ndarray:
    np.save(path, values)
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize("count", [0, 1, 5])
def test_joined_rows_are_those_of_the_arrays_one_after_another(tmp_path: Path, count: int) -> None:
    rng = np.random.default_rng(count)
    first = mapped(tmp_path / "a.npy", rng.integers(0, 256, (7, 3, 2, 2), np.uint8))
    second = mapped(tmp_path / "b.npy", rng.integers(0, 256, (4, 3, 2, 2), np.uint8))
    some, none = np.array([5, 0, 6])[:count], np.empty(0, np.int64)
    joined = JoinedRows([(first, some), (first, none), (second, np.arange(4))])
    whole = np.concatenate([first[some], second])
    assert joined.shape == whole.shape
    assert len(joined) == len(whole)
    n = len(whole)
    for rows in (slice(None), slice(2, 5), slice(n - 1, n + 9), slice(3, 3)):
        assert np.array_equal(joined[rows], whole[rows])
    drawn = rng.integers(0, n, 20)
    assert np.array_equal(joined[drawn], whole[drawn])
    assert joined[drawn].dtype == np.uint8


def test_what_is_read_is_a_copy(tmp_path: Path) -> None:
    array = mapped(tmp_path / "a.npy", np.zeros((3, 2), np.uint8))
    joined = JoinedRows([(array, np.arange(3))])
    joined[0:2][:] = 1
    assert not joined[0:3].any()
    with pytest.raises(IndexError):
        joined[np.array([3])]
