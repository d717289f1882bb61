"""Stores in shards: the features of a store in one piece, byte for byte, however it was killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bundles import encoder_at
from pictures import picture
from protofission.core.errors import InputError
from protofission.data.store.reader import Store
from protofission.data.store.shards import SHARDS, ShardedStore
from protofission.data.store.stored_views import StoredViews
from protofission.models.encoders import EncoderSpec
from protofission.system.launch.local_launcher import LocalLauncher
from protofission.training.embed import ViewCounts, embed, images_of
from protofission.training.embed_shards import embed_in_shards

COUNTS = ViewCounts(weak=2, strong=0)
LOCAL = LocalLauncher(2)
pytestmark = pytest.mark.usefixtures("ready_workers")


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> EncoderSpec:
    return encoder_at(tmp_path_factory.mktemp("encoder") / "small.safetensors")


@pytest.fixture(scope="module")
def stores(
    spec: EncoderSpec, ready_workers: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Store, Store]:
    """The digits in one piece, and in four shards."""
    folder = tmp_path_factory.mktemp("stores")
    whole = embed(images_of("digits", 0), spec, folder / "whole", COUNTS)
    shards = embed_in_shards("digits", spec, folder / "shards", COUNTS, launcher=LOCAL, shard=512)
    return whole, shards


def test_features_and_labels_are_those_of_one_piece(stores: tuple[Store, Store]) -> None:
    whole, shards = stores
    assert isinstance(shards, ShardedStore)
    assert len(shards.shards) == 4
    assert shards.plan.parts == whole.plan.parts
    for view in ("plain", "weak"):
        assert np.array_equal(shards.map_view("train", view), whole.map_view("train", view))
    assert np.array_equal(shards.labeling().train, whole.labeling().train)
    for name in ("encoder", "augmentation"):
        assert shards.plan.fingerprints[name] == whole.plan.fingerprints[name]


def test_rows_are_read_as_of_one_piece_also_with_little_memory(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.randperm(1797, generator=torch.Generator().manual_seed(0))[:700]
    found = [StoredViews(store).plain(rows) for store in stores]
    assert torch.equal(*found)
    monkeypatch.setattr("protofission.data.store.stored_views.MAPPED", 2**22)
    monkeypatch.setattr("protofission.data.store.shards.MOST_OPEN", 1)
    assert torch.equal(StoredViews(stores[1]).plain(rows), found[0])
    generator = torch.Generator().manual_seed(3)
    drawn = [StoredViews(store).view("weak", rows, generator) for store in stores]
    assert torch.equal(*drawn)


@pytest.mark.slow
def test_a_damaged_shard_is_refused_and_made_again(
    stores: tuple[Store, Store], spec: EncoderSpec
) -> None:
    shards = stores[1]
    path = shards.folder / "shards" / "000002" / "train-plain.npy"
    good = path.read_bytes()
    path.write_bytes(good[:-2] + b"\x00\x01")
    with pytest.raises(InputError, match=r"000002/train-plain.npy was edited or damaged"):
        StoredViews(shards).plain(torch.arange(3))
    again = embed_in_shards("digits", spec, shards.folder, COUNTS, launcher=LOCAL)
    assert path.read_bytes() == good
    assert isinstance(again, ShardedStore)


def test_other_options_and_unfinished_shards_are_refused(
    stores: tuple[Store, Store], spec: EncoderSpec, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="a store in shards with other seed: name another"):
        embed_in_shards("digits", spec, stores[1].folder, COUNTS, launcher=LOCAL, seed=1)
    with pytest.raises(InputError, match="shard = 100 must be a multiple of 256"):
        embed_in_shards("digits", spec, tmp_path / "new", COUNTS, launcher=LOCAL, shard=100)
    text = (stores[1].folder / SHARDS).read_text()
    (tmp_path / SHARDS).write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(InputError, match="was edited or damaged"):
        Store.open(tmp_path)


def test_photographs_of_a_list_by_row_groups(spec: EncoderSpec, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = [f"{number:03}.png" for number in range(300)]
    for number, name in enumerate(names):
        picture(tmp_path / "photos" / name, number, side=8)
    (tmp_path / "photos" / "271.png").write_text("no image")
    labels = [str(number % 3) if number % 2 else None for number in range(300)]
    table = arrow.table({"path": names, "label": labels})
    parquet.write_table(table, tmp_path / "photos" / "list.parquet", row_group_size=64)
    source = str(tmp_path / "photos" / "list.parquet")
    plain = ViewCounts(weak=0, strong=0)
    whole = embed(images_of(source, spec.load().decode), spec, tmp_path / "whole", plain)
    shards = embed_in_shards(source, spec, tmp_path / "shards", plain, launcher=LOCAL, shard=256)
    assert shards.plan.parts["train"].rows == 299
    assert shards.plan.class_names == ("0", "1", "2")
    assert shards.paths() == whole.paths()
    assert np.array_equal(shards.labeling().train, whole.labeling().train)
    assert np.array_equal(shards.map_view("train", "plain"), whole.map_view("train", "plain"))
