"""The files of a Hugging Face model: its folder, configuration and tensors.

Only `find_model_folder` with `download` reaches the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from protofission.core.errors import InputError, printable, require
from protofission.models.encoders.base import reason_of
from protofission.system.json_files import as_type, read_json
from protofission.system.optional_libraries import import_optional
from protofission.system.plain_files import open_plain

INDEX = "model.safetensors.index.json"
FILES = (
    "config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "model*.safetensors",
    INDEX,
)
"""The files that are downloaded from the hub."""
PATIENCE = 5
"""Seconds to wait for an answer of the hub."""
SAVING_FIELDS = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""Fields of a configuration that depend on how it was saved, and not on the network."""


def find_model_folder(source: str, *, download: bool = False) -> Path:
    """Find the folder of a model: the source itself, or the cached files of a hub name."""
    path, shown = Path(source).expanduser(), printable(source)
    if path.is_dir():
        return path
    require(
        not path.exists() and re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", source) is not None,
        f"{shown} is neither a folder nor a hub name: give a folder that save_pretrained wrote.",
    )
    hub = import_optional("huggingface_hub", "hub", "A transformers encoder")
    try:
        found = hub.snapshot_download(
            source, allow_patterns=FILES, etag_timeout=PATIENCE, local_files_only=not download
        )
        return Path(found)
    except Exception as error:  # the library raises what its parts raise
        reason = reason_of(error)
    if download:
        raise InputError(
            f"{shown} is no folder here and cannot be had from the hub ({reason}): give "
            "a local folder with config.json and model.safetensors, as transformers:FOLDER."
        )
    raise InputError(
        f"{shown} is no folder here and was not downloaded before: allow that by --allow-download, "
        "in Python by allow_download=True, or put the folder there."
    )


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json."""
    path = folder / "config.json"
    try:
        return read_json(path, dict[str, Any])
    except (OSError, InputError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error).removesuffix(".")
        raise InputError(
            f"{printable(str(path))} cannot be read ({why}): give a folder that save_pretrained "
            "wrote."
        ) from None


def read_network_config(folder: Path) -> dict[str, Any]:
    """Read config.json without the fields that may change when the model is saved again."""
    return {name: value for name, value in read_config(folder).items() if name not in SAVING_FIELDS}


def read_model_tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Read the tensors of a model's files, by the names that they are stored with.

    In the loaded network, names may change with the version of the library.
    """
    try:
        files = {"model.safetensors"}
        if not (folder / "model.safetensors").exists():
            files = _read_index(folder)
        homes: dict[str, str] = {}
        for file in sorted(files):
            open_plain(folder / file).close()  # refuses a pipe, for which safe_open would wait
            with safe_open(folder / file, "pt") as opened:
                homes |= dict.fromkeys(opened.keys(), file)
        for name in sorted(homes):
            with safe_open(folder / homes[name], "pt") as opened:
                yield name, opened.get_tensor(name)
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(
            f"{printable(str(folder))} has no whole model.safetensors ({reason_of(error)}): get it "
            "again."
        ) from None


def _read_index(folder: Path) -> set[str]:
    """The names of the files over which a model's tensors are spread."""
    found = read_json(folder / INDEX, dict[str, Any]).get("weight_map")
    return set(as_type(found, dict[str, str], f"weight_map of {INDEX}").values())
