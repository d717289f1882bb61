"""Encoders of timm: any of its models by name, without its classifier.

timm reads its own weights, from its cache; only `fetch` reaches the internet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from protofission.core.errors import InputError, printable, require
from protofission.core.options import FIXED
from protofission.models.encoders.base import (
    CPU_CHUNK,
    Encoder,
    count_features,
    encoder_fingerprint,
    probe_images,
    reason_of,
)
from protofission.models.encoders.hub_cache import hub_offline
from protofission.models.encoders.preprocessing import Filter, Preprocessing
from protofission.system.optional_libraries import import_optional


@dataclass(frozen=True)
class Timm:
    """A model of timm, such as vit_small_patch14_dinov2.lvd142m."""

    source: str = field(metadata={FIXED: True})
    """The model's name in timm, as `timm.list_models(pretrained=True)` lists them."""

    def fetch(self) -> None:
        """Download the weights into timm's cache."""
        _create(self.source)

    def load(self, device: torch.device | None = None) -> Encoder:
        """Load the encoder with its weights onto a device."""
        library = import_optional("timm", "zoo", "A timm encoder")
        with hub_offline("zoo", "A timm encoder"):
            model = _create(self.source)
        preprocessing = _preprocessing(library.data.resolve_model_data_config(model))
        encoder = ImageModel("timm", self.source, preprocessing, model)
        encoder.measure()
        return encoder.freeze_on(device)


class ImageModel(Encoder):
    """A network of another library that maps prepared images to features."""

    def __init__(
        self, kind: str, source: str, preprocessing: Preprocessing, network: nn.Module
    ) -> None:
        super().__init__(source, preprocessing, 0, CPU_CHUNK)
        self.kind = kind
        self.network = network.eval()

    def measure(self) -> None:
        """Try the network: count its features, refuse what are none, and take its fingerprint."""
        images = probe_images(self.preprocessing)
        try:
            with torch.no_grad():
                given, again = self(images), self(images)
        except Exception as error:  # the library raises what its parts raise
            raise InputError(
                f"{printable(self.source)} does not take images of {self.size} x {self.size} "
                f"({reason_of(error)}): give another model."
            ) from None
        self.num_features = count_features(self.source, given, again, len(images))
        self.fingerprint = encoder_fingerprint(
            sorted(self.network.state_dict().items()), self.preprocessing, library=self.kind
        )

    def forward(self, prepared: Tensor) -> Tensor:
        """(n, channels, size, size) to (n, D)."""
        return cast(Tensor, self.network(prepared)).float()


def _create(name: str) -> nn.Module:
    library = import_optional("timm", "zoo", "A timm encoder")
    try:
        with torch.random.fork_rng(devices=[]):
            return cast(nn.Module, library.create_model(name, pretrained=True, num_classes=0))
    except Exception as error:  # the library raises what its parts raise
        raise InputError(
            f"timm has no model {printable(name)} with its weights here ({reason_of(error)}): give "
            "a name of timm.list_models(pretrained=True), and fetch it by `protofission embed`."
        ) from None


def _preprocessing(config: dict[str, Any]) -> Preprocessing:
    """The preprocessing that timm states for a model."""
    channels, size, other = config["input_size"]
    require(size == other, f"The model takes images of {size} x {other}: only squares are known.")
    how = config.get("interpolation", "bicubic")
    require(how in get_args(Filter), f"The model resizes by {how}: bilinear and bicubic are known.")
    crop = float(config.get("crop_pct") or 1.0)
    mode = config.get("crop_mode") or "center"
    require(mode in ("center", "squash"), f"The model crops by {mode}, which is not known.")
    return Preprocessing(
        size,
        max(size, int(size / crop)),
        channels,
        tuple(map(float, config["mean"])),
        tuple(map(float, config["std"])),
        how,
        mode == "squash",
    )
