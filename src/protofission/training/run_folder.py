"""The folder of a run: plain files, each written whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from protofission.core.errors import InputError, require
from protofission.models.weight_files import check_texts
from protofission.system.digests import sha256_hex
from protofission.system.json_files import MOST_JSON_BYTES, as_type, parse_json, to_json
from protofission.system.partial_files import is_partial
from protofission.system.plain_files import read_plain
from protofission.system.tensor_files import DIGEST, pack_tensors, unpack_tensors
from protofission.system.whole_files import write_whole
from protofission.training.history import (
    Epoch,
    RunHistory,
    epochs_from_json,
    history_from_json,
    metrics_from_json,
)
from protofission.training.predictions import NO_SLOT, Predictions
from protofission.training.run_metrics import RunMetrics

Read = TypeVar("Read")

REQUIRED_KEYS: dict[str, dict[str, Any]] = {
    "experiment": {
        **{"name": str, "seed": int, "data.split.name": str},
        **{"data.dataset": str | None, "data.store": str | None, "judging.select": str},
        **dict.fromkeys(("method", "head", "backbone", "recipe"), dict[str, Any]),
    },
    "environment": {"protofission": str, "torch": str},
    "split": {"sha256": str},
}
"""Keys that the JSON files of every run have, dotted, and the types of their values."""

SEALED = (
    *("experiment.json", "command.json", "split.json", "store.json", "history.json"),
    *("metrics.json", "predictions.npz"),
)
"""Files whose digests are in `finished`; files of tensors carry their own."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return (self.path / "finished").exists()

    def write(self, name: str, content: bytes | str) -> None:
        """Write one of the folder's files."""
        write_whole(self.path / name, content.encode() if isinstance(content, str) else content)

    def read(
        self, name: str, parse: Callable[[bytes], Read], most: int | None = MOST_JSON_BYTES
    ) -> Read:
        """Read and parse one of the folder's files.

        Args:
            most: the most bytes that it may have.

        Raises:
            InputError: it is missing, too large, or not as it was written.
        """
        path = self.path / name
        try:
            content = read_plain(path, most)
            wanted = self._digests().get(name) if name in SEALED else None
            require(wanted in (None, sha256_hex(content)), "it is not as it was written.")
            return parse(content)
        except FileNotFoundError:
            why = ""
        except OSError as error:
            why = f" ({error.strerror or error})"
        except InputError as error:
            why = f" ({str(error).removesuffix('.')})"
        except (ValueError, KeyError, TypeError, SafetensorError):
            why = ""
        raise InputError(
            f"{path} is missing or damaged: delete the folder {self.path} and run again{why}."
        )

    def plain(self, name: str) -> dict[str, Any]:
        """Read one of the JSON files, such as experiment, environment, split or metrics."""
        return self.read(
            f"{name}.json", lambda content: _parse_object(content, REQUIRED_KEYS.get(name, {}))
        )

    def has(self, name: str) -> bool:
        """Whether a file is there, or should be: `finished` has its digest."""
        if os.path.lexists(self.path / name):
            return True
        with suppress(InputError, OSError):
            return name in self._digests()
        return False

    def finish(self) -> None:
        """Mark the run as finished, with the digests of its files."""
        there = (name for name in SEALED if (self.path / name).exists())
        digests = {name: sha256_hex(read_plain(self.path / name)) for name in there}
        self.write("finished", to_json(digests))

    def _digests(self) -> dict[str, str]:
        """The digests of a finished run's files, by name; runs of earlier versions have none."""
        try:
            content = read_plain(self.path / "finished", MOST_JSON_BYTES)
        except FileNotFoundError:
            return {}
        return as_type(parse_json(content), dict[str, str], "finished") if content else {}

    def files(self) -> list[Path]:
        """All files of the folder but partial ones, which a killed process left."""
        found = self.path.iterdir() if self.path.is_dir() else ()
        return sorted(path for path in found if not is_partial(path))

    def save_state(self, tensors: dict[str, Tensor], progress: RunHistory) -> None:
        """Write the training state and the history so far to state.safetensors."""
        plain = to_json(dataclasses.asdict(progress))
        self.write("state.safetensors", pack_tensors(tensors, progress=plain))

    def save_weights(self, weights: dict[str, Tensor]) -> None:
        """Write the model's weights to weights.safetensors."""
        self.write("weights.safetensors", pack_tensors(weights))

    def load_state(self) -> tuple[dict[str, Tensor], RunHistory] | None:
        """Read what `save_state` wrote; None if there is no such file."""
        known = self.has("state.safetensors")
        return self.read("state.safetensors", _parse_state, most=None) if known else None

    def write_evaluation(
        self, predictions: Predictions | None, metrics: RunMetrics | None, neighbors: float | None
    ) -> None:
        """Write predictions.npz, if any, and metrics.json: metrics, or neighbor accuracy."""
        if predictions is not None:
            arrays = BytesIO()
            np.savez_compressed(arrays, **vars(predictions))
            self.write("predictions.npz", arrays.getvalue())
        numbers = {"neighbours": neighbors} if metrics is None else dataclasses.asdict(metrics)
        self.write("metrics.json", to_json(numbers))

    def history(self) -> list[Epoch]:
        """Read the epochs of the run."""
        return self.read("history.json", lambda content: epochs_from_json(parse_json(content)))

    def metrics(self) -> RunMetrics:
        """Read the metrics of the reported epoch."""
        return self.read("metrics.json", lambda content: metrics_from_json(parse_json(content)))

    def predictions(self) -> Predictions:
        """Read the predictions of the reported epoch."""
        return self.read("predictions.npz", _parse_predictions, most=None)

    def weights(self) -> dict[str, Tensor]:
        """Read the model's weights at the last epoch."""
        return self.read("weights.safetensors", _parse_weights, most=None)


def _parse_object(content: bytes, wanted: dict[str, Any]) -> dict[str, Any]:
    """Parse a JSON object and check that it has the wanted keys (dotted) with their types."""
    found = as_type(parse_json(content), dict[str, Any], "")
    for key, kind in wanted.items():
        value: Any = found
        for name in key.split("."):
            require(isinstance(value, dict) and name in value, f"{key} is missing.")
            value = value[name]
        as_type(value, kind, key)
    return found


def _parse_weights(content: bytes) -> dict[str, Tensor]:
    tensors, texts = unpack_tensors(content)
    check_texts(texts)
    return tensors


def _parse_state(content: bytes) -> tuple[dict[str, Tensor], RunHistory]:
    tensors, texts = unpack_tensors(content)
    check_texts(texts)
    plain = parse_json(texts["progress"])
    if DIGEST not in texts:  # an earlier version had one of the tensors alone
        require(plain["digest"] == _digest(tensors), "it is not as it was written.")
    return tensors, history_from_json(plain)


def _parse_predictions(content: bytes) -> Predictions:
    try:
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            values: dict[str, Any] = dict(arrays)
        for number in ("num_seen", "num_classes"):
            values[number] = int(values[number])
        found = Predictions(**values)
    except Exception as error:  # damaged bytes make numpy raise almost anything
        raise ValueError(str(error)) from None
    require(_are_consistent(found), "its arrays do not go together.")
    return found


def _are_consistent(found: Predictions) -> bool:
    """Whether dtypes, shapes and ranges of all arrays fit each other."""
    rows = (found.labels, found.heads, found.slots, found.similarities, found.ood_scores)
    finer = (found.finer, found.own_slots, found.own_clusters)
    kinds = "".join(array.dtype.kind for array in (*rows, found.prototypes, found.mixing, *finer))
    if kinds != "iiiffffiii" or found.prototypes.ndim != 3:
        return False
    heads, slots = found.prototypes.shape[:2]
    claimed = found.heads[found.slots != NO_SLOT] if found.heads.shape == found.slots.shape else ()
    return (
        {array.shape for array in rows} == {(len(found.labels),)}
        and {array.shape for array in finer} <= {(0,), (len(found.labels),)}
        and found.mixing.shape == (heads, slots)
        and 0 < found.num_seen <= found.num_classes
        and _within(found.labels, found.num_classes)
        and _within(found.heads, found.num_classes)
        and _within(claimed, heads)
        and _within(found.slots - NO_SLOT, slots + 1)
        and not np.isnan(found.ood_scores).any()
    )


def _within(values: Any, size: int) -> bool:
    return len(values) == 0 or bool(values.min() >= 0 and values.max() < size)


def _digest(tensors: dict[str, Tensor]) -> str:
    """BLAKE2b digest of all tensors, as earlier versions wrote it."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
