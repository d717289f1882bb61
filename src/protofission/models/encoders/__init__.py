"""Frozen image encoders, from images to features: one file for each kind, all in ENCODERS."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from protofission.core.errors import InputError, field_types, require, unknown, unknown_message
from protofission.models.encoders.base import Encoder, EncoderSpec
from protofission.models.encoders.efficientnet import PACKAGED, EfficientNetLite
from protofission.models.encoders.huggingface import Transformers
from protofission.models.encoders.onnx_network import Onnx
from protofission.models.encoders.open_clip_model import OpenClip
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.models.encoders.timm_model import Timm
from protofission.models.weight_files import packaged_weights
from protofission.system.json_files import as_type

__all__ = [
    "DEFAULT",
    "ENCODERS",
    "Encoder",
    "EncoderSpec",
    "fetch",
    "find_encoder",
    "kept_options",
    "kind_of",
    "spec_of",
]

ENCODERS: dict[str, type[EncoderSpec]] = {
    **dict.fromkeys(PACKAGED, EfficientNetLite),
    "own": OwnBackbone,
    "transformers": Transformers,
    "onnx": Onnx,
    "timm": Timm,
    "open-clip": OpenClip,
}
DEFAULT = "efficientnet-lite0"

NOT_KEPT = ("engine",)
"""Options of how an encoder is computed on one machine: a bundle is for any."""

SOURCES = {
    "onnx": "FILE",
    "open-clip": "NAME/TAG",
    "own": "RUN_OR_FILE_OR_PACKAGED_NAME",
    "timm": "NAME",
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
    if text in PACKAGED:
        return EfficientNetLite(text)
    kind, separator, source = text.partition(":")
    if not separator or kind not in ENCODERS:
        kind, source = _find_kind(text), text
    require(bool(source.strip()), f"{text!r} names no source: give {_form(kind)}.")
    require(
        kind not in PACKAGED, f"{kind} comes with its weights: leave out the source {source!r}."
    )
    return ENCODERS[kind](source)


def kind_of(spec: EncoderSpec) -> str:
    """The key in ENCODERS of a specification.

    Raises:
        InputError: it is of another class.
    """
    if isinstance(spec, EfficientNetLite):
        return spec.source
    for kind, known in ENCODERS.items():
        if type(spec) is known:
            return kind
    raise InputError(
        f"A {type(spec).__name__} is no encoder that a bundle can refer to: "
        f"give one of {', '.join(ENCODERS)}."
    )


def kept_options(spec: EncoderSpec) -> dict[str, Any]:
    """The options that a bundle keeps: all but the source, and those of one machine alone."""
    return {name: value for name, value in vars(spec).items() if name not in ("source", *NOT_KEPT)}


def spec_of(kind: str, source: str, options: dict[str, Any]) -> EncoderSpec:
    """The specification that `kind_of` and `kept_options` describe, read strictly."""
    if kind not in ENCODERS:
        raise unknown("encoder", kind, ENCODERS)
    names = field_types(ENCODERS[kind])
    missing = {name: None for name in NOT_KEPT if name in names}
    for name in missing:
        require(name not in options, f"encoder.options.{name} is not known.")
    fields = {**options, **missing, "source": source}
    return as_type(fields, ENCODERS[kind], "encoder.options")


def fetch(spec: EncoderSpec) -> None:
    """Download an encoder whose source is a name on the hub; loading never does."""
    if isinstance(spec, Transformers | Timm | OpenClip):
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
    return kind if kind in PACKAGED else f"{kind}:{SOURCES.get(kind, 'SOURCE')}"
