"""Stores whose manifest was changed and sealed again by hand: refused in a sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protofission.core.errors import InputError
from protofission.data.splits.registry import find_split
from protofission.data.store.manifest import fingerprint, npy_header
from protofission.data.store.reader import Store
from protofission.data.store.stored_views import divide_store
from protofission.system.digests import digest
from stores import made

DEEP = "[" * 100_000


def resealed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest, and give it a seal that fits."""
    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    del content["seal"]
    change(content)
    path.write_text(json.dumps({**content, "seal": fingerprint(content)}))


def put(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        parents = key.split("/", 1 if key.startswith("digests") else -1)
        for name in parents[:-1]:
            content = content[name]
        last = parents[-1]
        if value is ...:
            del content[last]
        else:
            content[last] = value

    return change


NONSENSE: list[tuple[str, Any]] = [
    *((key, ...) for key in ("data", "encoder", "item", "parts", "block", "class_names")),
    *((key, ...) for key in ("coarse_names", "data/name", "data/shape", "parts/train")),
    *((key, ...) for key in ("augmentation/fingerprint", "parts/train/rows")),
    *((key, ...) for key in ("parts/train/views/plain", "digests/train-plain.npy")),
    *((key, ...) for key in ("digests/labels/train.npy", "digests/labels/test.npy")),
    *(("item", value) for value in ([], [0], [-3], [2**70], [2**40, 2, 2], [1.5], ["a"])),
    *(("item", value) for value in (12, None, [[12]], [True], [12, 12])),
    *(("block", value) for value in (0, -1, 2**70, 1.0, "1", None, True)),
    *(("class_names", value) for value in ([1, 2, 3, 4, 5, 6], "abcdef", None, [], ["a"])),
    *(("coarse_names", value) for value in ([1], None)),
    *(("parts/train/rows", value) for value in (-1, 0, 1, 2**70, 240.0, "240", None)),
    *(("parts/train/views/weak", value) for value in (0, -1, 2**62, "3", None)),
    ("parts/train/views/odd", 1),
    ("parts/odd", {"rows": 1, "views": {"plain": 1}}),
    ("parts/train/odd", 1),
    *(("data/fingerprint", value) for value in (1, None, [])),
    *(("data/shape", value) for value in ([], [-1], "12", [2**70], [1.5])),
    *(("data/name", value) for value in (3, None, [])),
    *((part, value) for part in ("data", "encoder", "augmentation") for value in (3, None, [])),
    *(("digests", value) for value in (3, [], "x", {})),
    *(("digests/train-plain.npy", value) for value in ([], [3], ["x"], "x", None, ["0" * 64])),
    *(("digests/labels/train.npy", value) for value in ([], [3], ["0" * 32, "0" * 32])),
    *(("version", value) for value in (0, 2, None, "1", [], 2**70)),
]  # fmt: skip


def test_a_store_resealed_by_hand_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "s").folder
    resealed(folder, lambda content: None)
    used(folder)
    content = (folder / "manifest.json").read_bytes()
    for key, value in NONSENSE:
        resealed(folder, put(key, value))
        with pytest.raises(InputError) as caught:
            used(folder)
        assert len(str(caught.value)) < 600, key
        (folder / "manifest.json").write_bytes(content)
    used(folder)


def used(folder: Path) -> None:
    """Read all of a store."""
    store = Store.open(folder)
    store.map_verified_view("train", "plain")
    store.map_verified_view("train", "weak")
    store.paths()
    divide_store(store, find_split("orca").split(store.labeling()))


def test_labels_and_paths_resealed_by_hand_are_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "s", rows=24, test=6).folder
    labels = folder / "labels" / "train.npy"
    header = npy_header("<i8", (24,))
    good = labels.read_bytes()
    for bad in (
        header,
        good[:-3],
        good + b"more",
        header + np.full(24, 6).astype("<i8").tobytes(),
        header + np.full(24, -2).astype("<i8").tobytes(),
        npy_header("<i8", (25,)) + good[len(header) :],
    ):
        labels.write_bytes(bad)
        resealed(folder, put("digests/labels/train.npy", [digest(bad)]))
        with pytest.raises(InputError, match=r"labels/train\.npy was edited or damaged"):
            used(folder)
    labels.write_bytes(good)
    resealed(folder, put("digests/labels/train.npy", [digest(good)]))
    for text in (
        "3",
        "[]",
        DEEP,
        '{"train": 3}',
        '{"train": [1]}',
        '{"train": ["a"]}',
        '{"x": []}',
    ):
        (folder / "paths.json").write_text(text)
        resealed(folder, put("digests/paths.json", [digest(text.encode())]))
        with pytest.raises(InputError, match=r"paths\.json was edited or damaged"):
            used(folder)


@pytest.mark.parametrize(
    "text", [DEEP, '{"a":' * 50_000, "[]", "NaN", '{"version": 1, "version": 1}']
)
def test_a_manifest_that_is_no_json_of_ours_is_refused(text: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "s", rows=24, test=6).folder
    (folder / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json was edited or damaged \("):
        Store.open(folder)
    (folder / "blocks.jsonl").write_text(f"{text}\n" * 3)
    with pytest.raises(InputError, match="delete the store's folder"):
        made(folder, rows=24, test=6)
