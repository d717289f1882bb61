"""A backbone of this package as an encoder: of a finished run, packaged, or from a checkpoint."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from protofission.core.errors import InputError, printable, require, unknown
from protofission.core.options import FIXED
from protofission.models.backbones import (
    BACKBONES,
    PIXELS,
    Backbone,
    BackboneSpec,
    find_backbone,
)
from protofission.models.backbones import Pixels as BackbonePixels
from protofission.models.checkpoints import check_origin, compare, load_backbone
from protofission.models.encoders.base import Encoder, encoder_fingerprint
from protofission.models.encoders.preprocessing import LARGEST_SIDE, Preprocessing
from protofission.models.residual_blocks import Stem
from protofission.models.weight_files import read_card, read_tensors
from protofission.system.json_files import fill_fields

SIZES = {
    "digits": 8,
    "mnist": 28,
    "fashion-mnist": 28,
    "cifar10": 32,
    "cifar100": 32,
    "imagenet100": 224,
}
"""Side of the images of each data set."""
CHUNK_PIXELS = 32_768
"""Pixels per chunk: 32 images of 32 x 32."""


@dataclass(frozen=True)
class OwnBackbone:
    """A residual network of this package."""

    source: str = field(metadata={FIXED: True})
    """A finished run, a packaged name, or a checkpoint file."""
    backbone: str | None = None
    """A name of protofission.models.backbones.BACKBONES, for files that do not tell theirs."""
    stem: Stem | None = None
    """Its first layer, if not the backbone's default."""
    pixels: BackbonePixels | None = None
    """Data set whose mean and deviation standardize its pixels; by default the backbone's."""
    size: int | None = None
    """Side of the images that it takes; by default that of the images it was trained on where this
    is known, else 32, or 224 for ImageNet's stem."""

    def __post_init__(self) -> None:
        require(bool(self.source.strip()), "The source is empty: give a run, a file or a name.")
        if self.backbone is not None:
            find_backbone(self.backbone)
        if self.pixels is not None and self.pixels not in PIXELS:
            raise unknown("pixels", self.pixels, PIXELS)
        require(
            self.size is None or 1 <= self.size <= LARGEST_SIDE,
            f"size = {self.size}: give 1 to {LARGEST_SIDE} pixels.",
        )

    def load(self, device: torch.device | None = None) -> Encoder:
        """Load the encoder with its weights onto a device."""
        read_tensors(self.source)  # first: its errors say what is wrong with a source
        origin = read_card(self.source)
        spec = self._find_spec(origin)
        backbone = _build(spec, self.source)
        load_backbone(backbone, self.source)
        usual = 224 if spec.stem == "imagenet" else 32
        size = self.size or SIZES.get(str(origin.get("dataset")), usual)
        preprocessing = Preprocessing(size, size, _input_channels(backbone))
        encoder = OwnBackboneEncoder(self.source, preprocessing, backbone)
        encoder.fingerprint = encoder_fingerprint(
            sorted(backbone.state_dict().items()), preprocessing, backbone=_to_json(spec)
        )
        return encoder.freeze_on(device)

    def _find_spec(self, origin: dict[str, Any]) -> BackboneSpec:
        """The network of the weights, by their card or by the options."""
        shown = printable(self.source)
        if self.backbone is not None:
            spec = find_backbone(self.backbone)
        else:
            require(
                "backbone" in origin,
                f"{shown} does not say what network it is of, or is damaged: set backbone= to one "
                f"of {', '.join(sorted(BACKBONES))}.",
            )
            spec = _from_json(origin["backbone"], shown)
        if self.stem is not None:
            spec = dataclasses.replace(spec, stem=self.stem)
        if self.pixels is not None:
            spec = dataclasses.replace(spec, pixels=self.pixels)
        check_origin(spec, self.source)
        return spec


class OwnBackboneEncoder(Encoder):
    """A backbone, which standardizes the pixels itself."""

    kind = "own"

    def __init__(self, source: str, preprocessing: Preprocessing, backbone: Backbone) -> None:
        chunk = max(4, CHUNK_PIXELS // preprocessing.size**2)
        super().__init__(source, preprocessing, backbone.num_features, chunk)
        self.backbone = backbone
        self.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, prepared: Tensor) -> Tensor:
        """(n, channels, size, size) to (n, D)."""
        return cast(Tensor, self.backbone(prepared))


def _from_json(fields: dict[str, Any], shown: str) -> BackboneSpec:
    """A specification from its fields in JSON; an earlier version may have had fewer."""
    try:
        found = fill_fields(BackboneSpec(), fields, "backbone")
        require("blocks" in fields, "backbone.blocks is missing.")
        return found
    except InputError:
        raise InputError(
            f"{shown} describes no backbone that this version knows: set backbone=, or give "
            "another run or file."
        ) from None


def _to_json(spec: BackboneSpec) -> dict[str, Any]:
    """A specification in JSON, without the weights that it started from."""
    return {**dataclasses.asdict(spec), "blocks": list(spec.blocks), "weights": None}


def _build(spec: BackboneSpec, source: str) -> Backbone:
    """Build a backbone for color images, or for gray ones if the weights are for these."""
    backbone = spec.build(3, torch.Generator())
    for _, found, wanted in compare(backbone, source).misshapen:
        if len(found) == 4 and found == (wanted[0], 1, *wanted[2:]):
            return spec.build(1, torch.Generator())
    return backbone


def _input_channels(backbone: Backbone) -> int:
    """The channels of the images that a backbone takes."""
    first = next(layer for layer in backbone.modules() if isinstance(layer, nn.Conv2d))
    return first.in_channels
