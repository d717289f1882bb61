"""The files of a bundle: their content, and a strict reader that runs no code from them.

They lie in a folder, in a .zip file or on the hub; a `ReadFile` reads one of them by its name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from protofission.core.errors import InputError, printable, require
from protofission.data.store.manifest import npy_header
from protofission.models.weight_files import first_few
from protofission.system.digests import sha256_hex
from protofission.system.json_files import as_type, parse_json, to_json
from protofission.system.locks import LOCK_FILE
from protofission.system.partial_files import is_partial
from protofission.system.plain_files import read_plain
from protofission.triage.bundle_manifest import (
    BUNDLE_PARTS,
    CALIBRATION,
    FORMAT,
    MODEL,
    Manifest,
    SingleManifest,
)
from protofission.triage.calibrated_model import CalibratedModel

MANIFEST = "bundle.json"
MOST_BUNDLE_MANIFEST_BYTES = 2**26
"""Largest size of bundle.json."""
MOST_CALIBRATION_BYTES = 2**28
"""Largest size of the file of held-out scores."""

ReadFile = Callable[[str, int], bytes]
"""Reads a file of a bundle: its name, and the most bytes that it may have.

It raises an InputError that says of the file why it cannot be read.
"""


def contents(calibrated_model: CalibratedModel, scores: NDArray[np.float32]) -> dict[str, bytes]:
    """The files beside bundle.json, by name."""
    tensors = {
        name: value.detach().cpu().float().contiguous()
        for name, value in calibrated_model.state_dict().items()
    }
    numbers = scores.astype("<f4")
    return {
        MODEL: save_tensors(tensors),
        CALIBRATION: npy_header("<f4", numbers.shape) + numbers.tobytes(),
    }


def folder_reader(folder: Path) -> ReadFile:
    """The reader of a bundle's folder."""
    return lambda name, most: _read(folder / name, most)


def read_manifest(read: ReadFile) -> Manifest | SingleManifest | int:
    """Read bundle.json; return its format instead, if that is a newer one."""
    content = parse_json(read(MANIFEST, MOST_BUNDLE_MANIFEST_BYTES))
    made_as = content.get("format") if isinstance(content, dict) else None
    if isinstance(made_as, int) and made_as > FORMAT:
        return made_as
    seal = content.pop("seal", None) if isinstance(content, dict) else None
    require(made_as is not None, "format is missing.")
    require(type(made_as) is int, f"format must be a whole number, not {made_as!r:.80}.")
    require(made_as in (1, 2, 3, FORMAT), f"format = {made_as} is not known.")
    single, whole = made_as == 1, _with_new_sizes(content) if made_as in (2, 3) else content
    manifest = as_type(whole, SingleManifest, "") if single else as_type(whole, Manifest, "")
    require(seal == _seal(content), f"{MANIFEST} is not as it was saved.")
    return manifest


def _with_new_sizes(content: Any) -> Any:
    """A manifest of an older format as the newest has it: its models have nothing of what is new.

    Those of format 2 have no free centers, and those of formats 2 and 3 no points of classes.
    """
    models = content.get("models")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        return content  # which is refused
    new = {"free": 0, "points": 0} if content["format"] == 2 else {"points": 0}
    return {**content, "models": [{**model, **new} for model in models]}


def seal_manifest(content: dict[str, Any]) -> bytes:
    """Write a manifest as JSON, with a digest of itself in it."""
    plain = json.loads(to_json(content))
    return to_json({**plain, "seal": _seal(plain)}).encode()


def _seal(content: Any) -> str:
    return sha256_hex(json.dumps(content, sort_keys=True).encode())


def read_parts(
    read: ReadFile, manifest: Manifest | SingleManifest
) -> tuple[CalibratedModel, NDArray[np.float32]]:
    """Read the calibrated model and the held-out scores, if their files are as they were saved."""
    most = {MODEL: most_model_bytes(manifest), CALIBRATION: MOST_CALIBRATION_BYTES}
    parts = {name: read(name, most[name]) for name in BUNDLE_PARTS}
    for name, content in parts.items():
        require(sha256_hex(content) == manifest.files[name], f"{name} is not as it was saved.")
    try:
        tensors = load_tensors(parts[MODEL])
    except Exception:  # the reader raises many kinds
        raise InputError(f"{MODEL} is no safetensors file.") from None
    wanted = {name: (shape, torch.float32) for name, shape in manifest.shapes().items()}
    found = {name: (tuple(value.shape), value.dtype) for name, value in tensors.items()}
    odd = sorted(name for name in wanted | found if wanted.get(name) != found.get(name))
    require(not odd, f"the tensors {first_few(odd)} do not fit the model.")
    calibrated_model = manifest.calibrated_model()
    calibrated_model.load_state_dict(tensors)
    return calibrated_model, _scores(parts[CALIBRATION])


def most_model_bytes(manifest: Manifest | SingleManifest) -> int:
    """Largest size of the file of tensors: their float32 numbers, and a header."""
    shapes = manifest.shapes().values()
    return sum(4 * math.prod(shape) for shape in shapes) + 1024 * (len(shapes) + 64)


def _scores(content: bytes) -> NDArray[np.float32]:
    """Read an .npy file that has exactly the header that `contents` writes."""
    count = max(0, len(content) - len(npy_header("<f4", (0,)))) // 4
    header = npy_header("<f4", (count,))
    require(
        content.startswith(header) and len(content) == len(header) + 4 * count,
        f"{CALIBRATION} is no list of float32 numbers.",
    )
    return np.frombuffer(content, "<f4", offset=len(header)).astype(np.float32)


def check_numbers(tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that cannot be computed with; only the threshold may be infinite."""
    above = ("temperature", "deviation", "scales", "score_scales", "logit_scales")
    odd = [
        name
        for name, value in tensors.items()
        if bool(value.isnan().any() if name == "threshold" else not value.isfinite().all())
        or (name.split(".")[-1] in above and not bool((value > 0).all()))
    ]
    require(
        not odd, f"The tensors {first_few(odd)} hold NaN or infinity, or 0 where that cannot be."
    )


def check_destination(folder: Path) -> None:
    """Refuse a folder in which something other than a bundle would be lost."""
    shown = printable(str(folder))
    require(folder.is_dir() or not folder.exists(), f"{shown} is a file: name a folder.")
    here = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    ours = (*BUNDLE_PARTS, MANIFEST, LOCK_FILE)
    alone = all(name in ours or is_partial(folder / name) for name in here)
    require(
        not here or (alone and LOCK_FILE in here) or _is_bundle(folder),
        f"{shown} holds other things ({first_few(here)}): name a new folder for the bundle.",
    )


def _is_bundle(folder: Path) -> bool:
    try:
        content = parse_json(_read(folder / MANIFEST, MOST_BUNDLE_MANIFEST_BYTES))
    except InputError:
        return False
    return isinstance(content, dict) and {"format", "protofission", "files"} <= set(content)


def _read(path: Path, most: int) -> bytes:
    try:
        return read_plain(path, most)
    except FileNotFoundError:
        raise InputError(f"{path.name} is missing.") from None
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror or error}.") from None
