"""The folder of a run: plain files, each written whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
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

from protofission.errors import InputError
from protofission.evaluate import Predictions, Summary
from protofission.history import Epoch, Progress, as_plain_json, epochs, summary_of
from protofission.models.weight_files import plain_part
from protofission.whole import is_partial, write_whole

Read = TypeVar("Read")


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
        """One of the JSON files, such as experiment, environment, split or metrics."""
        return self.read(f"{name}.json", lambda content: dict(json.loads(content)))

    def has(self, name: str) -> bool:
        """Whether one of the folder's files is there."""
        return (self.path / name).exists()

    def files(self) -> list[Path]:
        """All files of the folder but those that were being written when a process was killed."""
        found = self.path.iterdir() if self.path.is_dir() else ()
        return sorted(path for path in found if not is_partial(path))

    def save_state(self, tensors: dict[str, Tensor], progress: Progress) -> None:
        """All that is needed to go on, in one file."""
        packed = _packed(tensors)
        plain = as_plain_json({**dataclasses.asdict(progress), "digest": _digest(packed)})
        self.write("state.safetensors", save_tensors(packed, {"progress": plain}))

    def save_weights(self, weights: dict[str, Tensor]) -> None:
        """The model's weights."""
        self.write("weights.safetensors", save_tensors(_packed(weights)))

    def saved_state(self) -> tuple[dict[str, Tensor], Progress] | None:
        """What `save_state` saved, if it did."""
        return self.read("state.safetensors", _state) if self.has("state.safetensors") else None

    def write_judgement(
        self, predictions: Predictions | None, summary: Summary | None, neighbours: float | None
    ) -> None:
        """What the run reports: predictions with their numbers, or the neighbours' accuracy."""
        if predictions is not None:
            arrays = BytesIO()
            np.savez_compressed(arrays, **vars(predictions))
            self.write("predictions.npz", arrays.getvalue())
        numbers = {"neighbours": neighbours} if summary is None else dataclasses.asdict(summary)
        self.write("metrics.json", as_plain_json(numbers))

    def history(self) -> list[Epoch]:
        """The epochs of the run."""
        return self.read("history.json", lambda content: epochs(json.loads(content)))

    def summary(self) -> Summary:
        """The numbers of the reported epoch."""
        return self.read("metrics.json", lambda content: summary_of(json.loads(content)))

    def predictions(self) -> Predictions:
        """The predictions of the reported epoch."""
        return self.read("predictions.npz", _predictions)

    def weights(self) -> dict[str, Tensor]:
        """The model's weights at the last epoch."""
        return self.read("weights.safetensors", load_tensors)


def _state(content: bytes) -> tuple[dict[str, Tensor], Progress]:
    tensors = load_tensors(content)
    plain = plain_part(content, "progress")
    if plain["digest"] != _digest(tensors):
        raise ValueError("digest")
    return tensors, Progress(epochs(plain["history"]), plain["steps"])


def _predictions(content: bytes) -> Predictions:
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        values: dict[str, Any] = dict(arrays)
    for number in ("num_seen", "num_classes"):
        values[number] = int(values[number])
    return Predictions(**values)


def _digest(tensors: dict[str, Tensor]) -> str:
    """One digest of all numbers."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _packed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights in the order of their dimensions, as the file format wants them."""
    return {name: value.contiguous() for name, value in weights.items()}
