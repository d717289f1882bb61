"""Hugging Face data sets from a local folder; skipped where `datasets` is not installed."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pictures import encoded, noise, picture, write
from protofission.core.errors import InputError
from protofission.data.readers.huggingface_datasets import load_hub


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("datasets")


def rows(datasets: Any, **columns: Any) -> Any:
    images = [{"bytes": encoded(noise(8, 8, seed)), "path": None} for seed in range(3)]
    images[1]["bytes"] = b"broken"
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["dog", "cat"])}
    features |= {name: datasets.Value("string") for name in columns}
    values = {"image": images, "label": [1, 0, -1], **columns}
    return datasets.Dataset.from_dict(values, features=datasets.Features(features))


def check(folder: Path, **options: Any) -> None:
    for cached in (False, True):
        images, report = load_hub(folder, 8, **options)
        assert [p.tobytes() for p in images.pixels] == [
            noise(8, 8, seed).transpose(2, 0, 1).tobytes() for seed in (0, 2)
        ]
        assert images.labels.tolist() == [1, -1]
        assert images.class_names == ("dog", "cat")
        assert list(report.left_out) == ["row 1"]
        assert report.from_cache == cached


def test_what_save_to_disk_wrote(datasets: Any, tmp_path: Path) -> None:
    rows(datasets).save_to_disk(tmp_path / "x")
    check(tmp_path / "x")


def test_one_split_of_several(datasets: Any, tmp_path: Path) -> None:
    parts = datasets.DatasetDict({"train": rows(datasets), "test": rows(datasets).select([0])})
    parts.save_to_disk(tmp_path / "x")
    check(tmp_path / "x", split="train")
    assert len(load_hub(tmp_path / "x", 8, split="test")[0].pixels) == 1
    with pytest.raises(InputError, match="has the splits test, train: say which"):
        load_hub(tmp_path / "x", 8)
    with pytest.raises(InputError, match=r"Unknown split 'trian'\. Did you mean 'train'"):
        load_hub(tmp_path / "x", 8, split="trian")


def test_parquet_files_of_a_repository(datasets: Any, tmp_path: Path) -> None:
    (tmp_path / "x" / "data").mkdir(parents=True)
    for part in range(2):
        shard = rows(datasets).select([[0, 1], [2]][part])
        shard.to_parquet(tmp_path / "x" / "data" / f"train-0000{part}-of-00002.parquet")
    write(tmp_path / "x" / "README.md", b"# A data set")
    check(tmp_path / "x")


def test_a_change_of_the_files_is_seen(datasets: Any, tmp_path: Path) -> None:
    rows(datasets).save_to_disk(tmp_path / "x")
    load_hub(tmp_path / "x", 8)
    rows(datasets).select([2]).save_to_disk(tmp_path / "y")
    for file in (tmp_path / "y").iterdir():
        (tmp_path / "x" / file.name).write_bytes(file.read_bytes())
    images, report = load_hub(tmp_path / "x", 8)
    assert not report.from_cache
    assert np.array_equal(images.pixels[0], noise(8, 8, 2).transpose(2, 0, 1))


def test_columns_can_be_chosen(datasets: Any, tmp_path: Path) -> None:
    rows(datasets, kind=["10", "", "9"]).save_to_disk(tmp_path / "x")
    images, _ = load_hub(tmp_path / "x", 8, label_column="kind")
    assert (images.labels.tolist(), images.class_names) == ([1, 0], ("9", "10"))
    pool, _ = load_hub(tmp_path / "x", 8, unlabeled=True)
    assert (pool.labels.tolist(), pool.class_names) == ([-1, -1], ())
    with pytest.raises(InputError, match="Unknown column 'kinds'"):
        load_hub(tmp_path / "x", 8, label_column="kinds")
    with pytest.raises(InputError, match="'kind' holds no images"):
        load_hub(tmp_path / "x", 8, image_column="kind")
    without = rows(datasets).remove_columns("label")
    without.save_to_disk(tmp_path / "z")
    with pytest.raises(InputError, match="has 0 columns of class labels among image"):
        load_hub(tmp_path / "z", 8)


def test_a_pipe_is_not_waited_for(datasets: Any, tmp_path: Path) -> None:
    rows(datasets).save_to_disk(tmp_path / "x")
    (tmp_path / "x" / "state.json").unlink()
    os.mkfifo(tmp_path / "x" / "state.json")
    with pytest.raises(InputError, match=r"state\.json is not a file, and reading it may never"):
        load_hub(tmp_path / "x", 8)


def test_what_is_no_data_set_is_refused(datasets: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        load_hub(tmp_path / "nothing", 8)
    picture(tmp_path / "x" / "a.png", 0)
    with pytest.raises(InputError, match=r"holds neither what save_to_disk writes nor \.parquet"):
        load_hub(tmp_path / "x", 8)
    write(tmp_path / "y" / "dataset_info.json", b"{")
    with pytest.raises(InputError, match="cannot be read as a data set"):
        load_hub(tmp_path / "y", 8)
    write(tmp_path / "z" / "train.parquet", b"no")
    with pytest.raises(InputError, match="cannot be read as a data set"):
        load_hub(tmp_path / "z", 8)


def test_without_the_library_one_sentence_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r'needs datasets: pip install "protofission\[hub\]"'):
        load_hub(tmp_path, 8)
