"""CIFAR's official files: exact reading, nothing unpickled before its md5 is right."""

import hashlib
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protofission.core.errors import InputError
from protofission.data.readers.cifar import find_dataset_folder, load_cifar10, load_cifar100
from protofission.data.readers.official_datasets import OFFICIAL_DATASETS, OfficialFile, cache_home

Write = Callable[[str, Path, dict[str, Any]], Path]


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PROTOFISSION_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes values as files, and declares them the official ones."""

    def write(name: str, folder: Path, contents: dict[str, Any]) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for file, value in contents.items():
            content = pickle.dumps(value, protocol=3)
            (folder / file).write_bytes(content)
            files.append(OfficialFile(file, hashlib.md5(content).hexdigest(), len(content)))
        monkeypatch.setitem(
            OFFICIAL_DATASETS, name, replace(OFFICIAL_DATASETS[name], files=tuple(files))
        )
        return folder

    return write


def rows(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), np.uint8)


def cifar10(rows_of: Callable[[int], Any] = lambda seed: rows(2, seed)) -> dict[str, Any]:
    batches = {f"data_batch_{n}": n for n in range(1, 6)} | {"test_batch": 6}
    return {
        name: {b"data": rows_of(seed), b"labels": [seed % 3, 2], b"filenames": [b"a", b"b"]}
        for name, seed in batches.items()
    } | {"batches.meta": {b"label_names": [b"cat", b"dog", b"cow"], b"num_vis": 3072}}


def cifar100() -> dict[str, Any]:
    parts = {
        part: {b"data": rows(2, seed), b"fine_labels": [1, 0], b"coarse_labels": [0, 1]}
        for seed, part in enumerate(("train", "test"))
    }
    meta = {b"fine_label_names": [b"oak", b"cod"], b"coarse_label_names": [b"tree", b"fish"]}
    return parts | {"meta": meta}


def test_cifar10_is_read_in_the_order_of_its_batches(official: Write, tmp_path: Path) -> None:
    sets = load_cifar10(official("cifar10", tmp_path / "cifar-10-batches-py", cifar10()))
    expected = np.concatenate([rows(2, seed) for seed in range(1, 6)])
    assert sets.test is not None
    for row, image in zip(expected, sets.train.pixels, strict=True):
        for channel in range(3):  # a row is its red plane, its green plane, its blue plane
            plane = row[1024 * channel : 1024 * (channel + 1)]
            assert [int(v) for v in plane] == [int(v) for line in image[channel] for v in line]
    assert sets.train.labels.tolist() == [1, 2, 2, 2, 0, 2, 1, 2, 2, 2]
    assert sets.train.class_names == ("cat", "dog", "cow")
    assert np.array_equal(sets.test.pixels.reshape(2, -1), rows(2, 6))
    assert not sets.train.pixels.flags.writeable


def test_cifar100_has_fine_and_coarse_labels(official: Write, tmp_path: Path) -> None:
    official("cifar100", tmp_path / "cifar-100-python", cifar100())
    sets = load_cifar100(tmp_path)
    assert sets.test is not None
    for part in (sets.train, sets.test):
        assert part.labels.tolist() == [1, 0]
        assert part.coarse_labels is not None
        assert part.coarse_labels.tolist() == [0, 1]
        assert (part.class_names, part.coarse_names) == (("oak", "cod"), ("tree", "fish"))
    assert np.array_equal(sets.test.pixels.reshape(2, -1), rows(2, 1))


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(content[:-7])
    else:
        path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])


@pytest.mark.parametrize("how", ["missing", "truncated", "altered"])
def test_a_damaged_file_is_named_with_the_remedy(official: Write, tmp_path: Path, how: str) -> None:
    folder = official("cifar10", tmp_path / "x", cifar10())
    damage(folder / "data_batch_3", how)
    with pytest.raises(InputError, match=f"data_batch_3 is {how}.*protofission data fetch cifar10"):
        load_cifar10(folder)


class Evil:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_stranger_in_place_of_a_file_is_not_unpickled(official: Write, tmp_path: Path) -> None:
    folder = official("cifar10", tmp_path / "x", cifar10())
    (folder / "test_batch").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    with pytest.raises(InputError, match="test_batch is truncated"):
        load_cifar10(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("value", [Evil(Path("ran-by-test")), print, np.float64(1.0), Path("x")])
def test_even_a_file_with_the_right_md5_may_only_hold_arrays(
    official: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = official("cifar10", tmp_path / "x", {**cifar10(), "test_batch": {b"data": value}})
    with pytest.raises(InputError, match="test_batch cannot be read: it asks for"):
        load_cifar10(folder)
    assert not (tmp_path / "ran-by-test").exists()


def test_images_of_another_shape_are_refused(official: Write, tmp_path: Path) -> None:
    wrong = cifar10(lambda seed: rows(2, seed)[:, :-1])
    with pytest.raises(
        InputError, match=r"rows of 3072 bytes, not uint8 of the shape \(10, 3071\)"
    ):
        load_cifar10(official("cifar10", tmp_path / "x", wrong))


def test_the_folder_is_the_users_then_the_variables_then_the_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = [tmp_path / "user", tmp_path / "variable", cache_home()]
    for home in homes:
        (home / "cifar-10-batches-py").mkdir(parents=True)
    user, variable, cache = (home / "cifar-10-batches-py" for home in homes)
    monkeypatch.setenv("PROTOFISSION_DATA", str(homes[1]))
    with pytest.raises(InputError, match=f"CIFAR-10 is not in {homes[1]} or {homes[2]} "):
        find_dataset_folder("cifar10")
    (cache / "data_batch_1").touch()
    assert find_dataset_folder("cifar10") == cache
    (variable / "data_batch_1").touch()
    assert find_dataset_folder("cifar10") == variable
    with pytest.raises(InputError, match=f"CIFAR-10 is not in {homes[0]} "):
        find_dataset_folder("cifar10", homes[0])  # a named folder is not passed over silently
    (user / "test_batch").touch()
    assert find_dataset_folder("cifar10", homes[0]) == user
    assert find_dataset_folder("cifar10", str(user)) == user


def test_the_cache_folder_follows_the_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_home() == Path("/elsewhere/protofission")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_home() == Path.home() / ".cache" / "protofission"


def test_an_unknown_data_set_is_named() -> None:
    with pytest.raises(InputError, match=r"Unknown data set 'cifar'\. Did you mean 'cifar10'\?"):
        find_dataset_folder("cifar")


REAL = os.environ.get("PROTOFISSION_DATA")  # at import: the fixture above hides it from the tests


@pytest.mark.skipif(not REAL, reason="PROTOFISSION_DATA does not name CIFAR's official files")
def test_the_official_cifar10() -> None:
    sets = load_cifar10(REAL)
    assert sets.test is not None
    assert np.bincount(sets.train.labels).tolist() == [5000] * 10
    assert np.bincount(sets.test.labels).tolist() == [1000] * 10
    assert sets.train.class_names == (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
    assert (sets.train.pixels.shape, sets.test.pixels.shape[0]) == ((50_000, 3, 32, 32), 10_000)
    assert sets.train.labels[:5].tolist() == [6, 9, 9, 4, 1]
    # The channel means that everyone normalises with.
    means = sets.train.pixels.mean((0, 2, 3), np.float64) / 255
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)


@pytest.mark.skipif(not REAL, reason="PROTOFISSION_DATA does not name CIFAR's official files")
def test_the_official_cifar100() -> None:
    sets = load_cifar100(REAL)
    train = sets.train
    assert train.coarse_labels is not None
    assert sets.test is not None
    assert np.bincount(train.labels).tolist() == [500] * 100
    assert np.bincount(sets.test.labels).tolist() == [100] * 100
    pairs = set(zip(train.labels.tolist(), train.coarse_labels.tolist(), strict=True))
    assert len(pairs) == 100  # each fine class is in one coarse class
    assert np.bincount([coarse for _, coarse in pairs]).tolist() == [5] * 20
    trees = {train.class_names[fine] for fine, c in pairs if train.coarse_names[c] == "trees"}
    assert trees == {"maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"}
    means = train.pixels.mean((0, 2, 3), np.float64) / 255
    assert means == pytest.approx([0.5071, 0.4865, 0.4409], abs=1e-4)
