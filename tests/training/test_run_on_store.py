"""Runs on a store: saved, resumed, and refused on the features of another encoder."""

import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from protofission.cli import main
from protofission.core.errors import InputError
from protofission.core.options import override
from protofission.core.records import Batch
from protofission.core.rng import step_rng
from protofission.core.threads import prefetcher
from protofission.data.store.from_arrays import store_features
from protofission.models.model import Model
from protofission.system.distributed import FabricProcesses
from protofission.training import loop as train
from protofission.training.experiment import Experiment
from protofission.training.presets import preset
from protofission.training.run import perform
from protofission.training.run_folder import RunFolder
from protofission.training.state import start
from stores import CLASSES, features, made


def short(store: Path, name: str, *assignments: str) -> Experiment:
    experiment = preset("features", name)
    usual = (
        f"data.store={store}",
        "recipe.epochs=4",
        "recipe.steps_per_epoch=3",
        "recipe.labeled_batch=16",
        "recipe.unlabeled_batch=24",
    )
    for assignment in (*usual, *assignments):
        experiment = override(experiment, assignment)
    return experiment


@pytest.mark.parametrize("name", ["orca+pf", "fixmatch-sigmoid+pf"])
@pytest.mark.parametrize("init", ["random", "data"])
def test_a_run_stopped_and_resumed_ends_in_the_same_bits(name: str, init: str, tmp_path: Path):
    store = made(tmp_path / "s").folder
    experiment = short(store, name, f"head.init={init}")
    whole, broken = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "broken")
    for _ in perform(experiment, experiment.data.load(), whole):
        pass
    for moment in perform(experiment, experiment.data.load(), broken, save_every=0):
        if moment.report.step == 5:
            break
    for _ in perform(experiment, experiment.data.load(), broken, resume=True):
        pass
    for file in ("weights.safetensors", "metrics.json", "history.json", "store.json"):
        assert (whole.path / file).read_bytes() == (broken.path / file).read_bytes(), file
    found = whole.weights()
    assert found["backbone.mean"].abs().sum() > 0  # what standardises is among the weights
    if name == "orca+pf":
        assert whole.summary().strict.seen > 0.9


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_batches_that_are_read_ahead_end_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    experiment = short(made(tmp_path / "store").folder, "orca+pf")
    ends, readers = [], []
    for wanted in (True, False):

        def noted(make: Callable[[int], Batch], wanted: bool, really: bool = wanted) -> Any:
            def read(number: int) -> Batch:
                readers.append(threading.current_thread().name)
                return make(number)

            return prefetcher(read, really)

        monkeypatch.setattr(train, "prefetcher", noted)
        folder = RunFolder(tmp_path / f"ahead {wanted}")
        for _ in perform(experiment, experiment.data.load(), folder):
            pass
        ends.append((folder.path / "weights.safetensors").read_bytes())
    assert readers == ["MainThread"] + ["prefetch_0"] * 11 + ["MainThread"] * 12
    assert ends[0] == ends[1]


@pytest.mark.parametrize("adapter", ["adapter-linear", "adapter-mlp", "adapter-none"])
def test_a_forward_pass_in_half_precision_learns_almost_the_same(adapter: str, tmp_path: Path):
    store = made(tmp_path / "store").folder
    experiment = short(store, "orca+pf", f"backbone={adapter}", "head.init=random")
    data, ends = experiment.data.load(), []
    for precision in ("32-true", "bf16-mixed"):
        fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
        given = (experiment, data.training, data.augmentations, FabricProcesses(fabric))
        state = start(*given)
        for _ in train.train(state, *given):
            pass
        ends.append(torch.cat([p.flatten() for p in state.model.parameters()]))
    assert ends[1].dtype == torch.float32
    difference = (ends[0] - ends[1]).norm() / ends[0].norm()
    assert 0 <= difference < 0.05
    assert (difference > 0) == (adapter != "adapter-none")


def test_the_features_of_another_encoder_are_refused_on_resume(tmp_path: Path):
    store = made(tmp_path / "s").folder
    experiment = short(store, "orca+pf")
    folder = RunFolder(tmp_path / "run")
    for _ in perform(experiment, experiment.data.load(), folder, save_every=0):
        break
    shutil.rmtree(store)
    views, labels = features(240, seed=9)
    judged, truth = features(60, seed=2)
    names = [f"class {number}" for number in range(CLASSES)]
    store_features(
        store, views, labels, names, test=judged["plain"], test_labels=truth, name="blobs"
    )
    with pytest.raises(InputError, match="a run on the features of another encoder, or of other"):
        next(iter(perform(experiment, experiment.data.load(), folder, resume=True)))


def test_prediction_needs_the_weights_alone(tmp_path: Path):
    """A model with the saved weights gives the saved predictions: nothing else is to remember."""
    store = made(tmp_path / "s").folder
    experiment = short(store, "orca+pf")
    data, folder = experiment.data.load(), RunFolder(tmp_path / "run")
    for _ in perform(experiment, data, folder):
        pass
    generator = step_rng(99, 0, "elsewhere")
    body = experiment.backbone.build(data.training.shape[0], generator)
    model = Model(body, experiment.head.build(body.num_features, CLASSES, 3, generator))
    model.load_state_dict(folder.weights())
    with torch.no_grad():
        heads = model(data.augmentations.plain(data.test.inputs)).nearest.argmax(1)
    assert np.array_equal(heads.numpy(), folder.predictions().heads)


def test_start_from_data_beats_a_random_start_before_any_step(tmp_path: Path):
    store = made(tmp_path / "s").folder
    found = {}
    for init in ("random", "data"):
        slow = ("recipe.learning_rate=1e-9", "recipe.epochs=1")
        experiment = short(store, "orca+pf", f"head.init={init}", *slow)
        folder = RunFolder(tmp_path / init)
        for _ in perform(experiment, experiment.data.load(), folder):
            pass
        found[init] = folder.summary().strict.all
    assert found["data"] > 0.95 > 0.6 > found["random"]


def refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setattr(sys, "argv", ["protofission", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    return said


def test_the_command_line_trains_on_a_store_and_refuses_what_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    store, out = made(tmp_path / "s").folder, tmp_path / "run"
    sizes = ["recipe.labeled_batch=16", "recipe.unlabeled_batch=24", "recipe.epochs=1"]
    options = [part for size in sizes for part in ("--set", size)]
    command = ["train", "orca+pf", "--store", str(store), "--out", str(out)]
    assert "fewer than a batch of 384" in refused(command, monkeypatch, capsys)
    assert not out.exists() or not (out / "experiment.json").exists()
    monkeypatch.setattr(sys, "argv", ["protofission", *command, *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    experiment = json.loads((out / "experiment.json").read_bytes())
    assert experiment["data"]["store"] == str(store)
    assert set(json.loads((out / "store.json").read_bytes())) == {"data", "encoder", "augmentation"}
    other = ["train", "orca", "--out", str(tmp_path / "o")]
    for store_option, words in (
        (["--store", str(tmp_path)], "is not a store"),
        (["--preset", "features"], "There is no store"),
        (["--store", str(store), "--set", "backbone=compact"], "holds vectors of 12 features"),
    ):
        assert words in refused([*other, *store_option, *options], monkeypatch, capsys)
