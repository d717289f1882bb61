"""A run is a folder of plain files, each written whole or not at all; `finished` comes last."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from protofission import __version__
from protofission.data.datasets import Data
from protofission.errors import InputError
from protofission.evaluate import Predictions, Summary, predict, summarize
from protofission.experiment import Experiment, as_json
from protofission.metrics import Accuracy, PrototypeHealth
from protofission.records import Terms
from protofission.train import StepReport, TrainState, start, train
from protofission.whole import write_whole

Read = TypeVar("Read")


@dataclass(frozen=True)
class Epoch:
    """One epoch of a run's history."""

    epoch: int
    loss: float
    """The weighted sum of the terms."""
    terms: dict[str, float]
    """The unweighted terms by name, averaged over the epoch."""
    summary: Summary | None
    """What the test set says; none while a backbone is pretrained. Never fed back to training."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "finished").exists()

    def write(self, name: str, content: bytes | str) -> None:
        """Write one of the folder's files."""
        write_whole(self.path / name, content.encode() if isinstance(content, str) else content)

    def read(self, name: str, parse: Callable[[bytes], Read]) -> Read:
        """Read one of the folder's files; a damaged one is named."""
        path = self.path / name
        try:
            return parse(path.read_bytes())
        except (
            FileNotFoundError,
            ValueError,
            KeyError,
            TypeError,
            EOFError,
            BadZipFile,
            SafetensorError,
        ):
            raise InputError(
                f"{path} is missing or damaged: delete the folder {self.path} and run again."
            ) from None

    def plain(self, name: str) -> dict[str, Any]:
        """One of the JSON files: experiment, environment or split."""
        return self.read(f"{name}.json", lambda content: dict(json.loads(content)))

    def history(self) -> list[Epoch]:
        """The epochs of the run."""
        return self.read("history.json", _history)

    def summary(self) -> Summary:
        """The numbers of the reported epoch."""
        return self.read("metrics.json", lambda content: _summary(json.loads(content)))

    def predictions(self) -> Predictions:
        """The predictions of the reported epoch."""
        return self.read("predictions.npz", _predictions)

    def weights(self) -> dict[str, Tensor]:
        """The model's weights at the last epoch."""
        return self.read("weights.safetensors", load_tensors)

    def backbone(self) -> dict[str, Tensor]:
        """The backbone's part of the weights."""
        prefix = "backbone."
        return {
            name.removeprefix(prefix): value
            for name, value in self.weights().items()
            if name.startswith(prefix)
        }


def folder_of(experiment: Experiment, parent: Path, start: RunFolder | None = None) -> RunFolder:
    """The folder of an experiment: another experiment, start or version has another folder."""
    content = f"{__version__}\n{start and start.path.name}\n{as_json(experiment)}".encode()
    digest = hashlib.sha256(content).hexdigest()[:8]
    return RunFolder(parent / f"{experiment.name}-seed{experiment.seed}-{digest}")


def perform(
    experiment: Experiment, data: Data, folder: RunFolder, backbone: RunFolder | None = None
) -> Iterator[StepReport]:
    """Train, judge and save an experiment; yields after every step.

    Args:
        backbone: a finished run whose backbone is the start of this one's.
    """
    folder.write("experiment.json", as_json(experiment))
    folder.write("environment.json", _as_json(environment()))
    folder.write("start.json", _as_json({"backbone": backbone and backbone.path.name}))
    folder.write("split.json", _as_json(data.split.manifest()))
    state = start(experiment, data.training, backbone.backbone() if backbone else None)
    history: list[Epoch] = []
    best: tuple[Predictions, Summary] | None = None
    steps: list[Terms] = []
    for report in train(state, experiment, data.training, data.augmentations):
        steps.append(report.terms)
        if report.ends_epoch:
            judged = _judge(state, experiment, data)
            history.append(_epoch(report.epoch, steps, judged[1] if judged else None))
            steps = []
            if judged and (experiment.judging.select == "last" or _better(judged, best)):
                best = judged
        yield report
    folder.write("weights.safetensors", save_tensors(_packed(state.model.state_dict())))
    folder.write("history.json", _as_json([dataclasses.asdict(e) for e in history]))
    if best:
        arrays = BytesIO()
        np.savez_compressed(arrays, **vars(best[0]))
        folder.write("predictions.npz", arrays.getvalue())
        folder.write("metrics.json", _as_json(dataclasses.asdict(best[1])))
    folder.write("finished", "")


def environment() -> dict[str, Any]:
    """What the numbers of a run may depend on besides the experiment."""
    return {
        "protofission": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def _judge(
    state: TrainState, experiment: Experiment, data: Data
) -> tuple[Predictions, Summary] | None:
    if not experiment.method.classifies:
        return None
    predictions = predict(state.model, experiment, data.training, data.test)
    return predictions, summarize(predictions)


def _better(judged: tuple[Predictions, Summary], best: tuple[Predictions, Summary] | None) -> bool:
    return best is None or judged[1].strict.all > best[1].strict.all


def _epoch(number: int, steps: list[Terms], summary: Summary | None) -> Epoch:
    names = [term.name for term in steps[0]]
    values = torch.tensor([[float(term.value) for term in terms] for terms in steps]).mean(0)
    weights = torch.tensor([term.weight for term in steps[0]])
    means = dict(zip(names, values.tolist(), strict=True))
    return Epoch(number, float(values @ weights), means, summary)


def _history(content: bytes) -> list[Epoch]:
    return [
        Epoch(**{**row, "summary": row["summary"] and _summary(row["summary"])})
        for row in json.loads(content)
    ]


def _predictions(content: bytes) -> Predictions:
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        values: dict[str, Any] = dict(arrays)
    for number in ("num_seen", "num_classes"):
        values[number] = int(values[number])
    return Predictions(**values)


def _summary(values: dict[str, Any]) -> Summary:
    parts = {
        "orca": Accuracy(**_with_nan(values["orca"])),
        "strict": Accuracy(**_with_nan(values["strict"])),
        "prototypes": PrototypeHealth(**_with_nan(values["prototypes"])),
    }
    return Summary(**{**_with_nan(values), **parts})


def _as_json(value: Any) -> str:
    """JSON that every reader takes: a number that is not there is null, never NaN."""
    return json.dumps(_without_nan(value), indent=1, allow_nan=False)


def _without_nan(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_nan(inner) for key, inner in value.items()}
        case list():
            return [_without_nan(inner) for inner in value]
        case float() if math.isnan(value):
            return None
        case _:
            return value


def _with_nan(values: dict[str, Any]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in values.items()}


def _packed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights in the order of their dimensions, as the file format wants them."""
    return {name: value.contiguous() for name, value in weights.items()}
