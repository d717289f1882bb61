"""The files of a bundle: their content, and a strict reader that runs no code from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
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
from protofission.models.adapters import Adapter, AdapterSpec
from protofission.models.encoders import EncoderSpec, spec_of
from protofission.models.heads import HeadSpec, head_spec_of
from protofission.models.model import Model
from protofission.models.weight_files import first_few
from protofission.system.digests import sha256_hex
from protofission.system.json_files import as_type, parse_json, to_json
from protofission.system.locks import LOCK_FILE
from protofission.system.partial_files import is_partial
from protofission.system.plain_files import read_plain
from protofission.triage.calibrated_model import CalibratedModel

FORMAT = 1
MANIFEST, MODEL, CALIBRATION = "bundle.json", "model.safetensors", "calibration.npy"
BUNDLE_PARTS = (MODEL, CALIBRATION)
MOST_BUNDLE_MANIFEST_BYTES = 2**26
"""Largest size of bundle.json."""
LARGEST_MODEL_SIZE = 2**20
"""Classes, prototypes of a class, or features: more are refused before room is made for them."""


@dataclass(frozen=True)
class EncoderReference:
    """The encoder of a bundle: kind, source and options to load it, and facts to check it by."""

    kind: str
    source: str
    options: dict[str, Any]
    describe: dict[str, Any]
    """The output of `Encoder.describe`."""

    def spec(self) -> EncoderSpec:
        """The specification that loads it."""
        return spec_of(self.kind, self.source, self.options)


@dataclass(frozen=True)
class Manifest:
    """The content of bundle.json."""

    format: int
    protofission: str
    known: int
    novel: int
    """Heads beside those of known classes; without cluster names they only make room."""
    class_names: tuple[str, ...]
    subclass_names: tuple[tuple[str, ...], ...]
    cluster_names: tuple[str, ...]
    head: HeadSpec
    adapter: AdapterSpec
    encoder: EncoderReference
    files: dict[str, str]
    """SHA-256 of each file."""
    card: dict[str, Any]

    def __post_init__(self) -> None:
        require(self.format == FORMAT, f"format = {self.format} is not known.")
        require(
            set(self.files) == set(BUNDLE_PARTS),
            f"it names the files {first_few(self.files)}, not {' and '.join(BUNDLE_PARTS)}.",
        )
        self.head.check()
        require(self.head.entry.can_bundle, f"a {self.head.kind} head is not for bundles.")
        inputs = as_type(self.encoder.describe.get("num_features"), int, "num_features")
        for name, size, least in (
            ("known", self.known, 1),
            ("novel", self.novel, 0),
            ("num_features", inputs, 1),
            ("head.prototypes", self.head.prototypes, 1),
            ("adapter.width", self.adapter.width, 1),
            ("adapter.hidden", self.adapter.hidden, 1),
        ):
            require(
                least <= size <= LARGEST_MODEL_SIZE,
                f"{name} = {size} must be from {least} to {LARGEST_MODEL_SIZE}.",
            )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the calibrated model's tensors by name, without allocating them."""
        inputs, heads = self.encoder.describe["num_features"], self.known + self.novel
        found: dict[str, tuple[int, ...]] = {"temperature": (), "threshold": ()}
        found |= dict.fromkeys(("model.backbone.mean", "model.backbone.deviation"), (inputs,))
        widths = (inputs, *self.adapter.widths)
        for place, (narrow, wide) in enumerate(pairwise(widths)):
            found[f"model.backbone.layers.{2 * place}.weight"] = (wide, narrow)
            found[f"model.backbone.layers.{2 * place}.bias"] = (wide,)
        head = self.head.entry.shapes(self.head, widths[-1], heads)
        return found | {f"model.head.{name}": shape for name, shape in head.items()}

    def calibrated_model(self) -> CalibratedModel:
        """Build the calibrated model, before its tensors are loaded."""
        generator = torch.Generator()
        body = self.adapter.build(self.encoder.describe["num_features"], generator)
        heads = self.known + self.novel
        head = self.head.build(body.num_features, heads, self.known, generator)
        return CalibratedModel(Model(body, head), self.known, clusters=bool(self.cluster_names))


def adapter_of(model: Model) -> Adapter:
    """The adapter of a model on features."""
    body = model.backbone
    if not isinstance(body, Adapter):
        raise InputError("A bundle wants a model on features: give one with an adapter.")
    return body


def specs_of(model: Model) -> tuple[AdapterSpec, HeadSpec]:
    """The specs that build the same model; the start of its training is left out."""
    return adapter_of(model).spec, head_spec_of(model.head)


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


def read_manifest(folder: Path) -> Manifest | int:
    """Read bundle.json; return its format instead, if that is a newer one."""
    content = parse_json(_read(folder / MANIFEST, MOST_BUNDLE_MANIFEST_BYTES))
    made_as = content.get("format") if isinstance(content, dict) else None
    if isinstance(made_as, int) and made_as > FORMAT:
        return made_as
    seal = content.pop("seal", None) if isinstance(content, dict) else None
    manifest = as_type(content, Manifest, "")
    require(seal == _seal(content), f"{MANIFEST} is not as it was saved.")
    return manifest


def seal_manifest(content: dict[str, Any]) -> bytes:
    """Write a manifest as JSON, with a digest of itself in it."""
    plain = json.loads(to_json(content))
    return to_json({**plain, "seal": _seal(plain)}).encode()


def _seal(content: Any) -> str:
    return sha256_hex(json.dumps(content, sort_keys=True).encode())


def read_parts(folder: Path, manifest: Manifest) -> tuple[CalibratedModel, NDArray[np.float32]]:
    """Read the calibrated model and the held-out scores, if their files are as they were saved."""
    parts = {name: _read(folder / name) for name in BUNDLE_PARTS}
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
    above = ("temperature", "model.backbone.deviation")
    odd = [
        name
        for name, value in tensors.items()
        if bool(value.isnan().any() if name == "threshold" else not value.isfinite().all())
        or (name in above and not bool((value > 0).all()))
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


def _read(path: Path, most: int | None = None) -> bytes:
    try:
        return read_plain(path, most)
    except FileNotFoundError:
        raise InputError(f"{path.name} is missing.") from None
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror or error}.") from None
