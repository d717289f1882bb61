"""Read the tensors of a checkpoint file, of a finished run or of packaged weights.

Files are data: no code in them is run.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from protofission.core.errors import InputError, printable, require, unknown
from protofission.system.json_files import as_type, parse_json, read_json
from protofission.system.plain_files import open_plain, read_plain
from protofission.system.tensor_files import OURS, texts_of, unpack_tensors

SHOWN_TENSORS = 3
"""Tensors of one kind that an error names."""
LONGEST_NAME = 160
"""Characters of a name that an error shows."""
DEEPEST_DICT = 8
"""Levels of nested dictionaries that are searched for tensors."""

_NUMBERS = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)
"""The types of tensors that can be loaded."""


def packaged_weights() -> dict[str, Traversable]:
    """The weight files that come with the package, by name."""
    folder = resources.files("protofission.models") / "weights"
    files = folder.iterdir() if folder.is_dir() else iter(())
    found = {file.name: file for file in files if file.name.endswith(".safetensors")}
    return {name.removesuffix(".safetensors"): found[name] for name in sorted(found)}


def read_tensors(source: str) -> dict[str, Tensor]:
    """Read the tensors of a file, a finished run or packaged weights, by name."""
    require(
        bool(source.strip()),
        "backbone.weights is empty: give a checkpoint file, a finished run or a packaged name.",
    )
    path = os.path.expanduser(source)
    if os.path.isdir(path):
        return _read_run(Path(path))
    if os.path.exists(path):
        return _read_checkpoint(Path(path))
    names = packaged_weights()
    if source in names:
        return _read_safetensors(names[source], "install protofission again")
    if Path(source).name != source or Path(source).suffix:
        raise InputError(
            f"{printable(source)} does not exist: give a checkpoint file or a finished run."
        )
    if names:
        raise unknown("weights", source, names)
    raise InputError(
        f"There are no packaged weights {source!r}: give a checkpoint file or a finished run."
    )


def read_card(source: str) -> dict[str, Any]:
    """Read how weights of ours were trained: a packed backbone's card, or a run's experiment.

    Returns:
        `backbone`, `dataset` and more; empty for weights of others.
    """
    path = Path(os.path.expanduser(source))
    try:
        if path.is_dir():
            card = read_json(path / "experiment.json", dict[str, Any])
            card["dataset"] = as_type(card.get("data", {}), dict[str, Any], "data").get("dataset")
        else:
            card = read_packed_card(path if path.exists() else packaged_weights()[source])
        return card if isinstance(card.get("backbone"), dict) else {}
    except (OSError, KeyError, InputError):
        return {}


def read_packed_card(file: Traversable) -> dict[str, Any]:
    """Read the card of a packed backbone.

    Raises:
        OSError, KeyError, InputError: if the file has none.
    """
    return _parse_card(texts_of(_read_bytes(file)))


def _read_bytes(file: Traversable) -> bytes:
    return read_plain(file) if isinstance(file, Path) else file.read_bytes()


def _parse_card(texts: dict[str, str]) -> dict[str, Any]:
    return as_type(parse_json(texts["card"]), dict[str, Any], "card")


def _read_run(folder: Path) -> dict[str, Tensor]:
    """Read the tensors of a finished run."""
    weights = folder / "weights.safetensors"
    if not (folder / "finished").exists():
        known = weights.exists() or (folder / "experiment.json").exists()
        what = "is a run that did not finish" if known else "is no run"
        raise InputError(f"{printable(str(folder))} {what}: give a finished run or a file.")
    return _read_safetensors(
        weights, f"delete the folder {printable(str(folder))} and run again", ours=True
    )


def _read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a checkpoint file."""
    if path.suffix == ".safetensors":
        return _read_safetensors(path, "get it again")
    return _read_torch(path)


def _read_safetensors(file: Traversable, remedy: str, *, ours: bool = False) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file.

    Args:
        ours: whether it is known to be a file of ours.
    """
    try:
        tensors, texts = unpack_tensors(_read_bytes(file))
        if ours or _is_ours(texts):
            check_texts(texts)
    except OSError as error:
        _refuse_unreadable(file, error)
    except Exception:  # whatever a reader says to bytes that are none of its own
        raise InputError(
            f"{printable(str(file))} is damaged or no safetensors file: {remedy}."
        ) from None
    return _require_tensors(tensors, file)


def check_texts(texts: dict[str, str]) -> None:
    """Refuse metadata with keys that we never write: the digest's own key may be damaged."""
    require(texts.keys() <= OURS, f"it has the texts {first_few(sorted(texts))}.")


def _is_ours(texts: dict[str, str]) -> bool:
    try:
        return "backbone" in _parse_card(texts)
    except (KeyError, InputError):
        return False


def _read_torch(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a torch file, which is refused if loading it could run code."""
    shown = printable(str(path))
    no_checkpoint = f"{shown} is damaged or no checkpoint: give one that torch.save wrote."
    would_act = (
        f"{shown} is not loaded, because it holds more than tensors and would run code, or is "
        "damaged: if you trust it, load it elsewhere and save its state_dict alone."
    )
    try:
        file = open_plain(path)
    except OSError as error:
        _refuse_unreadable(path, error)
    try:
        with file, warnings.catch_warnings():
            require(file.read(4).startswith((b"PK\x03\x04", b"\x80")), no_checkpoint)
            file.seek(0)
            warnings.simplefilter("ignore")
            content = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        _refuse_unreadable(path, error)
    except InputError:
        raise
    except UnpicklingError:
        raise InputError(would_act) from None
    except Exception as error:  # whatever a reader says to bytes that are none of its own
        scripted = "TorchScript" in str(error)
        raise InputError(would_act if scripted else no_checkpoint) from None
    return _require_tensors(_flatten(content, shown), path)


def _flatten(content: Any, shown: str) -> dict[str, Tensor]:
    """The tensors of nested dictionaries, by their keys joined with dots."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()

    def gather(value: Any, name: str, depth: int) -> None:
        if isinstance(value, Tensor) and depth:
            require(
                name not in tensors,
                f"{shown} holds two tensors {first_few([name])}: rename one.",
            )
            tensors[name] = value
        elif isinstance(value, dict) and depth < DEEPEST_DICT and id(value) not in seen:
            seen.add(id(value))  # a dictionary may hold itself
            for key, inner in value.items():
                if isinstance(key, str | int):
                    gather(inner, f"{name}.{key}" if depth else str(key), depth + 1)

    gather(content, "", 0)
    return tensors


def _require_tensors(tensors: dict[str, Tensor], file: Traversable) -> dict[str, Tensor]:
    """The tensors, if there are any."""
    require(
        bool(tensors),
        f"{printable(str(file))} holds no tensor with a name: save a model's state_dict.",
    )
    return tensors


def _refuse_unreadable(file: Traversable, error: OSError) -> NoReturn:
    raise InputError(
        f"{printable(str(file))} cannot be read ({error.strerror or error}): give another file."
    ) from None


def is_plain(value: Tensor) -> bool:
    """Whether a tensor is dense, on the CPU and of a common type, as a backbone's are."""
    return (
        type(value) in (Tensor, nn.Parameter)
        and not value.is_nested
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and value.dtype in _NUMBERS
    )


def first_few(entries: Iterable[object]) -> str:
    """The first names of a list, and the number of the others: "a, b, c and 5 more"."""
    entries = list(entries)
    more = f" and {len(entries) - SHOWN_TENSORS} more" if len(entries) > SHOWN_TENSORS else ""
    return ", ".join(_cut(printable(str(entry))) for entry in entries[:SHOWN_TENSORS]) + more


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}..."
