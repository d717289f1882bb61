"""Images that are in two sets at once."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pictures import encoded, noise, picture, write
from protofission.core.errors import InputError, printable
from protofission.data.readers.arrays import from_arrays
from protofission.data.readers.image_folders import load_folder
from protofission.data.readers.image_problems import Overlap, overlaps


def test_a_file_in_the_labeled_set_and_in_the_pool_is_found(tmp_path: Path) -> None:
    for seed in range(3):
        picture(tmp_path / "labeled" / "cat" / f"{seed}.png", seed)
    write(tmp_path / "pool" / "copy.png", encoded(noise(8, 8, 1)))
    write(tmp_path / "pool" / "other format.bmp", encoded(noise(8, 8, 2), "BMP"))
    picture(tmp_path / "pool" / "new.png", 9)
    labeled, _ = load_folder(tmp_path / "labeled", 8, cache=tmp_path / "cache")
    pool, _ = load_folder(tmp_path / "pool", 8, cache=tmp_path / "cache")
    found = [(labeled.paths[a], pool.paths[b]) for a, b in overlaps(labeled, pool)]
    assert found == [("cat/1.png", "copy.png"), ("cat/2.png", "other format.bmp")]


@given(st.lists(st.integers(0, 4), max_size=8), st.lists(st.integers(0, 4), max_size=8))
def test_overlaps_are_all_equal_pairs(first: list[int], second: list[int]) -> None:
    sets = [
        from_arrays(np.array(values, np.uint8)[:, None, None] * np.ones((1, 2, 2), np.uint8))
        for values in (first, second)
    ]
    expected = [Overlap(a, b) for a, x in enumerate(first) for b, y in enumerate(second) if x == y]
    assert list(overlaps(*sets)) == expected


def test_images_of_two_sizes_are_not_compared() -> None:
    small, large = (from_arrays(np.zeros((1, n, n), np.uint8)) for n in (2, 3))
    with pytest.raises(InputError, match="read both sets at one size"):
        overlaps(small, large)


def test_printable_text_is_one_line_for_any_terminal() -> None:
    assert printable("a b/ü.png") == "a b/ü.png"
    assert printable("a\nb\udcff\x1b[31m") == r"a\nb\udcff\x1b[31m"
