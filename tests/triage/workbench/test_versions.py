"""Versions of a model: whichever write a process is killed at, the model opens, old or new."""

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from protofission.core.errors import InputError
from protofission.system import whole_files
from protofission.triage.bundle import Bundle
from protofission.triage.bundle_files import MANIFEST
from protofission.triage.bundle_manifest import BUNDLE_PARTS
from protofission.triage.fit_files import LABEL_TABLE, PAGE
from protofission.triage.workbench.versions import (
    VERSION_FILES,
    RefitRecord,
    bundle_folder,
    candidate_folder,
    current_version,
    drop_candidate,
    read_record,
    settle,
    store_candidate,
    switch,
    version_folder,
    write_candidate,
    write_record,
)
from small_bundles import bundle_of, features

OLD = [name for name in VERSION_FILES if name != "refit.json"]
NEW = [name for name in VERSION_FILES if name != "triage.parquet"]
RECORD = RefitRecord(
    classes=(0, 3),
    subclass_names=(("a / 1",), ("b / 1", "x")),
    cluster_names=("novel 1",),
    rows=(1, 2),
    labels=(0, 1),
    folds=(-1, 0),
    parts={"3": 1},
    report={"a": [1]},
)


def write_files(folder: Path, names: list[str], tag: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(f"{tag} {name}")


def model_at(folder: Path, *, candidate: bool = True) -> Path:
    """A model with files of an old version, and a refit that waits; other files are its own."""
    model = folder / "model"
    write_files(model, OLD, "old")
    (model / "images.json").write_text("mine")
    if candidate:
        write_candidate(model, lambda place: write_files(place, NEW, "new"))
    return model


def content(folder: Path) -> dict[str, str]:
    return {n: (folder / n).read_text() for n in VERSION_FILES if (folder / n).exists()}


def whole(names: list[str], tag: str) -> dict[str, str]:
    return {name: f"{tag} {name}" for name in names}


def keep(model: Path) -> None:
    switch(model, store_candidate(model))


def kill_at(operation: int, act) -> bool:
    """Run in a fork that is killed by SIGKILL at its n-th change of a file; whether it was."""
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, -signal.SIGKILL), status
        return status != 0
    left = [operation]

    def counted(change):
        def run(*arguments, **options):
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return change(*arguments, **options)

        return run

    try:
        for name in ("replace", "unlink", "write_bytes", "mkdir"):
            setattr(Path, name, counted(getattr(Path, name)))
        whole_files.os.fsync = counted(os.fsync)
        act()
    except BaseException:
        os._exit(9)
    os._exit(0)


def test_the_files_are_those_of_bundles_tables_and_page():
    assert set(VERSION_FILES) >= {MANIFEST, *BUNDLE_PARTS, LABEL_TABLE, PAGE}


def test_keep_then_go_back_then_forward_byte_for_byte(tmp_path):
    model = model_at(tmp_path)
    assert current_version(model) == 0
    keep(model)
    assert current_version(model) == 1
    assert content(model) == whole(NEW, "new"), "a file that the new version lacks is gone"
    assert not candidate_folder(model).exists()
    switch(model, 0)
    assert (current_version(model), content(model)) == (0, whole(OLD, "old"))
    switch(model, 1)
    assert (current_version(model), content(model)) == (1, whole(NEW, "new"))
    assert (model / "images.json").read_text() == "mine"
    with pytest.raises(InputError, match="has no version 7"):
        switch(model, 7)


def test_killed_at_every_write_it_is_the_old_model_or_the_new(tmp_path):
    """Bundle files are those of one version at any time; after settling, all files are."""
    states, operation = [], 0
    while True:
        model = model_at(tmp_path / str(operation))
        killed = kill_at(operation, lambda model=model: keep(model))
        place = bundle_folder(model)
        found = {name: (place / name).read_text().split()[0] for name in OLD[:3]}
        assert len(set(found.values())) == 1, f"{operation}: {found}"
        version = current_version(model)
        assert set(found.values()) == {"old" if version == 0 else "new"}
        settle(model)
        assert content(model) == (whole(OLD, "old") if version == 0 else whole(NEW, "new"))
        assert bundle_folder(model) == model
        states.append((version, place == model))
        switch(model, 0)
        assert content(model) == whole(OLD, "old")
        shutil.rmtree(tmp_path / str(operation))
        operation += 1
        if not killed:
            break
    assert operation > 40
    assert {(0, True), (1, False), (1, True)} <= set(states), "kills met every phase"
    assert states == sorted(states, key=lambda state: state[0]), "once new, always new"


@pytest.mark.slow
def test_killed_while_going_back(tmp_path):
    operation = 0
    model = model_at(tmp_path)
    keep(model)
    while kill_at(operation, lambda: switch(model, 0)):
        place = bundle_folder(model)
        tags = {(place / name).read_text().split()[0] for name in OLD[:3]}
        assert tags == {"old" if current_version(model) == 0 else "new"}
        settle(model)
        assert content(model) in (whole(OLD, "old"), whole(NEW, "new"))
        switch(model, 1)
        operation += 1
    assert operation > 20
    assert content(model) == whole(OLD, "old")


def test_a_candidate_is_there_whole_or_not_at_all(tmp_path):
    operation = 0
    while True:
        model = model_at(tmp_path / str(operation), candidate=False)

        def write(model=model):
            write_candidate(model, lambda place: write_files(place, NEW, "new"))

        killed = kill_at(operation, write)
        if candidate_folder(model).exists():
            assert content(candidate_folder(model)) == whole(NEW, "new")
        assert content(model) == whole(OLD, "old")
        write()
        assert content(candidate_folder(model)) == whole(NEW, "new")
        drop_candidate(model)
        assert not candidate_folder(model).exists()
        operation += 1
        if not killed:
            break
    with pytest.raises(InputError, match="no refit that waits"):
        store_candidate(model)


def test_a_full_disk_is_a_sentence_and_the_model_stays(tmp_path, monkeypatch):
    model = model_at(tmp_path)

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="No space left"):
        keep(model)
    monkeypatch.undo()
    assert content(bundle_folder(model)) == whole(OLD, "old")
    keep(model)
    assert content(model) == whole(NEW, "new")


def test_numbers_are_not_used_again(tmp_path):
    model = model_at(tmp_path)
    assert store_candidate(model, above=4) == 5
    write_candidate(model, lambda place: write_files(place, NEW, "newer"))
    assert store_candidate(model) == 6


def test_a_note_that_was_edited_is_a_sentence(tmp_path):
    model = model_at(tmp_path)
    keep(model)
    note = model / "workbench" / "versions" / "current.json"
    for text in ("{", "[]", '{"version": -1}', '{"version": "1"}', '{"version": true}'):
        note.write_text(text)
        with pytest.raises(InputError):
            current_version(model)


def test_records_come_back_and_damaged_ones_are_refused(tmp_path):
    write_record(tmp_path, RECORD)
    assert read_record(tmp_path) == RECORD
    text = (tmp_path / "refit.json").read_text()
    (tmp_path / "refit.json").write_text(text.replace('"rows"', '"lines"'))
    with pytest.raises(InputError, match="cannot be read"):
        read_record(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_record(tmp_path / "nowhere")


def test_a_bundle_opens_while_its_versions_change(tmp_path):
    """A reader meets either bundle, never a mixture, however often it looks."""
    model, rows = tmp_path / "model", features(5)
    bundles = [bundle_of(seed=seed) for seed in range(2)]
    wanted = [bundle.predict_features(rows).id_scores.tolist() for bundle in bundles]
    bundles[0].save(model)
    write_candidate(model, lambda place: bundles[1].save(place))
    assert store_candidate(model) == 1
    done = threading.Event()

    def change():
        for number in range(12):
            switch(model, (number + 1) % 2)
        done.set()

    changing = threading.Thread(target=change)
    changing.start()
    met = []
    while not done.is_set() or len(met) < 2:
        met.append(wanted.index(Bundle.load(model).predict_features(rows).id_scores.tolist()))
    changing.join()
    assert Bundle.load(model).fingerprint == bundles[0].fingerprint
    assert version_folder(model, 1).is_dir()


def test_a_full_disk_leaves_nothing_of_a_refit(tmp_path: Path) -> None:
    def fill(place: Path) -> None:
        (place / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        write_candidate(tmp_path, fill)
    assert list(candidate_folder(tmp_path).parent.iterdir()) == []
