"""MNIST and Fashion-MNIST: idx files with their headers and lengths checked."""

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pictures import write
from protofission.core.errors import InputError
from protofission.data.readers.idx import load_fashion_mnist, load_mnist, read_idx
from protofission.data.readers.official_datasets import OFFICIAL_DATASETS, OfficialFile


def idx(values: np.ndarray, code: int = 8) -> bytes:  # type: ignore[type-arg]
    """An idx file as its format says: two zeros, a type, the dimensions, sizes, values."""
    head = bytes([0, 0, code, values.ndim])
    return head + b"".join(struct.pack(">I", n) for n in values.shape) + values.tobytes()


IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
LABELS = np.array([9, 0, 4], np.uint8)
FILES = {
    "train-images-idx3-ubyte": idx(IMAGES),
    "train-labels-idx1-ubyte": idx(LABELS),
    "t10k-images-idx3-ubyte": idx(IMAGES[:1] + 100),
    "t10k-labels-idx1-ubyte": idx(LABELS[:1]),
}


def files(folder: Path, packed: bool, dotted: bool = False) -> Path:
    for name, content in FILES.items():
        name = name.replace("-idx", ".idx") if dotted else name
        if packed:
            write(folder / f"{name}.gz", gzip.compress(content))
        else:
            write(folder / name, content)
    return folder


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize("place", ["", "mnist", "MNIST/raw"])
def test_values_are_those_of_the_files(
    tmp_path: Path, packed: bool, dotted: bool, place: str
) -> None:
    files(tmp_path / place, packed, dotted)
    sets = load_mnist(tmp_path)
    assert sets.test is not None
    assert np.array_equal(sets.train.pixels, IMAGES[:, None])
    assert np.array_equal(sets.test.pixels, IMAGES[:1, None] + 100)
    assert sets.train.labels.tolist() == [9, 0, 4]
    assert sets.test.labels.tolist() == [9]
    assert sets.train.class_names[4] == "4"


def test_fashion_has_names(tmp_path: Path) -> None:
    images = load_fashion_mnist(files(tmp_path / "fashion-mnist", True)).train
    assert [images.class_names[label] for label in images.labels] == [
        "Ankle boot",
        "T-shirt/top",
        "Coat",
    ]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "does not begin as an idx file"),
        (b"\0\0", "does not begin as an idx file"),
        (idx(IMAGES)[:-1], "60 bytes, but has 59"),
        (idx(IMAGES) + b"x", "60 bytes, but has more"),
        (idx(IMAGES, code=0x0D), "does not begin"),
        (idx(LABELS), "does not begin as an idx file of 3 dimensions"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "claims the shape"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_wrong_file_is_named(tmp_path: Path, content: bytes, sentence: str, packed: bool) -> None:
    path = tmp_path / ("x.gz" if packed else "x")
    write(path, gzip.compress(content) if packed else content)
    with pytest.raises(InputError, match=f"{path} .*{sentence}.*fetch the official file"):
        read_idx(path, 3)


def test_a_broken_archive_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(idx(IMAGES))
    for content in (whole[:-9], b"no gzip at all", whole[:20] + b"\xff" * 20):
        path = write(tmp_path / "x.gz", content)
        with pytest.raises(InputError, match=r"x\.gz .*fetch the official file"):
            read_idx(path, 3)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files(tmp_path, True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte\.gz is missing.*fetch mnist"):
        load_mnist(tmp_path)


def test_images_and_labels_must_fit(tmp_path: Path) -> None:
    files(tmp_path, False)
    write(tmp_path / "train-labels-idx1-ubyte", idx(LABELS[:2]))
    with pytest.raises(InputError, match=r"has 3 images, but .* has 2 labels"):
        load_mnist(tmp_path)
    write(tmp_path / "train-labels-idx1-ubyte", idx(LABELS + 1))
    with pytest.raises(InputError, match="holds the label 10"):
        load_mnist(tmp_path)


def test_one_data_set_is_not_taken_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files(tmp_path, True)
    name = "t10k-images-idx3-ubyte.gz"
    known = OfficialFile(name, hashlib.md5((folder / name).read_bytes()).hexdigest())
    monkeypatch.setitem(
        OFFICIAL_DATASETS,
        "fashion-mnist",
        replace(OFFICIAL_DATASETS["fashion-mnist"], files=(known,)),
    )
    with pytest.raises(InputError, match="is a file of Fashion-MNIST, not of MNIST"):
        load_mnist(folder)
