"""A run: an experiment trained, judged and saved in a folder, where it can be taken up again."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from protofission import __version__
from protofission.core.errors import InputError, require
from protofission.data.datasets import Data
from protofission.system.digests import sha256_hex
from protofission.system.distributed import ALONE, Processes
from protofission.system.json_files import to_json
from protofission.system.locks import LOCK_FILE, folder_lock
from protofission.training.command import Command
from protofission.training.evaluate import predict
from protofission.training.experiment import Experiment, as_json
from protofission.training.history import Epoch, RunHistory
from protofission.training.loop import StepReport, evaluation_memory, train
from protofission.training.neighbors import neighbor_accuracy
from protofission.training.predictions import Predictions
from protofission.training.run_folder import RunFolder
from protofission.training.run_metrics import RunMetrics, compute_metrics
from protofission.training.schedules import number_of_steps
from protofission.training.state import TrainState, start

SAVE_EVERY = 60.0
"""Least seconds between two saved states."""


_PLACES = (("backbone", "weights"), ("data", "store"))
"""Options that are paths; runs are the same if their last parts are."""


def folder_of(experiment: Experiment, parent: Path) -> RunFolder:
    """The default folder of an experiment, named after method, seed and a digest.

    Another experiment or version has another folder. Of the paths of its weights and its store, the
    last part counts: folders may be moved together.
    """
    plain = json.loads(as_json(experiment))
    for part, key in _PLACES:
        if plain[part].get(key):
            plain[part][key] = Path(plain[part][key]).name
    content = f"{__version__}\n{json.dumps(plain, indent=2)}".encode()
    digest = sha256_hex(content)[:8]
    return RunFolder(parent / f"{experiment.name}-seed{experiment.seed}-{digest}")


@dataclass(frozen=True)
class Moment:
    """One step of a run."""

    report: StepReport
    epoch: Epoch | None
    """The epoch that ended with this step, if one did."""


def perform(
    experiment: Experiment,
    data: Data,
    folder: RunFolder,
    *,
    resume: bool = False,
    processes: Processes = ALONE,
    save_every: float = SAVE_EVERY,
    command: Command | None = None,
) -> Iterator[Moment]:
    """Train, judge and save an experiment; yields after every step.

    A run that was killed at any point and is resumed ends with the same bits in every file but
    environment.json, on the same machine with as many processes and threads.

    Args:
        resume: continue the folder's run; without it, a folder that has a run is refused.
        save_every: the least seconds from one saved state to the next.
        command: the one that makes the experiment; the folder keeps it.
    """
    require(save_every >= 0, f"save_every = {save_every} must be at least 0 seconds.")
    check_folder(folder, experiment, resume=resume)
    processes.wait()  # until all have looked, before the first one writes
    with ExitStack() as ours:
        saved, refusal = None, None
        if processes.first:
            try:
                ours.enter_context(folder_lock(folder.path))
                saved = _load_saved_state(folder, data)
            except InputError as error:
                refusal = str(error)
        saved, refusal = processes.broadcast((saved, refusal))
        require(refusal is None, refusal or "")
        yield from _perform(experiment, data, folder, processes, save_every, saved, command)


Saved = tuple[dict[str, Tensor], RunHistory] | None
"""Tensors of the training state, and the history so far; None at the start."""


def _load_saved_state(folder: RunFolder, data: Data) -> Saved:
    """Read the saved state of a folder; refuse one of other images, labels or features."""
    saved = folder.load_state()
    require(
        saved is None or folder.plain("split") == json.loads(to_json(data.split.manifest())),
        f"{folder.path} holds a run on other images, or other labels: name another folder.",
    )
    there = folder.plain("store") if saved is not None and folder.has("store.json") else {}
    require(
        saved is None or there == data.fingerprints,
        f"{folder.path} holds a run on the features of another encoder, or of other views: name "
        "another folder.",
    )
    return saved


def _perform(
    experiment: Experiment,
    data: Data,
    folder: RunFolder,
    processes: Processes,
    save_every: float,
    saved: Saved,
    command: Command | None,
) -> Iterator[Moment]:
    """Do the work of `perform`, once the folder is locked and checked."""
    state, progress = _begin(experiment, data, folder, processes, saved)
    if processes.first and command is not None:
        folder.write("command.json", as_json(command))
    first, last = state.step, number_of_steps(experiment.recipe, data.training)
    clock = time.monotonic()
    for report in train(state, experiment, data.training, data.augmentations, processes):
        progress.add(report)
        epoch = None
        if report.ends_epoch:
            evaluation = NO_EVALUATION
            if state.step == last or (report.epoch + 1) % experiment.judging.every == 0:
                evaluation = _evaluate(state, experiment, data, processes)
            if processes.first and _should_report(
                evaluation, progress, experiment, state.step == last
            ):
                folder.write_evaluation(*evaluation)
            epoch = progress.end_epoch(evaluation.metrics, evaluation.neighbors)
        due = report.checked and time.monotonic() - clock >= save_every
        if processes.first and state.step < last and due:
            progress.read_steps()
            folder.save_state(state.tensors(), progress)
            clock = time.monotonic()
        yield Moment(report, epoch)
    if first == last or (first and experiment.judging.select == "oracle"):
        _confirm_evaluation(state, experiment, data, folder, processes, progress)
    if processes.first:
        folder.save_state(state.tensors(), progress)
        folder.save_weights(state.for_evaluation.model.state_dict())
        folder.write("history.json", to_json([dataclasses.asdict(e) for e in progress.history]))
        folder.finish()
    processes.wait()


def _begin(
    experiment: Experiment, data: Data, folder: RunFolder, processes: Processes, saved: Saved
) -> tuple[TrainState, RunHistory]:
    """Restore the saved state, or start anew; write the files that describe the run."""
    state = start(
        experiment, data.training, data.augmentations, processes, restored=saved is not None
    )
    progress = RunHistory()
    if saved is not None:
        tensors, progress = saved
        try:
            state.restore(tensors)
        except (KeyError, ValueError, RuntimeError):
            raise InputError(
                f"{folder.path / 'state.safetensors'} is not of this version's model: begin again "
                "in another folder."
            ) from None
    if processes.first:
        # Written first, since it claims the folder. On resuming, its values are the same.
        folder.write("experiment.json", as_json(experiment))
        if saved is None:
            folder.write("environment.json", to_json(environment(processes)))
            folder.write("start.json", to_json(state.fit and dataclasses.asdict(state.fit)))
        folder.write("split.json", to_json(data.split.manifest()))
        if data.fingerprints:
            folder.write("store.json", to_json(data.fingerprints))
    return state, progress


def check_folder(folder: RunFolder, experiment: Experiment, *, resume: bool) -> None:
    """Refuse a folder in which a run of the experiment cannot begin, or go on."""
    require(
        folder.path.is_dir() or not folder.path.exists(),
        f"{folder.path} is a file: name a folder for the run.",
    )
    if not folder.has("experiment.json"):
        foreign = [path.name for path in folder.files() if path.name != LOCK_FILE]
        require(
            not foreign,
            f"{folder.path} holds other files, such as {foreign[0] if foreign else ''}: "
            "name a new folder for the run.",
        )
        return
    there = flatten(folder.plain("experiment"))
    here = flatten(json.loads(as_json(experiment)))
    places = {".".join(place) for place in _PLACES}
    for key in {**here, **there}:
        one, other = there.get(key), here.get(key)
        moved = key in places and one and other and Path(one).name == Path(other).name
        require(
            one == other or bool(moved),
            f"{folder.path} holds a run of another experiment, where {key} is {there.get(key)}, "
            f"not {here.get(key)}: name another folder.",
        )
    require(
        not folder.finished,
        f"{folder.path} holds this run, finished: there is nothing to "
        f"{'resume' if resume else 'do'}.",
    )
    require(
        resume,
        f"{folder.path} holds this run, unfinished: add --resume to go on, or name another folder.",
    )


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries into one with dotted keys."""
    if not isinstance(value, dict):
        return {prefix.removesuffix("."): value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flatten(inner, f"{prefix}{key}.")
    return found


def environment(processes: Processes = ALONE) -> dict[str, Any]:
    """Versions, machine and devices, on which a run's numbers may depend."""
    return {
        "protofission": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "processes": processes.share.size,
        "device": str(processes.device),
    }


class Evaluation(NamedTuple):
    """A model on the test set: predictions and metrics, or the neighbor accuracy of features."""

    predictions: Predictions | None = None
    metrics: RunMetrics | None = None
    neighbors: float | None = None


NO_EVALUATION = Evaluation()


def _evaluate(
    state: TrainState, experiment: Experiment, data: Data, processes: Processes
) -> Evaluation:
    if not experiment.method.traits.predicts:
        k, model = experiment.judging.neighbours, state.for_evaluation.model
        return Evaluation(
            neighbors=neighbor_accuracy(
                model, data.training, data.test, k, data.augmentations.plain, processes
            )
        )
    plain = data.augmentations.plain
    predictions = predict(
        state.for_evaluation.model,
        evaluation_memory(state, experiment, data.training, plain, processes),
        experiment,
        data.training,
        data.test,
        plain,
        processes,
    )
    return Evaluation(predictions, compute_metrics(predictions))


def _confirm_evaluation(
    state: TrainState,
    experiment: Experiment,
    data: Data,
    folder: RunFolder,
    processes: Processes,
    progress: RunHistory,
) -> None:
    """Make sure that a run does not seal evaluation files of an earlier life that were damaged.

    The last epoch's are written again; the best epoch's must agree with the history.
    """
    if experiment.judging.select == "last" or not experiment.method.traits.predicts:
        evaluation = _evaluate(state, experiment, data, processes)
        if processes.first:
            folder.write_evaluation(*evaluation)
    elif processes.first:
        summaries = [epoch.summary for epoch in progress.history if epoch.summary]
        best = max(summaries, key=lambda summary: summary.strict.all)
        found = compute_metrics(folder.predictions()), folder.metrics()
        require(
            {to_json(dataclasses.asdict(each)) for each in (best, *found)}
            == {to_json(dataclasses.asdict(best))},
            f"{folder.path / 'metrics.json'} or predictions.npz is damaged: delete the folder "
            f"{folder.path} and run again.",
        )


def _should_report(
    evaluation: Evaluation, progress: RunHistory, experiment: Experiment, ended: bool
) -> bool:
    """Whether this evaluation replaces the reported one."""
    if experiment.judging.select == "last" or evaluation.metrics is None:
        return ended
    earlier = [epoch.summary.strict.all for epoch in progress.history if epoch.summary]
    return evaluation.metrics.strict.all > max(earlier, default=-math.inf)
