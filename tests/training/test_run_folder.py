"""Run folders: whole files, exact reading back, and numbers that follow from the predictions."""

import dataclasses
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from protofission.core.errors import InputError
from protofission.system.whole_files import write_whole
from protofission.training.predictions import NO_SLOT, Predictions
from protofission.training.run import folder_of, perform
from protofission.training.run_folder import RunFolder
from protofission.training.run_metrics import compute_metrics
from runs import digits, small


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = RunFolder(tmp_path_factory.mktemp("run") / "x")
    for _ in perform(small("fixmatch-sigmoid+pf"), digits(), folder):
        pass
    return folder


def test_a_run_holds_what_it_was_and_what_came_out(folder: RunFolder) -> None:
    names = {path.name for path in folder.path.iterdir()}
    assert names == {
        "experiment.json",
        "environment.json",
        "split.json",
        "start.json",
        "history.json",
        ".lock",
        "state.safetensors",
        "weights.safetensors",
        "predictions.npz",
        "metrics.json",
        "finished",
    }
    assert json.loads((folder.path / "experiment.json").read_text())["head"]["prototypes"] == 5


def test_numbers_follow_from_the_saved_predictions(folder: RunFolder) -> None:
    assert compute_metrics(folder.predictions()) == folder.metrics()
    assert folder.history()[-1].summary == folder.metrics()


def test_files_are_json_to_every_reader(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "orca")  # V = 1: there is no cosine of two slots
    for _ in perform(small("orca"), digits(), folder):
        pass
    for path in folder.path.glob("*.json"):
        json.loads(path.read_text(), parse_constant=pytest.fail)
    assert np.isnan(folder.metrics().prototypes.slot_cosine)


def test_history_adds_up(folder: RunFolder) -> None:
    weights = {"supervised": 1, "pseudo": 1, "ood": 1, "consistency": 0.6}
    weights |= {"diversity": 0.3, "local_diversity": 0.3}
    for epoch in folder.history():
        total = sum(weights[name] * value for name, value in epoch.terms.items())
        assert epoch.loss == pytest.approx(total, rel=1e-5)


def test_rejected_images_are_clustered_and_claimed_by_no_prototype(folder: RunFolder) -> None:
    predictions = folder.predictions()
    rejected = predictions.heads >= 5
    assert rejected.any()
    assert (predictions.slots[rejected] == NO_SLOT).all()
    assert (predictions.slots[~rejected] != NO_SLOT).all()
    assert predictions.slot_usage.sum() == (~rejected).sum()
    assert predictions.ood_scores[rejected].min() > predictions.ood_scores[~rejected].max() - 1e-6


def test_the_oracle_epoch_is_the_best_by_the_test_labels(tmp_path: Path) -> None:
    experiment = small("orca", "judging.select=oracle", "recipe.epochs=4")
    folder = RunFolder(tmp_path / "oracle")
    for _ in perform(experiment, digits(), folder):
        pass
    best = max(epoch.summary.strict.all for epoch in folder.history() if epoch.summary)
    assert folder.metrics().strict.all == best


def test_a_folder_is_named_by_its_experiment(tmp_path: Path) -> None:
    first, second = small("orca"), small("orca", "method.entropy_weight=9")
    assert folder_of(first, tmp_path) == folder_of(small("orca"), tmp_path)
    assert folder_of(first, tmp_path) != folder_of(second, tmp_path)
    assert folder_of(first, tmp_path) != folder_of(dataclasses.replace(first, seed=1), tmp_path)


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"before")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(ValueError, match="file cannot be written: No space left"):
        write_whole(path, b"after")
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("metrics.json", RunFolder.metrics),
        ("history.json", RunFolder.history),
        ("predictions.npz", RunFolder.predictions),
        ("weights.safetensors", RunFolder.weights),
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_a_damaged_file_is_named(
    name: str, read: Callable[[RunFolder], object], share: float, folder: RunFolder, tmp_path: Path
) -> None:
    content = (folder.path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=rf"{name} is missing or damaged: delete"):
        read(RunFolder(tmp_path))


def test_predictions_without_novel_images_are_judged_without_a_crash() -> None:
    zeros = np.zeros(4, np.int64)
    predictions = Predictions(
        labels=zeros,
        heads=zeros,
        slots=zeros,
        similarities=np.ones(4, np.float32),
        ood_scores=np.zeros(4, np.float32),
        prototypes=np.ones((1, 1, 2), np.float32),
        mixing=np.zeros((1, 1), np.float32),
        num_seen=1,
        num_classes=1,
    )
    summary = compute_metrics(predictions)
    assert summary.strict.seen == summary.orca.all == 1.0
    assert np.isnan(summary.auc)
    assert np.isnan(summary.orca.novel)


def test_what_was_changed_in_a_finished_run_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    for _ in perform(small("orca"), digits(), folder):
        pass
    reads = {
        "metrics.json": folder.metrics,
        "history.json": folder.history,
        "predictions.npz": folder.predictions,
        "experiment.json": lambda: folder.plain("experiment"),
        "split.json": lambda: folder.plain("split"),
    }
    for name, read in reads.items():
        path = folder.path / name
        content = path.read_bytes()
        digit = re.search(rb"[1-8]", content[len(content) // 2 :])
        assert digit is not None
        place = len(content) // 2 + digit.start()
        path.write_bytes(content[:place] + b"9" + content[place + 1 :])
        with pytest.raises(InputError, match=f"{name} is missing or damaged.*as it was written"):
            read()
        path.unlink()
        assert folder.has(name)
        with pytest.raises(InputError, match=f"{name} is missing or damaged"):
            read()
        path.write_bytes(content)
        read()
    (folder.path / "finished").write_text("")  # as earlier versions wrote it
    (folder.path / "split.json").unlink()
    assert not folder.has("split.json")
    folder.metrics()


@pytest.mark.parametrize("name", ["orca+pf", "simclr"])
@pytest.mark.parametrize("file", ["metrics.json", "predictions.npz"])
def test_a_run_that_lacks_its_last_mark_alone_does_not_seal_damage(
    name: str, file: str, tmp_path: Path
) -> None:
    folder, experiment = RunFolder(tmp_path / "run"), small(name)
    for _ in perform(experiment, digits(), folder):
        pass
    before = {path.name: path.read_bytes() for path in folder.files()}
    if file not in before:
        return  # SimCLR predicts nothing
    (folder.path / "finished").unlink()
    (folder.path / file).write_bytes(before[file][:19])
    assert not list(perform(experiment, digits(), folder, resume=True)), "no step was left"
    assert {path.name: path.read_bytes() for path in folder.files()} == before


@pytest.mark.parametrize("file", ["metrics.json", "predictions.npz"])
def test_a_damaged_evaluation_of_the_best_epoch_is_refused(file: str, tmp_path: Path) -> None:
    experiment = small("orca+pf", "judging.select=oracle", "judging.every=1")
    folder = RunFolder(tmp_path / "run")
    for _ in perform(experiment, digits(), folder):
        pass
    before = {path.name: path.read_bytes() for path in folder.files()}
    (folder.path / "finished").unlink()
    list(perform(experiment, digits(), folder, resume=True))
    assert {path.name: path.read_bytes() for path in folder.files()} == before
    (folder.path / "finished").unlink()
    (folder.path / file).write_bytes(before[file][:19])
    with pytest.raises(InputError, match="damaged: delete the folder"):
        list(perform(experiment, digits(), folder, resume=True))
    assert not (folder.path / "finished").exists()
