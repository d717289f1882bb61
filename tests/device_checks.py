"""Work on the stand-in device beside the same work on the CPU; a script that prints JSON.

A process of its own, since `stand_in_device` changes torch.
"""

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protofission.core.devices import send
from protofission.core.errors import InputError
from protofission.core.options import override
from protofission.core.rng import step_rng
from protofission.data.datasets import VIEWS, Data
from protofission.methods import METHODS
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.system.distributed import ALONE, Processes
from protofission.training.evaluate import predict
from protofission.training.experiment import Experiment
from protofission.training.history import RunHistory
from protofission.training.loop import evaluation_memory, train
from protofission.training.presets import preset
from protofission.training.state import TrainState, start
from runs import digits, small
from small_bundles import HEADS, bundle_of
from stand_in_device import BOARD, board, real
from stores import made
from tensor_pictures import natural


class OnBoard(Processes):
    """One process on the stand-in device."""

    device = BOARD


def train_on(processes: Processes, experiment: Experiment, data: Data) -> dict[str, Tensor]:
    """Train, save and restore half-way, and predict: tensors and numbers by name."""
    state = start(experiment, data.training, data.augmentations, processes)
    assert {p.device.type for p in state.model.parameters()} == {processes.device.type}
    progress = RunHistory()
    for report in train(state, experiment, data.training, data.augmentations, processes):
        progress.add(report)
        if report.step == 1:  # a state that was written to a file, and read on the CPU
            kept = {name: real(value).clone() for name, value in state.tensors().items()}
            again = start(experiment, data.training, data.augmentations, processes, restored=True)
            again.restore(kept)
            assert same({n: real(v) for n, v in again.tensors().items()}, kept)
    epoch = progress.end_epoch(None, None)
    found = {name: real(value) for name, value in state.tensors().items()}
    found |= {f"term/{name}": torch.tensor(value) for name, value in epoch.terms.items()}
    if experiment.method.traits.predicts:
        found |= judged(state, experiment, data, processes)
    return found


def judged(
    state: TrainState, experiment: Experiment, data: Data, processes: Processes
) -> dict[str, Tensor]:
    """The arrays of the predictions of the test set."""
    plain = data.augmentations.plain
    memory = evaluation_memory(state, experiment, data.training, plain, processes)
    predictions = predict(
        state.for_evaluation.model, memory, experiment, data.training, data.test, plain, processes
    )
    arrays = {name: v for name, v in vars(predictions).items() if isinstance(v, np.ndarray)}
    return {f"prediction/{name}": torch.from_numpy(value) for name, value in arrays.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether all bits are the same; NaN equals NaN."""
    assert one.keys() == other.keys()
    return all(
        torch.equal(torch.nan_to_num(one[name].double()), torch.nan_to_num(other[name].double()))
        for name in one
    )


def compare(experiment: Experiment, data: Data) -> dict[str, Any]:
    """One experiment on both devices, and the waits of its steps."""
    on_cpu = train_on(ALONE, experiment, data)
    with board():
        on_board = train_on(OnBoard(), experiment, data)
    with board() as waits:
        state = start(experiment, data.training, data.augmentations, OnBoard())
        steps = train(state, experiment, data.training, data.augmentations, OnBoard())
        next(steps)  # what surveys before an epoch has done so
        waits.clear()
        next(steps)
        in_step = dict(waits)
        steps.close()
    return {"same": same(on_cpu, on_board), "waits": in_step}


def methods(names: Iterable[str]) -> dict[str, Any]:
    data = digits()
    return {name: compare(small(name), data) for name in names}


def every_view() -> dict[str, Any]:
    """All views of natural images: the same bytes, and no wait."""
    images = torch.cat([natural(16, 16, seed=seed) for seed in range(8)])
    found = {}
    for name, views in VIEWS.items():
        if name == "digits":
            continue
        for view in ("plain", "weak", "strong", "simclr"):
            expected = views.view(view, images, step_rng(0, 0, "views"))
            with board() as waits:
                sent = images.to(BOARD)
                waits.clear()
                got = views.view(view, sent, step_rng(0, 0, "views"))
            assert got.device == BOARD, name
            # Blurred pixels may differ by one level: the kernels are the device's own.
            far = float((real(got) - expected).abs().max())
            found[f"{name}/{view}"] = {"far": far, "waits": dict(waits)}
    return found


def a_store() -> dict[str, Any]:
    experiment = preset("features", "orca+pf")
    for assignment in ("epochs=1", "steps_per_epoch=4", "labeled_batch=16", "unlabeled_batch=24"):
        experiment = override(experiment, f"recipe.{assignment}")
    with tempfile.TemporaryDirectory() as folder:
        return compare(experiment, experiment.data.load_store(made(Path(folder) / "store")))


def every_head() -> dict[str, Any]:
    """Verdicts of bundles on the device."""
    rows = torch.randn(40, 12, generator=torch.Generator().manual_seed(0)).numpy()
    found = {}
    for head in HEADS:
        bundle = bundle_of(head)
        expected = bundle.predict_features(rows)
        with board():
            bundle.calibrated_model.to(BOARD)
            assert bundle.calibrated_model.threshold.device == BOARD
            got = bundle.predict_features(rows)
        found[head] = all(torch.equal(real(a), b) for a, b in zip(got, expected, strict=True))
    return found


def an_encoder() -> dict[str, Any]:
    images = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    spec = OwnBackbone("simclr-cifar10")
    expected = spec.load().features(images)
    with board():
        got = spec.load(BOARD).features(images)
    return {"same": torch.equal(real(got), expected), "device": str(got.device)}


def faults() -> dict[str, Any]:
    """What the stand-in refuses and notes, so that a check that finds nothing has looked."""
    here = torch.ones(3)
    refused = {}
    with board() as waits:
        there = send(here, BOARD)
        for name, fault in {
            "two devices": lambda: there + here,
            "a generator of the CPU": lambda: torch.rand(
                3, device=BOARD, generator=torch.Generator()
            ),
        }.items():
            try:
                fault()
                refused[name] = ""
            except RuntimeError as error:
                refused[name] = str(error)
        quiet = dict(waits)
        float(there.sum())
        there.cpu()
        there[there > 0]
        here.to(BOARD)
    kinds = sorted(place.partition(":")[0] for place in waits)
    return {"refused": refused, "quiet": quiet, "noted": kinds}


def a_loss_that_is_not_finite() -> dict[str, Any]:
    """The sentence of a run whose losses are looked at once an epoch, of four steps."""
    experiment = small("fixmatch", "recipe.learning_rate=1e30", "recipe.steps_per_epoch=4")
    with board():
        try:
            train_on(OnBoard(), experiment, digits())
        except InputError as error:
            return {"said": str(error)}
    return {"said": ""}


SOME = ("fixmatch-sigmoid+pf", "orca+pf")
CHECKS = {
    "all methods": lambda: methods(sorted(METHODS)),
    "some methods": lambda: methods(SOME),
    "views": every_view,
    "store": a_store,
    "heads": every_head,
    "encoder": an_encoder,
    "faults": faults,
    "loss": a_loss_that_is_not_finite,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({name: CHECKS[name]() for name in sys.argv[1:]}))
