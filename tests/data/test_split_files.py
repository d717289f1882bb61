"""Split files: what is written comes back, and what is damaged is refused in one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protofission.core.errors import InputError
from protofission.data.splits.registry import SPLITS, differences, verify
from protofission.data.splits.split import SPLIT_PARTS, Split
from protofission.data.splits.split_files import read_split, write_split
from small_splits import small, small_split

ALL = list(SPLITS)


@pytest.mark.parametrize("name", ALL)
def test_a_split_file_gives_the_split_back(name: str, tmp_path: Path) -> None:
    split = small_split(name, seed=3, extra=9)
    path = tmp_path / "deep" / "split.json"
    write_split(split, path)
    again = read_split(path)
    assert again.manifest() == split.manifest()
    for part in SPLIT_PARTS:
        assert np.array_equal(getattr(again, part), getattr(split, part))
        assert getattr(again, part).dtype == np.int64
    assert differences(again, small(9)) == []
    assert [child.name for child in path.parent.iterdir()] == ["split.json"]


def test_a_manifest_says_all_that_identifies_a_split() -> None:
    manifest = small_split("openmatch", seed=2).manifest()
    assert json.loads(json.dumps(manifest)) == manifest
    assert manifest["name"] == "openmatch"
    assert manifest["seed"] == 2
    assert manifest["options"] == {
        "labels_per_class": 4,
        "validation_per_class": 2,
        "seen_coarse": 2,
        "seen_classes": None,
    }
    assert [manifest[part] for part in SPLIT_PARTS] == [16, 216, 8, 60]
    assert manifest["counts"] == {
        "labeled": [4, 4, 4, 4, 0, 0],
        "unlabeled": [34, 34, 34, 34, 40, 40],
        "validation": [2, 2, 2, 2, 0, 0],
        "test": [10] * 6,
    }


def change(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entries: entries.update({key: value})


def change_indices(part: str, edit: Callable[[list[int]], list[int]]) -> Callable[[Any], None]:
    return lambda entries: entries["indices"].update({part: edit(entries["indices"][part])})


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda entries: entries.clear(), "its format is None"),
        (change("format", "other"), "its format is 'other'"),
        (lambda entries: entries.pop("seed"), "seed is missing"),
        (change("seed", True), "seed must be a whole number, not True"),
        (change("seed", -1), "seed is -1"),
        (change("name", 3), "name must be a text, not 3"),
        (change("test_on", "elsewhere"), "test_on must be one of train, test, not 'elsewhere'"),
        (change("sizes", {"train": 240}), "sizes.test is missing"),
        (change("sizes", {"train": 100, "test": 60}), "index 222 is outside the 100 train images"),
        (change("seen_classes", [0, 1, 2]), "a class is missing, or there twice"),
        (change("seen_classes", [0, 1, 2.5]), "seen_classes[2] must be a whole number, not 2.5"),
        (change("labeled", 17), "labeled should have 17 indices, but has 16"),
        (change("sha256", "0" * 64), "its SHA-256 should be 000"),
        (change("indices", []), "indices must be an object, not []"),
        (change("counts", {}), "counts.labeled is missing"),
        (lambda e: e["counts"].update(test=[10] * 5), "the counts of test do not fit its 60"),
        (lambda e: e["counts"].update(labeled=[5] * 6), "the counts of labeled do not fit its 16"),
        (change_indices("labeled", lambda old: old[1:]), "labeled should have 16 indices"),
        (change_indices("labeled", lambda old: [old[0], *old]), "is twice or out of order"),
        (change_indices("labeled", lambda old: old[::-1]), "is twice or out of order"),
        (change_indices("unlabeled", lambda old: [*old, 240]), "240 is outside the 240 train"),
        (change_indices("unlabeled", lambda old: [-1, *old]), "indices.unlabeled holds -1"),
        (
            change_indices("unlabeled", lambda old: [*old, 2**70]),
            "must be a whole number of 64 bits",
        ),
        (
            change_indices("unlabeled", lambda old: ["7", *old]),
            "indices.unlabeled[0] must be a whole number, not '7'",
        ),
        (change_indices("test", lambda old: [*old, 60]), "60 is outside the 60 test images"),
        (
            lambda e: e["indices"].update(validation=e["indices"]["labeled"][:8]),
            "is both in labeled and in validation",
        ),
        (
            lambda e: e["indices"].update(validation=e["indices"]["unlabeled"][:8]),
            "is both in unlabeled and in validation",
        ),
    ],
)
def test_a_damaged_split_file_is_refused_in_one_sentence(
    edit: Callable[[dict[str, Any]], None], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "split.json"
    write_split(small_split("openmatch"), path)
    entries = json.loads(path.read_text())
    edit(entries)
    path.write_text(json.dumps(entries))
    with pytest.raises(InputError) as caught:
        read_split(path)
    assert str(caught.value).startswith(f"The split file {path} is damaged: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("part", ["labeled", "validation"])
def test_a_test_image_that_is_used_otherwise_is_refused(part: str, tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    write_split(small_split("orca"), path)
    entries = json.loads(path.read_text())
    entries["indices"] |= {"unlabeled": [], part: entries["indices"]["test"][:3]}
    path.write_text(json.dumps(entries))
    with pytest.raises(InputError, match=f"is both in {part} and in test"):
        read_split(path)


def test_one_moved_index_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    write_split(small_split("iomatch"), path)
    entries = json.loads(path.read_text())
    labeled = entries["indices"]["labeled"]
    labeled[0] = next(place for place in range(240) if place not in labeled)
    labeled.sort()
    path.write_text(json.dumps(entries))
    with pytest.raises(InputError, match="its SHA-256 should be"):
        read_split(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"[]", b"3"])
def test_what_is_no_split_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged: it (is no JSON|must be an object)"):
        read_split(path)
    with pytest.raises(InputError, match="cannot be read: "):
        read_split(tmp_path)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_split(tmp_path / "none.json")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    write_split(small_split("orca"), path)
    before = path.read_bytes()
    broken = Split("bad", 0, (0,), (), *[np.arange(2)] * 3, options={"no JSON": {1, 2}})
    with pytest.raises(TypeError):
        write_split(broken, path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ALL)
def test_verifying_says_what_differs(name: str) -> None:
    data, split = small(), small_split(name)
    verify(split, data)
    fields = {key: getattr(split, key) for key in split.__dataclass_fields__}
    moved = np.delete(split.labeled, 1)
    with pytest.raises(
        InputError,
        match=f"labeled has 0 images too many and lacks 1, the first of them {split.labeled[1]}",
    ):
        verify(Split(**{**fields, "labeled": moved}), data)
    if name != "full":  # which draws nothing
        with pytest.raises(InputError, match="is not the one that its name, options and seed make"):
            verify(Split(**{**fields, "seed": 1}), data)
    with pytest.raises(InputError, match=r"seen_classes is .* but should be"):
        verify(Split(**{**fields, "seen_classes": split.seen_classes[::-1]}), data)
    with pytest.raises(InputError, match="the counts of unlabeled are not those of its images"):
        verify(Split(**{**fields, "counts": {**split.counts, "unlabeled": (1,) * 6}}), data)
    with pytest.raises(InputError, match="Unknown split 'mine'"):
        verify(Split(**{**fields, "name": "mine"}), data)
