"""Labeled images and a pool, read, checked and put together."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protofission.core.errors import InputError
from protofission.triage import fit_data
from protofission.triage.fit_data import load_fit_data


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def picture(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(value).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(drawn).save(path)


def folders(tmp_path, labeled, pool):
    """Files by path and the number of their picture."""
    for name, value in labeled.items():
        picture(tmp_path / "labeled" / name, value)
    (tmp_path / "pool").mkdir(exist_ok=True)
    for name, value in pool.items():
        picture(tmp_path / "pool" / name, value)
    return tmp_path / "labeled", tmp_path / "pool"


def fit_data_of(tmp_path, labeled, pool):
    return load_fit_data(*folders(tmp_path, labeled, pool), 8)


def test_labeled_images_come_first_and_then_the_pool(tmp_path):
    found = fit_data_of(
        tmp_path,
        {"b/1.png": 1, "b/2.png": 2, "a/1.png": 3},
        {"x/1.png": 4, "2.png": 5},
    )
    assert found.num_labeled == 3
    assert found.images.class_names == ("a", "b")
    assert found.images.labels.tolist() == [0, 1, 1, -1, -1]
    assert found.images.paths == ("a/1.png", "b/1.png", "b/2.png", "2.png", "x/1.png")
    for place, value in enumerate((3, 1, 2, 5, 4)):
        wanted = np.random.default_rng(value).integers(0, 256, (8, 8, 3), np.uint8)
        assert np.array_equal(found.images.pixels[place : place + 1][0], wanted.transpose(2, 0, 1))
    assert not found.repeated.any()


def test_of_copies_one_is_used_and_of_contradicting_ones_none(tmp_path):
    found = fit_data_of(
        tmp_path,
        {"a/1.png": 1, "a/2.png": 1, "a/3.png": 2, "b/1.png": 2, "b/2.png": 3, "a/4.png": 6},
        {"1.png": 4},
    )
    assert found.images.paths[: found.num_labeled] == ("a/1.png", "a/4.png", "b/2.png")
    text = " ".join(found.findings)
    assert "1 labeled copy of another labeled image is not used." in text
    assert "2 labeled images are not used: the same image has several classes" in text


def test_an_image_of_the_pool_that_is_labeled_too_is_known_as_such(tmp_path):
    found = fit_data_of(
        tmp_path, {"a/1.png": 1, "a/2.png": 2, "b/1.png": 3}, {"1.png": 2, "2.png": 9}
    )
    assert found.repeated.tolist() == [True, False]
    assert found.pool_paths == ("1.png", "2.png")
    assert "1 image of the pool is a labeled one too" in " ".join(found.findings)


def test_findings_name_the_folders_as_they_were_named(tmp_path, monkeypatch):
    folders(
        tmp_path, {f"{c}/{n}.png": 2 * n + (c == "b") for c in "ab" for n in (0, 1)}, {"1.png": 9}
    )
    monkeypatch.chdir(tmp_path)
    found = load_fit_data(Path("labeled"), Path("pool"), 8)
    assert found.findings[:2] == ("4 images read from labeled.", "1 image read from pool.")
    assert str(tmp_path) not in " ".join(found.findings)


def test_what_cannot_be_read_is_told_with_its_reason(tmp_path):
    labeled, pool = folders(tmp_path, {"a/1.png": 1, "a/2.png": 2, "b/1.png": 3}, {"1.png": 4})
    (pool / "cut.jpg").write_bytes(b"\xff\xd8\xff")
    found = load_fit_data(labeled, pool, 8)
    assert list(found.unreadable) == ["cut.jpg"]
    assert found.pool_paths == ("1.png",)


def test_rows_of_a_list_without_a_label_join_the_pool(tmp_path):
    _, pool = folders(tmp_path, {"a/1.png": 1, "a/2.png": 2, "b/1.png": 3}, {"1.png": 4})
    listed = tmp_path / "labeled" / "list.csv"
    listed.write_text("path,label\na/1.png,cat\na/2.png,\nb/1.png,dog\na/1.png,cat\n")
    with pytest.raises(InputError, match="single image"):
        load_fit_data(listed, pool, 8)
    picture(tmp_path / "labeled" / "c.png", 7)
    listed.write_text("path,label\na/1.png,cat\na/2.png,\nb/1.png,dog\nc.png,cat\n")
    found = load_fit_data(listed, pool, 8)
    assert found.images.labels.tolist() == [0, 1, 0, -1, -1]
    assert found.pool_paths == ("a/2.png", "1.png")


@pytest.mark.parametrize(
    ("labeled", "pool", "sentence"),
    [
        ({"a/1.png": 1, "a/2.png": 2}, {"1.png": 4}, "Images of 1 class can be used \\('a'\\)"),
        ({"a/1.png": 1, "b/2.png": 2}, {"1.png": 4}, "single image"),
        (
            {"a/1.png": 1, "b/2.png": 1},
            {"1.png": 4},
            "Images of 0 classes can be used .2 labeled images are not used: the same image",
        ),
        ({"1.png": 1, "2.png": 2}, {"1.png": 4}, "no class subfolders"),
        ({"a/1.png": 1, "a/2.png": 2, "b/1.png": 3}, {}, "holds no image that can be read"),
    ],
)
def test_what_cannot_be_fitted_is_refused_in_a_sentence(tmp_path, labeled, pool, sentence):
    with pytest.raises(InputError, match=sentence):
        fit_data_of(tmp_path, labeled, pool)


def test_small_classes_are_named(tmp_path):
    found = fit_data_of(tmp_path, {"a/1.png": 1, "a/2.png": 2, "b/1.png": 3}, {"1.png": 4})
    assert "Classes with fewer than 10 labeled images: a (2), b (1)." in found.findings


def test_more_classes_than_a_cpu_bears_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fit_data, "MOST_CLASSES", 2)
    with pytest.raises(InputError, match="There are 3 classes, and a fit takes at most 2"):
        fit_data_of(
            tmp_path, {"a/1.png": 1, "a/2.png": 2, "b/1.png": 3, "c/1.png": 5}, {"1.png": 4}
        )
