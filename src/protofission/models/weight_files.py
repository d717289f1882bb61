"""The tensors of a checkpoint file, of a finished run or of packaged weights.

Files are data: no code in them is run.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NoReturn

import torch
from safetensors.torch import load as load_tensors
from torch import Tensor

from protofission.errors import InputError, printable, require, unknown

SHOWN = 3
"""How many tensors of one kind a refusal names."""
LONGEST = 160
"""Characters of a name that a refusal shows."""
DEEPEST = 8
"""How many dictionaries inside each other are looked through."""


def packaged() -> dict[str, Traversable]:
    """The files of the weights that come with the package, by name."""
    folder = resources.files("protofission") / "weights"
    files = folder.iterdir() if folder.is_dir() else iter(())
    found = {file.name: file for file in files if file.name.endswith(".safetensors")}
    return {name.removesuffix(".safetensors"): found[name] for name in sorted(found)}


def read_tensors(source: str) -> dict[str, Tensor]:
    """The tensors of a source, by name."""
    require(
        bool(source.strip()),
        "backbone.weights is empty: give a checkpoint file, a finished run or a packaged name.",
    )
    path = os.path.expanduser(source)
    if os.path.isdir(path):
        return _run(Path(path))
    if os.path.exists(path):
        return _file(Path(path))
    names = packaged()
    if source in names:
        return _safetensors(names[source], "install protofission again")
    if Path(source).name != source or Path(source).suffix:
        raise InputError(
            f"{printable(source)} does not exist: give a checkpoint file or a finished run."
        )
    if names:
        raise unknown("weights", source, names)
    raise InputError(
        f"There are no packaged weights {source!r}: give a checkpoint file or a finished run."
    )


def origin_of(source: str) -> dict[str, Any]:
    """The backbone that weights of ours were made for, by its options; nothing of others'."""
    path = Path(os.path.expanduser(source))
    try:
        if path.is_dir():
            return dict(json.loads((path / "experiment.json").read_bytes())["backbone"])
        file = path if path.exists() else packaged()[source]
        return dict(card_of(file.read_bytes())["backbone"])
    except (OSError, KeyError, ValueError, TypeError, InputError):
        return {}


def card_of(content: bytes) -> dict[str, Any]:
    """How a packed backbone was made; nothing for files of others."""
    try:
        return dict(plain_part(content, "card"))
    except (KeyError, ValueError, TypeError):
        return {}


def plain_part(content: bytes, name: str) -> Any:
    """The JSON that a safetensors file carries under a name beside its tensors."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(header["__metadata__"][name])


def _run(folder: Path) -> dict[str, Tensor]:
    """The tensors of a finished run."""
    weights = folder / "weights.safetensors"
    if not (folder / "finished").exists():
        known = weights.exists() or (folder / "experiment.json").exists()
        what = "is a run that did not finish" if known else "is no run"
        raise InputError(f"{printable(str(folder))} {what}: give a finished run or a file.")
    return _safetensors(weights, f"delete the folder {printable(str(folder))} and run again")


def _file(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint file."""
    require(path.is_file(), f"{printable(str(path))} is no file: give a checkpoint file.")
    if path.suffix == ".safetensors":
        return _safetensors(path, "get it again")
    return _torch(path)


def _safetensors(file: Traversable, remedy: str) -> dict[str, Tensor]:
    try:
        tensors = load_tensors(file.read_bytes())
    except OSError as error:
        _unreadable(file, error)
    except Exception:  # whatever a reader says to bytes that are none of its own
        raise InputError(
            f"{printable(str(file))} is damaged or no safetensors file: {remedy}."
        ) from None
    return _some(tensors, file)


def _torch(path: Path) -> dict[str, Tensor]:
    """The tensors of a torch file, which is refused if it holds anything that could act."""
    shown = printable(str(path))
    no_checkpoint = f"{shown} is damaged or no checkpoint: give one that torch.save wrote."
    would_act = (
        f"{shown} is not loaded, because it holds more than tensors and would run code, or is "
        "damaged: if you trust it, load it elsewhere and save its state_dict alone."
    )
    try:
        with path.open("rb") as file:
            archive_or_pickle = file.read(4).startswith((b"PK\x03\x04", b"\x80"))
    except OSError as error:
        _unreadable(path, error)
    require(archive_or_pickle, no_checkpoint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:
        raise InputError(would_act) from None
    except Exception as error:  # whatever a reader says to bytes that are none of its own
        scripted = "TorchScript" in str(error)
        raise InputError(would_act if scripted else no_checkpoint) from None
    return _some(_flat(content, shown), path)


def _flat(content: Any, shown: str) -> dict[str, Tensor]:
    """The tensors in dictionaries inside dictionaries, by their keys joined with dots."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()

    def gather(value: Any, name: str, depth: int) -> None:
        if isinstance(value, Tensor) and depth:
            require(name not in tensors, f"{shown} holds two tensors {few([name])}: rename one.")
            tensors[name] = value
        elif isinstance(value, dict) and depth < DEEPEST and id(value) not in seen:
            seen.add(id(value))  # a dictionary may hold itself
            for key, inner in value.items():
                if isinstance(key, str | int):
                    gather(inner, f"{name}.{key}" if depth else str(key), depth + 1)

    gather(content, "", 0)
    return tensors


def _some(tensors: dict[str, Tensor], file: Traversable) -> dict[str, Tensor]:
    require(
        bool(tensors),
        f"{printable(str(file))} holds no tensor with a name: save a model's state_dict.",
    )
    return tensors


def _unreadable(file: Traversable, error: OSError) -> NoReturn:
    raise InputError(
        f"{printable(str(file))} cannot be read ({error.strerror or error}): give another file."
    ) from None


def few(entries: Iterable[object]) -> str:
    """The first of some names, and how many more there are."""
    entries = list(entries)
    more = f" and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return ", ".join(_cut(printable(str(entry))) for entry in entries[:SHOWN]) + more


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
