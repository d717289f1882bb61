"""Frozen image encoders, from images to features: one file for each kind, all in ENCODERS."""

from __future__ import annotations

import re
from pathlib import Path

from protofission.core.errors import InputError, require, unknown_message
from protofission.models.encoders.base import Encoder, EncoderSpec
from protofission.models.encoders.efficientnet import EfficientNetLite0
from protofission.models.encoders.huggingface import Transformers
from protofission.models.encoders.onnx_network import Onnx
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.models.weight_files import packaged_weights

__all__ = ["DEFAULT", "ENCODERS", "Encoder", "EncoderSpec", "fetch", "find_encoder"]

ENCODERS: dict[str, type[EncoderSpec]] = {
    "efficientnet-lite0": EfficientNetLite0,
    "own": OwnBackbone,
    "transformers": Transformers,
    "onnx": Onnx,
}
DEFAULT = "efficientnet-lite0"

SOURCES = {
    "onnx": "FILE",
    "own": "RUN_OR_FILE_OR_PACKAGED_NAME",
    "transformers": "FOLDER_OR_HUB_NAME",
}
"""Words for the source of a kind, which an error shows; SOURCE for other kinds."""

CHECKPOINTS = (".safetensors", ".pth", ".pt")
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def find_encoder(text: str) -> EncoderSpec:
    """Find an encoder by its name, by KIND:SOURCE, or by a source whose form tells the kind.

    Raises:
        InputError: if the text is none of these. The source itself is read when it is loaded.
    """
    if text == DEFAULT:
        return EfficientNetLite0()
    kind, separator, source = text.partition(":")
    if not separator or kind not in ENCODERS:
        kind, source = _find_kind(text), text
    require(bool(source.strip()), f"{text!r} names no source: give {_form(kind)}.")
    return ENCODERS[kind](source)


def fetch(spec: EncoderSpec) -> None:
    """Download an encoder whose source is a name on the hub; loading never does."""
    if isinstance(spec, Transformers):
        spec.fetch()


def _find_kind(source: str) -> str:
    """The kind of encoder that a file, a folder or a name holds."""
    path = Path(source).expanduser()
    if source in ENCODERS:
        raise InputError(f"{source!r} names no source: give {_form(source)}.")
    if path.is_dir():
        for kind, file in (("transformers", "config.json"), ("own", "experiment.json")):
            if (path / file).is_file():
                return kind
    elif path.exists() or ":" not in source:
        if path.suffix == ".onnx":
            return "onnx"
        if path.suffix in CHECKPOINTS or source in packaged_weights():
            return "own"
        if _HUB_NAME.fullmatch(source) and not path.exists():
            return "transformers"
    forms = [_form(kind) for kind in sorted(ENCODERS)]
    raise InputError(unknown_message("encoder", source, forms, [*ENCODERS, *packaged_weights()]))


def _form(kind: str) -> str:
    """The form of the names of a kind, as an error shows it."""
    return kind if kind == DEFAULT else f"{kind}:{SOURCES.get(kind, 'SOURCE')}"
