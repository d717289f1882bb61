"""The store: what is written is read, by row and version, and what is damaged is refused."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protofission.core.errors import InputError
from protofission.core.records import WHOLE, Share, ViewName, Views
from protofission.core.rng import step_rng
from protofission.data.augment.views import ViewRequest
from protofission.data.batches import Batches
from protofission.data.datasets import DataSpec
from protofission.data.splits.registry import find_split
from protofission.data.store import writer as filling
from protofission.data.store.from_arrays import store_features
from protofission.data.store.manifest import (
    Block,
    Part,
    StorePlan,
    fingerprint,
    read_store_manifest,
)
from protofission.data.store.mapped_arrays import MappedRows
from protofission.data.store.reader import Store
from protofission.data.store.stored_views import StoredViews
from protofission.data.store.writer import fill
from protofission.methods import METHODS
from stores import CLASSES, COUNTS, WIDTH, features, made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return made(tmp_path_factory.mktemp("stores") / "blobs")


def test_plain_views_are_the_rows_that_were_written(store: Store):
    views, labels = features(240)
    judged, truth = features(60, seed=2)
    rows = torch.tensor([239, 0, 17, 240, 299, 17])
    wanted = np.concatenate([views["plain"][:, 0], judged["plain"][:, 0]])[rows].astype(np.float32)
    assert torch.equal(StoredViews(store).plain(rows), torch.from_numpy(wanted))
    labeling = store.labeling()
    assert labeling.train.tolist() == labels.tolist()
    assert labeling.test is not None
    assert labeling.test.tolist() == truth.tolist()


def test_a_view_is_one_of_its_versions_and_views_of_a_step_differ(store: Store):
    views, _ = features(240)
    rows = torch.arange(240)
    seen = set()
    for step in range(8):
        generator = step_rng(0, step, "views")
        found = [StoredViews(store).view("weak", rows, generator, nth=n) for n in range(3)]
        chosen = [
            (torch.from_numpy(views["weak"]).float() == view[:, None]).all(-1).int().argmax(1)
            for view in found
        ]
        for view, version in zip(found, chosen, strict=True):
            wanted = torch.from_numpy(views["weak"]).float()[rows, version]
            assert torch.equal(view, wanted)
        assert torch.equal(torch.stack(chosen).sort(0).values, torch.arange(3)[:, None] + 0 * rows)
        seen.add(tuple(chosen[0].tolist()))
    assert len(seen) == 8  # another step, other versions
    assert all(0.2 < np.mean([s[row] == 0 for s in seen for row in range(240)]) < 0.47 for _ in "1")


def test_versions_depend_on_seed_and_step_and_not_on_the_share(store: Store):
    rows, stored = torch.arange(60), StoredViews(store)

    def drawn(seed: int, step: int, share: Share = WHOLE) -> torch.Tensor:
        return stored.view("weak", rows[share.of(60)], step_rng(seed, step, "views"), share)

    assert torch.equal(drawn(3, 5), drawn(3, 5))
    assert not torch.equal(drawn(3, 5), drawn(4, 5))
    assert not torch.equal(drawn(3, 5), drawn(3, 6))
    halves = torch.cat([drawn(3, 5, Share(rank, 2)) for rank in range(2)])
    assert torch.equal(drawn(3, 5), halves)


@pytest.mark.parametrize("names", [("weak", "weak"), ("plain", "plain"), ("weak", "plain")])
def test_views_together_are_the_views_one_by_one(store: Store, names: tuple[ViewName, ...]):
    stored, rows = StoredViews(store), torch.tensor([5, 0, 239, 17])
    if "weak" not in names:
        rows = torch.cat([rows, torch.tensor([240, 299])])  # some of the test images
    for share in (WHOLE, Share(1, 3)):
        wanted = [
            ViewRequest(names[0], rows),
            ViewRequest(names[1], rows[:3], 1),
            ViewRequest(names[1], rows),
        ]
        one_by_one = [
            stored.view(w.name, w.images, step_rng(0, 4, "views"), share, w.nth) for w in wanted
        ]
        together = stored.views(wanted, step_rng(0, 4, "views"), share)
        assert together.dtype == torch.float32
        assert torch.equal(together, torch.cat(one_by_one).float())


def test_a_batch_of_a_store_is_laid_out_as_one_of_images(store: Store):
    data = DataSpec(None, split=find_split("orca"), store=str(store.folder)).load()
    batches = Batches(
        data.training, METHODS["orca"].traits.views, data.augmentations, 16, 24, seed=0
    )
    batch = batches.at(0)
    assert batch.inputs.shape == (80, WIDTH)
    first, second = (batch.layout.labeled_rows(view) for view in range(2))
    centers = 3 * np.random.default_rng(1).standard_normal((CLASSES, WIDTH))
    nearest = torch.cdist(batch.inputs.float(), torch.from_numpy(centers).float()).argmin(1)
    assert torch.equal(nearest[first], batch.labels)  # the rows are those of the labels
    assert torch.equal(nearest[second], batch.labels)
    assert not torch.equal(batch.inputs[first], batch.inputs[second])


def test_the_pool_holds_rows_and_no_labels(store: Store):
    data = DataSpec(None, split=find_split("orca"), store=str(store.folder)).load()
    split = data.split
    assert data.training.labeled.tolist() == split.labeled.tolist()
    assert data.training.unlabeled.tolist() == split.unlabeled.tolist()
    assert data.training.shape == (WIDTH,)
    official = DataSpec(
        None,
        split=find_split("ds3l", {"labels_per_class": 4, "unlabeled": 40}),
        store=str(store.folder),
    ).load()
    assert official.test.inputs.min() == 240  # test rows follow those of train
    assert len(official.test.inputs) == len(official.test.labels)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 99), max_size=30), st.integers(1, 9))
def test_rows_are_the_same_however_few_are_held(rows: list[int], at_once: int):
    array = np.arange(500).reshape(100, 5)
    few = MappedRows(array, 1)
    few._at_once = at_once
    for held in (few, MappedRows(array, 2**20)):
        assert held[np.array(rows, np.int64)].tolist() == array[rows].tolist()


def test_pages_of_a_map_are_given_back(tmp_path: Path):
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(2**21, dtype=np.int64).reshape(-1, 512))
    array = np.load(path, mmap_mode="r")

    def resident() -> int:
        for line in Path("/proc/self/smaps").read_text().split(str(path))[1].splitlines():
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
        raise AssertionError

    order = np.random.default_rng(0).permutation(4096)
    few, many = MappedRows(array, 2**22), MappedRows(array, 2**30)
    assert few[order][:, 0].tolist() == (order * 512).tolist()
    assert resident() <= 2**22
    assert many[order][:, 0].tolist() == (order * 512).tolist()
    assert resident() > 2**23


# --- what is refused ---------------------------------------------------------------------------


def test_a_store_is_made_anew_where_it_was_edited_and_kept_elsewhere(tmp_path: Path):
    store = made(tmp_path / "s")
    whole = {p.name: p.read_bytes() for p in store.folder.glob("*.npy")}
    file = store.folder / "train-weak.npy"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    opened = Store.open(store.folder)  # its size is right
    with pytest.raises(InputError, match=r"train-weak\.npy was edited or damaged at image 0"):
        opened.map_verified_view("train", "weak")
    opened.map_verified_view("train", "plain")  # the rest stays usable
    made(store.folder)
    assert {p.name: p.read_bytes() for p in store.folder.glob("*.npy")} == whole
    Store.open(store.folder).map_verified_view("train", "weak")


@pytest.mark.parametrize("file", ["train-weak.npy", "test-plain.npy"])
@pytest.mark.parametrize("bytes_left", [0, 10, 100, 1000])
def test_a_store_cut_short_is_refused(file: str, bytes_left: int, tmp_path: Path):
    store = made(tmp_path / "s")
    path = store.folder / file
    path.write_bytes(path.read_bytes()[:bytes_left])
    with pytest.raises(InputError, match=f"{file} is cut short"):
        Store.open(store.folder)
    made(store.folder)
    Store.open(store.folder)
    path.unlink()
    with pytest.raises(InputError, match=f"{file} is missing"):
        Store.open(store.folder)


@pytest.mark.parametrize("instead", ["a folder", "a pipe", "a link"])
def test_what_is_no_plain_file_is_refused_and_never_written_through(instead: str, tmp_path: Path):
    store = made(tmp_path / "s")
    path, other = store.folder / "train-weak.npy", tmp_path / "precious"
    path.unlink()
    other.write_text("precious")
    match instead:
        case "a folder":
            path.mkdir()
        case "a pipe":
            os.mkfifo(path)
        case "a link":
            path.symlink_to(other)
    with pytest.raises(InputError, match=r"train-weak\.npy (is cut short|cannot be read)"):
        Store.open(store.folder)
    with pytest.raises(InputError, match=r"train-weak\.npy is not a plain file: delete it"):
        made(store.folder)
    assert other.read_text() == "precious"
    path.rmdir() if path.is_dir() else path.unlink()
    made(store.folder).map_verified_view("train", "weak")


def test_edited_labels_are_refused(tmp_path: Path):
    store = made(tmp_path / "s")
    path = store.folder / "labels" / "train.npy"
    labels = np.load(path)
    np.save(path, np.roll(labels, 1))
    with pytest.raises(InputError, match=r"labels/train\.npy was edited or damaged"):
        Store.open(store.folder).labeling()
    made(store.folder)
    assert Store.open(store.folder).labeling().train.tolist() == labels.tolist()


@pytest.mark.parametrize(
    "key",
    ["version", "data", "encoder", "augmentation", "item", "parts", "block", "class_names"],
)
@pytest.mark.parametrize("value", [None, [], {}, "x", -1, 2**60, [[-3]]])
def test_a_manifest_of_nonsense_is_one_sentence(key: str, value: object, tmp_path: Path):
    store = made(tmp_path / "s", rows=12, test=6)
    path = store.folder / "manifest.json"
    content = json.loads(path.read_bytes())
    content[key] = value
    path.write_text(json.dumps(content))
    with pytest.raises(InputError):
        _used(store.folder)


def _used(folder: Path) -> None:
    opened = Store.open(folder)
    StoredViews(opened).plain(torch.arange(12))
    opened.labeling()


def test_no_store_and_an_unfinished_one(tmp_path: Path):
    with pytest.raises(InputError, match="is not a store: make one with `protofission embed"):
        Store.open(tmp_path)
    store = made(tmp_path / "s")
    manifest = read_store_manifest(store.folder)
    assert manifest is not None
    (store.folder / "manifest.json").write_text(filling.manifest_text(manifest[0], None))
    (store.folder / "blocks.jsonl").unlink()
    with pytest.raises(InputError, match="unfinished store, with 0 of 2 blocks"):
        Store.open(store.folder)


def test_another_plan_and_other_files_are_refused(tmp_path: Path):
    made(tmp_path / "s")
    with pytest.raises(InputError, match="holds a store of other images or labels and another"):
        made(tmp_path / "s", rows=120)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").touch()
    with pytest.raises(InputError, match=r"holds other files, such as holiday\.jpg"):
        made(tmp_path / "photos")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file: name a folder"):
        made(tmp_path / "file")


@pytest.mark.parametrize(
    ("value", "words"),
    [(np.nan, "NaN"), (np.inf, "infinity"), (1e6, "65504"), (0, "only 0")],
)
def test_features_of_no_use_are_refused_by_image(value: float, words: str, tmp_path: Path):
    views, labels = features(240)
    views = {name: array.astype(np.float32) for name, array in views.items()}
    views["weak"][17, 2, :] = value
    with (
        np.errstate(over="ignore"),
        pytest.raises(
            InputError, match=f"1 image has.* train image 17 has .*{words}.* in its weak"
        ),
    ):
        store_features(tmp_path / "s", views, labels, ["a"] * CLASSES)
    assert not (tmp_path / "s").exists()


def test_all_features_of_no_use_are_named_at_once(tmp_path: Path):
    views, labels = features(2100)
    arrays = {"plain": views["plain"]}
    store = store_features(tmp_path / "sound", arrays, labels, ["a"] * CLASSES)
    plan = replace(store.plan, block=700)
    for row in (3, 4, 2000, *range(1100, 1110)):
        arrays["plain"][row] = np.nan
    with pytest.raises(InputError) as refused:
        store_features(tmp_path / "s", arrays, labels, ["a"] * CLASSES)
    assert str(refused.value).startswith("13 images have unusable features: train image 3 has NaN")
    assert str(refused.value).endswith("; and 3 more: leave them out, or choose another encoder.")

    def compute(blocks):
        for block in blocks:
            seen.append(block)
            yield block, {"plain": arrays["plain"][block.start : block.stop]}

    seen: list[Block] = []
    paths = {"train": [f"{row}.png" for row in range(2100)]}
    with pytest.raises(InputError, match=r"^13 images have .*image 4 \(4\.png\) has NaN"):
        filling.fill(tmp_path / "f", plan, {"train": labels}, compute, paths=paths)
    assert len(seen) == 3  # all were looked at
    arrays["plain"][:] = np.nan
    seen.clear()
    with pytest.raises(InputError, match=r"and \d+ more: leave them out, or choose another enc"):
        filling.fill(tmp_path / "g", plan, {"train": labels}, compute)
    assert len(seen) == 1  # an encoder that gives nothing else is not asked again


@pytest.mark.parametrize("name", ["manifest.json", "labels/train.npy", "blocks.jsonl"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path):
    store = made(tmp_path / "s")
    (store.folder / name).unlink()
    os.mkfifo(store.folder / name)
    if name != "blocks.jsonl":
        with pytest.raises(InputError, match=f"{name} (was edited or damaged|cannot be read)"):
            _used(store.folder)
    made(store.folder)
    _used(store.folder)


def test_a_file_is_no_store(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is not a store"):
        Store.open(tmp_path / "file")


@pytest.mark.parametrize(
    "change",
    [
        lambda views: views.pop("plain"),
        lambda views: views.update(weak=views["weak"][:5]),
        lambda views: views.update(weak=views["weak"][:, :, :3]),
        lambda views: views.update(plain=views["plain"][:, 0, 0]),
        lambda views: views.update(plain=views["weak"]),
        lambda views: views.update(weak=views["weak"][:, :0]),
        lambda views: views.update(weak=views["weak"].astype(int)),
        lambda views: views.update(weakly=views["weak"]),
    ],
)
def test_features_that_do_not_fit_each_other_are_refused(change, tmp_path: Path):
    views, labels = features(24)
    change(views)
    with pytest.raises(InputError, match=r"plain view|have the shape|wide, not 12|Unknown view"):
        store_features(tmp_path / "s", views, labels, ["a"] * CLASSES)


@pytest.mark.parametrize(
    "labels",
    [np.full(24, 6), np.full(24, -2), np.zeros(24), np.zeros((24, 1), int), np.zeros(0, int), "x"],
)
def test_labels_that_are_none_are_refused_before_anything_is_written(labels, tmp_path: Path):
    views, _ = features(24)
    with pytest.raises(InputError, match="Labels"):
        store_features(tmp_path / "s", views, labels, ["a"] * CLASSES)
    assert not (tmp_path / "s").exists()


def test_lists_tensors_and_small_integers_are_understood(tmp_path: Path):
    views, labels = features(24)
    one = store_features(tmp_path / "a", views, labels, ["a"] * CLASSES)
    tensors = {name: torch.from_numpy(array) for name, array in views.items()}
    two = store_features(str(tmp_path / "b"), tensors, labels.tolist(), ["a"] * CLASSES)
    three = store_features(tmp_path / "c", views, labels.astype(np.int8), ["a"] * CLASSES)
    assert one.digests == two.digests == three.digests


@pytest.mark.parametrize("file", ["train-plain.npy", "labels/train.npy"])
def test_any_byte_of_a_header_that_changes_is_one_sentence(file: str, tmp_path: Path):
    store = made(tmp_path / "s", rows=12, test=6)
    path = store.folder / file
    content = path.read_bytes()
    for place in range(0, 128, 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 9]) + content[place + 1 :])
        with pytest.raises(InputError, match="edited or damaged"):
            _used(store.folder)


def test_a_byte_that_is_lost_costs_its_block_alone(tmp_path: Path):
    plan, computed = plan_of(10, 3), []
    labels = {"train": np.zeros(10, np.int64)}

    def compute(blocks):
        for block in blocks:
            computed.append(block)
            yield block, {"plain": np.ones((block.stop - block.start, 1, 2), np.float16)}

    fill(tmp_path / "s", plan, labels, compute)
    path = tmp_path / "s" / "train-plain.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    del computed[:]
    fill(tmp_path / "s", plan, labels, compute)
    assert computed == [Block("train", 9, 10)]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", ["edited", "gone"])
def test_a_lost_manifest_costs_no_block_and_is_made_anew(damage: str, tmp_path: Path):
    plan, computed = plan_of(10, 3), []
    labels = {"train": np.zeros(10, np.int64)}

    def compute(blocks):
        for block in blocks:
            computed.append(block)
            yield block, {"plain": np.ones((block.stop - block.start, 1, 2), np.float16)}

    store = fill(tmp_path / "s", plan, labels, compute).folder
    whole = {p.name: p.read_bytes() for p in store.iterdir() if p.is_file()}
    manifest = store / "manifest.json"
    manifest.write_bytes(whole["manifest.json"][:-9])
    if damage == "gone":
        manifest.unlink()
    with pytest.raises(InputError, match=r"give the command that made the store|is not a store"):
        Store.open(store)
    with pytest.raises(InputError, match="has lost its manifest, and holds a store of other"):
        fill(store, plan_of(10, 4), labels, compute)
    del computed[:]
    (store / "labels" / ".train.npy.0123456789abcdef").touch()  # a kill left it
    fill(store, plan, labels, compute)
    assert not computed
    assert {p.name: p.read_bytes() for p in store.iterdir() if p.is_file()} == whole
    assert [p.name for p in (store / "labels").iterdir()] == ["train.npy"]
    manifest.write_text("{}")
    (store / "blocks.jsonl").write_text("")
    with pytest.raises(InputError, match=r"blocks\.jsonl tells nothing of the blocks: delete"):
        fill(store, plan, labels, compute)


def test_a_store_of_another_version_is_told_from_a_damaged_one(tmp_path: Path):
    store = made(tmp_path / "s").folder
    content = json.loads((store / "manifest.json").read_bytes())
    content["version"] = 7
    (store / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="was edited or damaged"):
        Store.open(store)
    del content["seal"]
    content["seal"] = fingerprint(content)
    (store / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="The store is of version 7, and this protofission reads"):
        Store.open(store)


def test_other_names_of_classes_are_another_store(tmp_path: Path):
    views, labels = features(24)
    store_features(tmp_path / "s", views, labels, [f"class {c}" for c in range(CLASSES)])
    with pytest.raises(InputError, match="holds a store of other images or labels"):
        store_features(tmp_path / "s", views, labels, [f"animal {c}" for c in range(CLASSES)])


@pytest.mark.parametrize(
    "plain",
    [torch.zeros(24, 3, dtype=torch.bfloat16), torch.ones(24, 3).requires_grad_(), [[1.0], []]],
)
def test_what_numpy_cannot_take_is_refused(plain, tmp_path: Path):
    with pytest.raises(InputError, match="The plain features of train are no array"):
        store_features(tmp_path / "s", {"plain": plain}, np.zeros(24, int), ["a"])


def test_a_method_that_wants_more_versions_than_there_are_is_refused(tmp_path: Path):
    views, labels = features(240)
    one = {"plain": views["plain"], "weak": views["weak"][:, :1]}
    store = store_features(tmp_path / "s", one, labels, ["a"] * CLASSES)
    store.check(Views(("weak",), ("weak",)))
    with pytest.raises(InputError, match="has 1 weak views of an image, and the method wants 2"):
        store.check(METHODS["orca"].traits.views)
    with pytest.raises(InputError, match="has 0 strong views"):
        store.check(METHODS["fixmatch"].traits.views)
    with pytest.raises(InputError) as refused:
        store.check(Views(("weak", "weak"), ("strong", "simclr", "simclr")))
    told = "1 weak views of an image, 0 strong views of an image, 0 simclr views of an image"
    assert f"has {told}, and the method wants 2 weak, 1 strong, 2 simclr" in str(refused.value)
    assert "make a store with --weak 2 --strong 1 --simclr 2." in str(refused.value)


# --- blocks ------------------------------------------------------------------------------------


def plan_of(rows: int, block: int) -> StorePlan:
    known = {"name": "x", "shape": [2], "fingerprint": "f"}
    return StorePlan(known, known, known, (2,), {"train": Part(rows, {"plain": 1})}, block, ("a",))


@given(st.integers(1, 50), st.integers(1, 60))
def test_blocks_cover_every_image_once(rows: int, block: int):
    found = [row for b in plan_of(rows, block).blocks() for row in range(b.start, b.stop)]
    assert found == list(range(rows))


@pytest.mark.parametrize("order", [1, -1])
def test_only_missing_blocks_are_computed(order: int, tmp_path: Path):
    plan, computed = plan_of(10, 3), []
    labels = {"train": np.zeros(10, np.int64)}

    def compute(blocks, stop: int = 99):
        for block in list(blocks)[::order][:stop]:
            computed.append(block)
            rows = np.arange(block.start, block.stop, dtype=np.float16)[:, None, None]
            yield block, {"plain": np.concatenate([rows, rows + 1], 2)}
        if stop < 99:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "s", plan, labels, lambda blocks: compute(blocks, 2))
    first = list(computed)
    assert len(first) == 2
    fill(tmp_path / "s", plan, labels, compute)
    assert sorted(computed) == list(plan.blocks())
    fill(tmp_path / "s", plan, labels, compute)  # nothing is left to do
    assert len(computed) == 4
    found = Store.open(tmp_path / "s").map_verified_view("train", "plain")
    assert found[:, 0, 0].tolist() == list(range(10))
    journal = (tmp_path / "s" / "blocks.jsonl").read_text().splitlines()
    assert [json.loads(line)["start"] for line in journal] == [0, 3, 6, 9]  # whatever the order


def test_a_torn_line_of_the_journal_costs_its_block_alone(tmp_path: Path):
    plan, computed = plan_of(9, 3), []
    labels = {"train": np.zeros(9, np.int64)}

    def compute(blocks):
        for block in blocks:
            computed.append(block)
            yield block, {"plain": np.ones((3, 1, 2), np.float16)}
            if len(computed) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "s", plan, labels, compute)
    journal = tmp_path / "s" / "blocks.jsonl"
    content = journal.read_bytes()
    first = content.index(b"\n") + 1
    for torn in (content[: first + 20], content[:first] + b"\xff{}\n[]\n" + content[first:-4]):
        journal.write_bytes(torn)
        with pytest.raises(InputError, match="with 1 of 3 blocks"):
            Store.open(tmp_path / "s")
    fill(tmp_path / "s", plan, labels, compute)
    assert computed == [
        Block("train", 0, 3),
        Block("train", 3, 6),
        Block("train", 3, 6),
        Block("train", 6, 9),
    ]


def test_counts_of_the_fixture_are_those_of_the_store(store: Store):
    assert store.plan.parts["train"].views == COUNTS
    assert store.plan.parts["test"].views == {"plain": 1}
