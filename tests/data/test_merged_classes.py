"""Classes merged by the coarse split: on images and on stores, with the fine classes kept."""

from pathlib import Path

import numpy as np
import pytest

from protofission.core.errors import InputError
from protofission.data.datasets import DataSpec, split_class_names
from protofission.data.image_sets import ImageSets, divide
from protofission.data.readers.arrays import from_arrays
from protofission.data.splits.labeling import Labeling
from protofission.data.splits.registry import find_split, verify
from stores import CLASSES, made

OPTIONS = {"merge": 2, "num_seen": 2, "labels_per_class": 20}
GROUPS = ("class 0+class 1", "class 2+class 3", "class 4+class 5")


def test_a_store_s_classes_share_labels_and_the_fine_ones_are_kept_for_the_test(tmp_path: Path):
    store = made(tmp_path / "s")
    spec = DataSpec(None, store=str(store.folder), split=find_split("coarse", OPTIONS))
    data, fine = spec.load(), store.labeling()
    assert data.class_names == GROUPS
    assert (data.training.num_seen, data.training.num_classes) == (2, 3)
    assert (data.training.labels == fine.train[data.training.labeled] // 2).all()
    assert len(data.training.labels) == 40
    assert data.test.finer is not None
    assert fine.test is not None
    assert sorted(set(data.test.finer.tolist())) == list(range(CLASSES))
    assert (data.test.labels == data.test.finer // 2).all()


def test_images_are_merged_as_their_features_are(tmp_path: Path):
    store = made(tmp_path / "s")
    labels = store.labeling().train
    names = [f"class {number}" for number in range(CLASSES)]
    pixels = np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1) + np.zeros((1, 1, 8, 8))
    images = from_arrays(pixels.astype(np.uint8), labels, names)
    sets, options = ImageSets(images), {**OPTIONS, "test_per_class": 10}
    split = find_split("coarse", options).split(Labeling.of(sets))
    training, test = divide(sets, split)
    spec = DataSpec(None, store=str(store.folder), split=find_split("coarse", options))
    features = spec.load()
    assert split.sha256 == features.split.sha256
    assert training.labels.tolist() == features.training.labels.tolist()
    assert training.labeled[:, 0, 0, 0].tolist() == features.training.labeled.tolist()
    assert test.labels.tolist() == features.test.labels.tolist()
    assert (test.finer == features.test.finer).all()  # type: ignore[attr-defined]
    assert split_class_names(split, images) == GROUPS
    verify(split, Labeling.of(sets))


def test_the_last_class_is_smaller_where_the_number_is_no_multiple():
    labels = np.array([0, 4, 1, 2, -1, 3])
    merged = Labeling(labels, 5, class_names=tuple("abcde")).coarse(2)
    assert merged.train.tolist() == [0, 2, 0, 1, -1, 1]
    assert merged.class_names == ("a+b", "c+d", "e")
    assert merged.num_classes == 3


def test_merging_none_is_refused():
    with pytest.raises(InputError, match="merge = 0 must be a whole number from 1 on"):
        find_split("coarse", {"merge": 0})
