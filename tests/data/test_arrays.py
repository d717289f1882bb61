"""Arrays and tensors as image sets: every layout, exact levels, and no guess where it is open."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protofission.core.errors import InputError
from protofission.data.image_sets import NO_LABEL
from protofission.data.readers.arrays import from_arrays

RGB = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
"""(N, C, H, W)."""


@pytest.mark.parametrize("wrap", [np.asarray, torch.from_numpy, lambda a: a.tolist()])
def test_every_layout_gives_the_same_images(wrap: Any) -> None:
    def given_as(array: Any) -> Any:
        return np.asarray(wrap(array), np.uint8) if isinstance(wrap(array), list) else wrap(array)

    assert np.array_equal(from_arrays(given_as(RGB)).pixels, RGB)
    last = np.ascontiguousarray(RGB.transpose(0, 2, 3, 1))
    assert np.array_equal(from_arrays(given_as(last)).pixels, RGB)
    assert np.array_equal(from_arrays(given_as(RGB[:, 0])).pixels, RGB[:, :1])
    assert np.array_equal(from_arrays(given_as(last[..., :1].copy())).pixels, RGB[:, :1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_of_all_levels_come_back(dtype: Any) -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    floats = (levels / 255).astype(dtype)
    assert np.array_equal(from_arrays(floats).pixels[:, 0], levels)
    assert np.array_equal(from_arrays(torch.from_numpy(floats)).pixels[:, 0], levels)


def test_floats_go_to_the_nearest_level_and_halves_to_the_even() -> None:
    floats = np.array([[[0.0, 0.5 / 255, 1.5 / 255, 0.4 / 255, 0.6 / 255, 1.0]]])
    assert from_arrays(floats).pixels.ravel().tolist() == [0, 0, 2, 0, 1, 255]


def test_tensors_may_be_bfloat16_and_need_gradients() -> None:
    tensor = torch.full((1, 4, 4), 0.5, dtype=torch.bfloat16, requires_grad=True)
    assert (from_arrays(tensor).pixels == 128).all()


@given(st.integers(1, 3000))
def test_any_number_of_images_is_converted(count: int) -> None:
    floats = np.linspace(0, 1, count).reshape(-1, 1, 1)
    expected = [round(float(value) * 255) for value in floats.ravel()]
    assert from_arrays(floats).pixels.ravel().tolist() == expected


def test_the_set_is_a_copy_unless_nobody_can_write(tmp_path: Path) -> None:
    mine = RGB.copy()
    images = from_arrays(mine)
    mine[0] = 0
    assert np.array_equal(images.pixels, RGB)
    assert mine.flags.writeable
    np.save(tmp_path / "x.npy", RGB)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(from_arrays(mapped).pixels, mapped)


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (np.full((2, 4, 4), np.nan), "2 images hold NaN or infinity"),
        (np.array([[[0.0, np.inf]]]), "1 images hold NaN or infinity"),
        (np.array([[[0.0, 1.01]]]), r"must be in \[0, 1\], but these go from 0 to 1\.01"),
        (np.array([[[-0.1, 1.0]]]), "go from -0.1 to 1"),
        (np.array([[[0.0, 255.0]]]), "rescale them, or give uint8"),
        (np.zeros((1, 4, 4), np.int64), "type int64 have no agreed range"),
        (np.zeros((1, 4, 4), bool), "type bool have no agreed range"),
        (np.zeros((2, 3, 7, 3), np.uint8), r"\(2, 3, 7, 3\) may have their channels first or last"),
        (np.zeros((2, 1, 7, 3), np.uint8), "channels first or last"),
        (np.zeros((2, 8, 8, 4), np.uint8), "are not understood.*RGBA"),
        (np.zeros((8, 8), np.uint8), "are not understood"),
        (np.zeros((2, 0, 8), np.uint8), "have no pixels"),
        ([np.zeros((4, 4)), np.zeros((5, 5))], "Not an array"),
        ("images", "are not understood"),
    ],
)
def test_what_is_no_image_is_refused(images: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        from_arrays(images)


def test_the_layout_can_be_said() -> None:
    odd = np.arange(2 * 3 * 7 * 3, dtype=np.uint8).reshape(2, 3, 7, 3)
    assert np.array_equal(from_arrays(odd, layout="NCHW").pixels, odd)
    assert np.array_equal(from_arrays(odd, layout="NHWC").pixels, odd.transpose(0, 3, 1, 2))
    with pytest.raises(InputError, match="do not fit layout = 'NHW'"):
        from_arrays(odd, layout="NHW")


def labels_of(labels: Any, **options: Any) -> tuple[list[int], tuple[str, ...]]:
    images = from_arrays(np.zeros((len(labels), 2, 2), np.uint8), labels, **options)
    return images.labels.tolist(), images.class_names


def test_labels_are_numbers_or_names() -> None:
    assert labels_of([2, -1, 0]) == ([2, -1, 0], ("0", "1", "2"))
    assert labels_of(np.array([1, 0], np.uint8)) == ([1, 0], ("0", "1"))
    assert labels_of(torch.tensor([1, -1])) == ([1, -1], ("0", "1"))
    assert labels_of([1, 0], class_names=["cat", "dog", "cow"]) == ([1, 0], ("cat", "dog", "cow"))
    assert labels_of(["dog", None, "cat", ""]) == ([1, -1, 0, -1], ("cat", "dog"))
    assert labels_of(["10", "9"]) == ([1, 0], ("9", "10"))
    assert labels_of(["dog", "cat"], class_names=["dog", "cat"]) == ([0, 1], ("dog", "cat"))
    assert labels_of([-1, -1]) == ([-1, -1], ())
    pool = from_arrays(RGB, class_names=["a"])
    assert (pool.labels.tolist(), pool.class_names) == ([NO_LABEL] * 2, ("a",))


def test_coarse_labels_go_along() -> None:
    images = from_arrays(RGB, [0, 1], ["oak", "cod"], ["tree", "fish"])
    assert images.coarse_labels is not None
    assert images.coarse_labels.tolist() == [1, 0]
    assert images.coarse_names == ("fish", "tree")
    assert from_arrays(RGB, [0, 1]).coarse_labels is None


@pytest.mark.parametrize(
    ("labels", "options", "sentence"),
    [
        ([0], {}, r"labels of the shape \(1,\) do not fit 2 images"),
        ([[0], [1]], {}, r"labels of the shape \(2, 1\)"),
        ([0, -2], {}, "labels hold -2: give numbers from 0, or -1"),
        ([0, 3], {"class_names": ["a"]}, "labels hold 3, but there are 1 class names"),
        ([0.0, 1.0], {}, "labels of the type float64"),
        ([True, False], {}, "labels of the type bool"),
        ([None, 1], {}, "labels of the type object"),
        (["a", "x"], {"class_names": ["a", "b"]}, "The label 'x' is none of the classes 'a', 'b'"),
        ([0, 1], {"class_names": ["a", "a"]}, "'a' is given twice"),
        ([0, 1], {"coarse_labels": [0]}, r"coarse_labels of the shape \(1,\)"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    labels: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        from_arrays(RGB, labels, **options)
