"""The material that a fit keeps, and a workbench on a model on the disk."""

import hashlib
import json
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest

from protofission.core.errors import InputError
from protofission.triage.bundle import load
from protofission.triage.calibrated_model import ACCEPT
from protofission.triage.fit_options import FitOptions
from protofission.triage.label_verdicts import LabelVerdicts
from protofission.triage.workbench.actions import (
    UNLABELED,
    AddClass,
    JunkClusters,
    KeepRefit,
    Label,
    MergeClasses,
    PromoteClusters,
    PromoteSubclass,
    SplitCluster,
)
from protofission.triage.workbench.log import ActionLog
from protofission.triage.workbench.material import Material
from protofission.triage.workbench.workbench import Workbench
from small_workbenches import NAMES, small_features, small_model


@pytest.fixture
def model(tmp_path):
    return small_model(tmp_path)


def contents(folder):
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_material_has_all_that_the_fit_had(model, tmp_path):
    material = Material.open(model)
    features, kinds = small_features(20, 80)
    assert (material.num_labeled, material.num_images, material.class_names) == (60, 140, NAMES)
    assert material.labels.tolist() == kinds[:60].tolist()
    rows = np.array([139, 0, 61])
    found = material.features.rows(rows)
    assert found.dtype == np.float32
    assert np.array_equal(found, features.astype(np.float16).astype(np.float32)[rows])
    assert (len(material.features), material.features.width) == (140, 12)
    assert material.options == FitOptions(steps=5, folds=2, prototypes=3)
    assert material.unreadable == {"cut.png": "it is cut short"}
    assert isinstance(material.label_verdicts, LabelVerdicts)
    assert material.file(0) == tmp_path / "labeled" / "ash" / "0.png"
    assert material.file(139) == tmp_path / "pool" / f"139-{kinds[139]}.png"
    assert material.read_file(139) == material.file(139).read_bytes()
    assert material.missing_folders() == []


def test_verdicts_are_those_of_the_bundle_on_all_rows(model, monkeypatch):
    monkeypatch.setattr("protofission.triage.workbench.material.JUDGED_AT_ONCE", 50)
    material = Material.open(model)
    wanted = load(model).predict_features(material.features.rows(np.arange(140)))
    for found, own in zip(material.verdicts, wanted, strict=True):
        assert found.shape == own.shape
        assert np.allclose(found, own, atol=1e-5)
    rows = material.model_rows
    assert rows.accepted.tolist() == (wanted.decisions.numpy() == ACCEPT).tolist()
    assert rows.classes.tolist() == wanted.classes.tolist()
    assert rows.clusters.tolist() == wanted.clusters.tolist()


def test_a_moved_model_opens_and_moved_folders_are_given(model, tmp_path):
    with Workbench.open(model) as bench:
        bench.do(Label((70,), 1, "grid"))
    moved = tmp_path / "elsewhere" / "model"
    moved.parent.mkdir()
    model.rename(moved)
    with Workbench.open(moved) as bench:
        assert bench.state.label_of[70] == 1
        assert bench.material.read_file(0)
    for name in ("labeled", "pool"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    material = Material.open(moved)
    assert len(material.missing_folders()) == 2
    with pytest.raises(InputError, match=r"0.png is gone: put it back, .*\(--labeled DIR\)"):
        material.read_file(0)
    with pytest.raises(InputError, match=r"is gone: put it back, .*\(POOL\)"):
        material.read_file(100)
    places = [tmp_path / "elsewhere" / name for name in ("labeled", "pool")]
    material = Material.open(moved, *places)
    assert material.read_file(0)
    assert material.read_file(100)
    assert material.missing_folders() == []
    with pytest.raises(InputError, match="is not there: name the folder of the images"):
        Material.open(moved, tmp_path / "nowhere")


def test_a_deleted_image_is_a_sentence_and_the_others_stay(model):
    material = Material.open(model)
    material.file(70).unlink()
    with pytest.raises(InputError, match="is gone: put it back"):
        material.read_file(70)
    assert material.read_file(71)
    for row in (-1, 140):
        with pytest.raises(InputError, match=f"There is no image {row}"):
            material.file(row)


def test_an_old_model_is_one_sentence(model):
    shutil.rmtree(model / "features")
    for _ in range(2):
        with pytest.raises(InputError, match=r"does not keep its features.* or fit it again"):
            Workbench.open(model)
        (model / "images.json").unlink(missing_ok=True)
    assert not (model / "workbench").exists()


def damage_json(model, **changes):
    path = model / "images.json"
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 2}, "format = 2 is not known"),
        ({"labels": ...}, "labels is missing"),
        ({"more": 1}, "more is not known"),
        ({"labels": [3] * 60}, "labels has 3, which is none of 0 to 2"),
        ({"folder_of": [2] * 140}, "folder_of has 2"),
        ({"folder_of": [0] * 139}, "folder_of has another length"),
        ({"folds": [0]}, "folds has another length"),
        ({"repeated": [3]}, "repeated has 3, which is none of 60 to 139"),
        ({"duplicates": [[1, 140]]}, "duplicates has 140"),
        ({"doubtful": [60]}, "doubtful has 60"),
        ({"class_names": ["a", "a", "b"]}, "class_names are not one of each"),
        ({"paths": "x"}, "paths must be a list"),
        ({"options": {}}, "options.keep is missing"),
    ],
)
def test_a_changed_list_of_images_is_one_sentence(model, changes, reason):
    damage_json(model, **changes)
    with pytest.raises(InputError, match=reason) as caught:
        Material.open(model)
    assert str(caught.value).startswith(f"{model / 'images.json'} was edited or is damaged (")
    assert "\n" not in str(caught.value)


def test_features_of_another_model_and_damaged_ones_are_one_sentence(model, tmp_path):
    damage_json(model, class_names=["x", "y", "z"])
    with pytest.raises(InputError, match="keeps images and features of another model"):
        Material.open(model)
    damage_json(model, class_names=list(NAMES))
    bundle = load(model)
    facts = {**bundle.encoder_facts, "fingerprint": "another"}
    replace(bundle, encoder_facts=facts).save(model)
    with pytest.raises(InputError, match="keeps images and features of another model"):
        Material.open(model)
    bundle.save(model)
    file = model / "features" / "train-plain.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 255
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be used .*: fit the model again, or take"):
        Material.open(model).features.rows(np.arange(1))
    file.write_bytes(content[:-5])
    with pytest.raises(InputError, match="cut short"):
        Material.open(model)


def test_groups_are_acted_on_with_the_images_that_are_in_them(model):
    with Workbench.open(model) as bench:
        cluster, other = bench.clusters()[:2]
        bench.do(Label((int(cluster.rows[0]),), 0, "grid"))
        bench.do(
            PromoteClusters((cluster.number,), "fir", images=(0,))
        )  # what a page says is not read
        fir = bench.state.class_named("fir").id
        assert np.flatnonzero(bench.state.label_of == fir).tolist() == cluster.rows[1:].tolist()
        with pytest.raises(InputError, match="has no images any more"):
            bench.do(PromoteClusters((cluster.number,), "oak"))
        rows = tuple(other.rows.tolist())
        with pytest.raises(InputError, match=r"The parts are not the \d+ images of cluster"):
            bench.do(SplitCluster(other.number, (rows[:2], rows[2:-1])))
        bench.do(SplitCluster(other.number, (rows[:2], rows[2:])))
        assert bench.clusters()[-1].rows.tolist() == list(rows[2:])
        bench.do(JunkClusters((bench.clusters()[-1].number,)))
        assert (bench.state.label_of == -1).sum() == len(rows) - 2
        part = max(bench.subclasses(1), key=lambda own: len(own.rows))
        bench.do(PromoteSubclass(1, part.number, "young birch"))
        young = bench.state.class_named("young birch").id
        assert np.flatnonzero(bench.state.label_of == young).tolist() == part.rows.tolist()
        assert (part.rows < 60).any()
        assert (part.rows >= 60).any()
        bench.do(MergeClasses((0,), 2))
        assert {own.class_id for own in bench.subclasses(2)} == {0, 2}
        assert (bench.subclass_of() >= 0).sum() > 0
        states = [bench.state.content()]
        for _ in range(3):
            bench.undo()
            states.append(bench.state.content())
    with Workbench.open(model) as bench:  # also after a restart
        for wanted in states[2::-1]:
            bench.redo()
            assert bench.state.content() == {**wanted, "done": bench.state.undo_stack}
        last = bench.state.next_undo[0]
        with pytest.raises(InputError, match="is not the last one any more"):
            bench.undo(expected=last - 1)
        assert bench.undo(expected=last)


def test_random_images_are_drawn_evenly_from_the_pool_whether_labeled_or_not(model):
    with Workbench.open(model) as bench:
        bench.do(Label(tuple(range(60, 100)), 0, "grid"))
        drawn = bench.draw_random(65)
        assert len(set(drawn)) == 65
        assert min(drawn) >= 60
        assert set(drawn) & set(range(60, 100)), "of 80, 65 are drawn: some have a label"
        assert bench.state.random_queue.tolist() == list(drawn)
        more = bench.draw_random(500)
        assert sorted([*drawn, *more]) == list(range(60, 140))
        with pytest.raises(InputError, match="Every image of the pool was drawn already"):
            bench.draw_random(1)
        with pytest.raises(InputError, match="give a number from 1"):
            bench.draw_random(0)
        bench.undo()
        again = bench.draw_random(15)
        assert set(again) == set(more)
        assert again != more  # 15! orders


def test_a_second_server_gets_a_sentence_and_a_reader_looks(model):
    with Workbench.open(model) as bench:
        bench.do(AddClass("fir"))
        with pytest.raises(InputError, match="is open in another workbench"):
            Workbench.open(model)
        with Workbench.open(model, read_only=True) as reader:
            assert reader.state.class_named("fir")
            with pytest.raises(InputError, match="read only"):
                reader.do(AddClass("oak"))
            assert len(reader.state.classes) == 4
        bench.do(AddClass("oak"))
    Workbench.open(model).close()


def test_threads_take_turns_and_states_that_were_read_stay(model):
    with Workbench.open(model) as bench:
        first, before = bench.state, bench.state.content()
        failed = []

        def work(place):
            try:
                for number in range(20):
                    bench.do(Label((60 + place,), number % 3, "grid"))
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert bench.state.last_id == 80
        assert first.content() == before
        now = bench.state.content()
    with Workbench.open(model) as bench:
        assert bench.state.content() == now


def test_a_kept_version_is_used_from_then_on_and_the_old_one_comes_back(model):
    with Workbench.open(model) as bench:
        material = bench.material
        names = material.kept.subclass_names, material.kept.cluster_names
        keep = KeepRefit(1, (0, 1, 2), *names)
        with pytest.raises(InputError, match="does not exist"):
            bench.do(keep)
        assert bench.state.last_id == 0
        bundle = load(model)
        bundle.calibrated_model.threshold.fill_(2.0)  # nothing is accepted
        bundle.save(material.version_folder(1))
        with pytest.raises(InputError, match="is not the one that was kept"):
            bench.do(KeepRefit(1, (0, 1), names[0][:2], names[1]))
        bench.do(keep)
        assert (bench.material.version, material.version) == (1, 0)
        assert not bench.material.model_rows.accepted.any()
    with Workbench.open(model) as bench:
        assert bench.material.version == 1
        bench.undo()
        assert bench.material.version == 0
        assert bench.material.model_rows.accepted.any()
        bench.redo()
    shutil.rmtree(model / "workbench" / "versions")
    with pytest.raises(InputError, match="does not exist"):
        Workbench.open(model)
    ActionLog(model).close()  # nothing holds the lock


def test_images_and_model_are_never_touched(model, tmp_path):
    before = contents(tmp_path)
    with Workbench.open(model) as bench:
        bench.do(PromoteClusters((0,), "fir"))
        bench.do(Label((0, 60), None, "grid"))
        bench.undo()
        assert (bench.state.label_of[60:] == UNLABELED).any()
        bench.material.read_file(3)
    after = contents(tmp_path)
    ours = (model / "workbench").relative_to(tmp_path)
    assert {path: own for path, own in after.items() if ours not in path.parents} == before


def test_a_bundle_is_saved_over_a_model_and_the_rest_stays(model):
    with Workbench.open(model) as bench:
        bench.do(AddClass("fir"))
    load(model).save(model)
    with Workbench.open(model) as bench:
        assert bench.state.class_named("fir")
