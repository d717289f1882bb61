"""Encoders of open_clip: the vision tower of any of its models, by name and weights.

open_clip reads its own weights, from its cache; only `fetch` reaches the internet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from protofission.core.errors import InputError, printable, require
from protofission.core.options import FIXED
from protofission.models.encoders.base import Encoder, reason_of
from protofission.models.encoders.hub_cache import hub_offline
from protofission.models.encoders.preprocessing import Filter, Preprocessing
from protofission.models.encoders.timm_model import ImageModel
from protofission.system.optional_libraries import import_optional


@dataclass(frozen=True)
class OpenClip:
    """The vision tower of a model of open_clip, such as ViT-B-32/laion2b_s34b_b79k."""

    source: str = field(metadata={FIXED: True})
    """The model's name and the tag of its weights, as `open_clip.list_pretrained()` lists them,
    with a slash between them."""

    def __post_init__(self) -> None:
        name, slash, tag = self.source.rpartition("/")
        require(
            bool(name and slash and tag),
            f"{printable(self.source)} names no weights: give NAME/TAG, such as "
            "ViT-B-32/laion2b_s34b_b79k.",
        )

    def fetch(self) -> None:
        """Download the weights into open_clip's cache."""
        _create(self.source)

    def load(self, device: torch.device | None = None) -> Encoder:
        """Load the encoder with its weights onto a device."""
        library = import_optional("open_clip", "zoo", "An open_clip encoder")
        with hub_offline("zoo", "An open_clip encoder"):
            model = _create(self.source)
        preprocessing = _preprocessing(library.get_model_preprocess_cfg(model))
        encoder = ImageModel("open-clip", self.source, preprocessing, _Tower(model))
        encoder.measure()
        return encoder.freeze_on(device)


class _Tower(nn.Module):
    """The image half of a model: projected features, not normalized."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.visual = cast(nn.Module, model.visual)

    def forward(self, prepared: Tensor) -> Tensor:
        found = self.visual(prepared)
        return cast(Tensor, found[0] if isinstance(found, tuple) else found)


def _create(source: str) -> nn.Module:
    library = import_optional("open_clip", "zoo", "An open_clip encoder")
    name, _, tag = source.rpartition("/")
    try:
        with torch.random.fork_rng(devices=[]):
            return cast(nn.Module, library.create_model(name, pretrained=tag, precision="fp32"))
    except Exception as error:  # the library raises what its parts raise
        raise InputError(
            f"open_clip has no model {printable(source)} with its weights here "
            f"({reason_of(error)}): give NAME/TAG of open_clip.list_pretrained(), and fetch it by "
            "`protofission embed`."
        ) from None


def _preprocessing(config: dict[str, Any]) -> Preprocessing:
    """The preprocessing that open_clip states for a model."""
    size = config["size"]
    if isinstance(size, list | tuple):
        require(len(set(size)) == 1, f"The model takes images of {size}: only squares are known.")
        size = size[0]
    how = config.get("interpolation", "bicubic")
    require(how in get_args(Filter), f"The model resizes by {how}: bilinear and bicubic are known.")
    mean, deviation = (tuple(map(float, config[name])) for name in ("mean", "std"))
    mode = config.get("resize_mode") or "shortest"
    require(mode in ("shortest", "squash"), f"The model resizes by {mode}, which is not known.")
    return Preprocessing(size, size, 3, mean, deviation, how, mode == "squash")
