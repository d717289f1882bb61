"""A refit: the fit again if nothing changed, and otherwise only what the labels say."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import protofission
from protofission.core.errors import InputError
from protofission.triage.bundle import Bundle
from protofission.triage.fit_options import FitOptions
from protofission.triage.folds import NO_FOLD
from protofission.triage.prediction_table import read_rows
from protofission.triage.workbench.actions import (
    NONE,
    AddClass,
    DissolveSubclasses,
    Label,
    MergeClasses,
    MergeSubclasses,
    NameCluster,
    NameSubclass,
    RenameClass,
)
from protofission.triage.workbench.background_refit import BackgroundRefit
from protofission.triage.workbench.keeping import follow_version, go_back, keep_refit
from protofission.triage.workbench.refit import refit
from protofission.triage.workbench.refit_process import run_refit
from protofission.triage.workbench.versions import (
    VERSION_FILES,
    candidate_folder,
    current_version,
    write_candidate,
)
from protofission.triage.workbench.workbench import Workbench
from small_workbenches import small_features, small_model
from triage.test_fit import digit_folders

LABELS, POOL = 8, 40
KINDS = small_features(LABELS, POOL)[1]
FIRST = 3 * LABELS
"""The first row of the pool."""


@pytest.fixture
def bench(tmp_path):
    with Workbench.open(small_model(tmp_path, LABELS, POOL, steps=2)) as found:
        yield found


def refitted(bench):
    state, material = bench.now
    return refit(material, state)


def pool_rows(kind, count):
    return [int(row) for row in np.flatnonzero(kind == KINDS) if row >= FIRST][:count]


def give(bench, rows, class_id, source="grid"):
    bench.do(Label(tuple(rows), class_id, source))


def bits(bundle):
    return {
        name: value.numpy().tobytes()
        for name, value in bundle.calibrated_model.state_dict().items()
    }


def test_without_new_labels_a_refit_of_a_real_fit_is_the_same_files(tmp_path, monkeypatch):
    """Every file of the model is equal, byte for byte: model, card, tables and page."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    labeled, pool = digit_folders(tmp_path, labels=6, pool=30)
    (pool / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    shutil.copy(next(labeled.glob("*/*.png")), pool / "copy.png")
    options = FitOptions(steps=2, width=8, folds=3, prototypes=2)
    model = tmp_path / "model"
    protofission.fit(labeled, pool, model, options, encoder="simclr-cifar10", processes=1)
    with Workbench.open(model) as bench:
        found = refitted(bench)
        found.write(tmp_path / "again", model, "protofission.fit")
        for name in VERSION_FILES[:-1]:
            assert (tmp_path / "again" / name).read_bytes() == (model / name).read_bytes(), name
        moved = next(path for path in pool.iterdir() if path.name.endswith("-3.png"))
        moved.unlink()  # the page of a refit has a placeholder for it
        found.write(tmp_path / "gone", model, "protofission.fit")
        assert (tmp_path / "gone" / "triage.csv").read_bytes() == (
            model / "triage.csv"
        ).read_bytes()
        give(bench, [20, 25], 1)
        labeled_too = refitted(bench)
    labeled_too.write(tmp_path / "more", model, "protofission.fit")
    rows = list(read_rows(tmp_path / "more" / "triage.csv"))
    assert len(rows) == len(list(read_rows(model / "triage.csv"))) - 2
    assert (tmp_path / "more" / "labels.csv").read_text().count("\n") == 1 + 18 + 2


def test_chosen_labels_train_and_the_same_rows_calibrate(bench):
    before = refitted(bench)
    assert bits(before.bundle) == bits(bench.material.bundle)
    chosen = [(row, kind) for kind in range(3) for row in pool_rows(kind, 4)]
    random.Random(0).shuffle(chosen)
    for row, kind in chosen:
        give(bench, [row], kind, "next")
    found = refitted(bench)
    assert len(found.labels.rows) == FIRST + 12
    judged = found.fitted.folds != NO_FOLD
    assert found.labels.rows[judged].tolist() == list(range(FIRST))
    assert found.fitted.folds[judged].tolist() == before.fitted.folds.tolist(), "the same folds"
    assert found.fitted.guarantee == before.fitted.guarantee
    assert len(found.bundle.calibration) == FIRST
    assert bits(found.bundle) != bits(before.bundle), "but they train"
    assert "12 labels were chosen, train and set neither." in found.fitted.promise()
    assert "12 labels were chosen" in found.bundle.card["calibration"]["guarantee"]
    for row, kind in sorted(chosen):  # in another order, by other screens: the same model
        give(bench, [row], None)
        give(bench, [row], kind, "map")
    assert bits(refitted(bench).bundle) == bits(found.bundle)


def test_an_answered_random_queue_calibrates_and_its_strangers_do_not(bench):
    rows = bench.draw_random(10)
    for row in rows[:-1]:
        give(bench, [row], int(KINDS[row]) if KINDS[row] < 3 else NONE, "random")
    half = refitted(bench)
    assert half.fitted.guarantee.images == FIRST
    assert any(
        "1 of 10 images drawn at random has no answer yet" in s for s in half.report()["sentences"]
    )
    give(bench, rows[-1:], int(KINDS[rows[-1]]) if KINDS[rows[-1]] < 3 else NONE, "random")
    found = refitted(bench)
    known = sorted(row for row in rows if KINDS[row] < 3)
    judged = found.labels.rows[found.fitted.folds != NO_FOLD]
    assert judged.tolist() == [*range(FIRST), *known]
    assert found.fitted.guarantee.images == FIRST + len(known)
    assert found.comparison.random[0].total == len(known)
    strangers = found.labels.pool[found.labels.strangers].tolist()
    assert strangers == sorted(set(rows) - set(known))
    assert f"the {FIRST + len(known)} labels" in found.fitted.promise()
    assert f"{len(known)} of images drawn at random alone" in found.fitted.promise()


def test_a_queue_is_drawn_from_all_of_the_pool_labeled_ones_included(bench):
    give(bench, range(FIRST, FIRST + POOL - 1), NONE)
    rows = bench.draw_random(POOL)
    assert sorted(rows) == list(range(FIRST, FIRST + POOL))
    assert bench.state.random_open.tolist() == [FIRST + POOL - 1]
    with pytest.raises(InputError, match="was drawn already"):
        bench.draw_random(1)


def test_new_merged_renamed_and_empty_classes(bench):
    bench.do(AddClass("oak"))
    bench.do(AddClass("nothing"))
    give(bench, pool_rows(3, 5), 3)
    bench.do(MergeClasses((1,), 0))
    bench.do(RenameClass(0, "broad"))
    found = refitted(bench)
    assert found.bundle.class_names == ("broad", "cedar", "oak")
    assert found.record().classes == (0, 2, 3)
    sentences = found.report()["sentences"]
    assert "'nothing' has no labels: left out." in sentences
    assert "Nothing is promised for 'oak': no label of it was drawn at random." in sentences
    assert found.comparison.right[0].total == FIRST, "a merged class was right before as its part"
    assert found.comparison.right[0].count > FIRST / 2
    decided = found.fitted.pool.classes.numpy()[np.isin(found.labels.pool, pool_rows(3, 8))]
    assert (decided == 2).mean() > 0.5, "what was left of the new class is found"
    give(bench, range(FIRST), 0)
    give(bench, pool_rows(3, 5), 0)
    with pytest.raises(InputError, match="1 class with labels"):
        refitted(bench)


def test_names_and_divisions_outlive_two_refits(bench):
    bench.do(NameSubclass(0, 1, "striped"))
    bench.do(DissolveSubclasses(1))
    counts = bench.material.bundle.calibrated_model.subclass_counts
    bench.do(MergeSubclasses(2, (counts[2] - 1,), 0))
    if bench.clusters():
        bench.do(NameCluster(0, "blurry"))
    found = refitted(bench)
    assert found.bundle.calibrated_model.subclass_counts == (counts[0], 1, counts[2] - 1)
    assert "striped" in found.bundle.subclass_names[0]
    told = " ".join(found.report()["moved"])
    assert "'striped' keeps " in told
    assert bench.clusters() == [] or "'blurry' " in told
    write_candidate(bench.material.model, lambda f: found.write(f, bench.material.model, "x"))
    keep_refit(bench)
    assert bench.state.version == 1
    again = refitted(bench)
    assert again.bundle.calibrated_model.subclass_counts[1:] == (1, counts[2] - 1)
    assert again.bundle.subclass_names == found.bundle.subclass_names, "the same model, same names"
    assert bits(again.bundle) == bits(found.bundle)
    assert again.comparison.gained == again.comparison.lost == 0


def model_files(model):
    return {n: (model / n).read_bytes() for n in VERSION_FILES if (model / n).exists()}


def test_keep_and_go_back_with_a_kill_between_any_two_steps(bench, tmp_path, monkeypatch):
    """Killed anywhere, the model opens; opened again, its files and its log agree."""
    model = bench.material.model
    give(bench, pool_rows(0, 3), 0)
    run_refit(model)
    old, new = model_files(model), model_files(candidate_folder(model))
    assert old["model.safetensors"] != new["model.safetensors"]
    bench.close()

    class Killed(BaseException):
        pass

    met = set()
    for step in range(0, 400, 17):
        place = tmp_path / f"step{step}"
        shutil.copytree(model, place)
        left = [step]

        def counted(change, left=left):
            def run(*arguments, **options):
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
                return change(*arguments, **options)

            return run

        with Workbench.open(place) as own, monkeypatch.context() as patched:
            for name in ("replace", "write_bytes", "mkdir"):
                patched.setattr(Path, name, counted(getattr(Path, name)))
            try:
                keep_refit(own)
                killed = False
            except Killed:
                killed = True
        fingerprint = Bundle.load(place).fingerprint
        with Workbench.open(place) as own:
            follow_version(own)
            version = own.state.version
            assert model_files(place) == (new if version else old)
            assert Bundle.load(place).fingerprint in (fingerprint, own.material.bundle.fingerprint)
            met.add((version, killed))
            if version:
                go_back(own)
                assert model_files(place) == old
                own.undo()  # of going back
                follow_version(own)
                assert model_files(place) == new
        shutil.rmtree(place)
        if not killed:
            break
    assert met >= {(0, True), (1, True), (1, False)}


def test_in_the_background_with_progress_cancel_and_kill(bench):
    model = bench.material.model
    before = model_files(model)
    give(bench, pool_rows(1, 3), 1)
    back = BackgroundRefit(model)
    assert not back.status().waiting
    back.cancel()
    back.start()
    with pytest.raises(InputError, match="under way"):
        back.start()
    back.cancel()
    assert not back.status().running
    assert model_files(model) == before
    back.start()
    stages = set()
    while (status := back.status()).running and status.stage in ("starting",):
        time.sleep(0.02)
    os.kill(back._process.pid, signal.SIGKILL)
    ended = back.wait()
    assert "ended before its time (exit code -9)" in ended.error
    assert (ended.running, ended.waiting, back.result()) == (False, False, None)
    back.start()
    while (status := back.status()).running:
        stages.add(status.stage)
        time.sleep(0.02)
    assert status.error is None
    assert status.waiting
    assert len(stages) > 2
    assert back.result() == refitted(bench).report()
    assert BackgroundRefit(model).result() == back.result(), "a restart keeps it"
    assert model_files(model) == before
    assert current_version(model) == 0
    back.drop()
    assert not back.status().waiting
    first = back._process
    back.prepare()
    assert back._process is first, "it waits for the next refit, with its libraries"
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert back.status().error is None, "it was not at work"
    back.start()
    assert back._process is not first
    back.cancel()
    assert not back.status().running


def test_a_refusal_in_the_background_is_its_sentence(bench):
    give(bench, range(FIRST), 0)
    back = BackgroundRefit(bench.material.model)
    back.start()
    assert back.wait().error.startswith("1 class with labels")
    give(bench, range(LABELS), 1)
    back.start()
    assert back.wait().error is None, "the same process does the next one"
    back.cancel()
