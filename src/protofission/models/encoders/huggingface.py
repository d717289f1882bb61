"""Vision encoders of the transformers library, from a local folder or the hub.

The library gets a configuration and tensors, never the folder of a model: no code of a model is
run, weights are read from safetensors files only, and a file cannot choose how a network is
computed. Only `fetch` reaches the internet.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from protofission.core.errors import InputError, check_choices, printable, quoted, require, unknown
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
from protofission.models.encoders.huggingface_files import (
    find_model_folder,
    read_config,
    read_model_tensors,
    read_network_config,
)
from protofission.models.encoders.preprocessing import (
    LARGEST_SIDE,
    STANDARDS,
    Pixels,
    Preprocessing,
)
from protofission.models.encoders.preprocessor_config import read_preprocessing
from protofission.models.weight_files import first_few
from protofission.system.optional_libraries import import_optional

IGNORED_FIELDS = {
    "attn_implementation",
    "auto_map",
    "dtype",
    "experts_implementation",
    "fusion_config",
    "torch_dtype",
}
"""Fields of a configuration that name code to import or kernels to download. They are ignored, as
are names that begin with an underscore, which are the library's own."""
Choice = Literal["pooled", "cls", "mean"]


@dataclass(frozen=True)
class Transformers:
    """A vision encoder of the transformers library, such as CLIP's, SigLIP's, DINOv2 or ViT."""

    source: str = field(metadata={FIXED: True})
    """A folder that save_pretrained wrote, or the name of a model on the hub."""
    output: Choice = "pooled"
    """The network's own pooled output; the class token; or the mean over the patches. Without a
    pooled output it is the class token, and without that the mean."""
    pixels: Pixels | None = None
    """Data set whose mean and deviation standardize the pixels; by default those in the model's
    preprocessing file."""
    size: int | None = None
    """Side of the images that the network takes, if not the one in its files."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.pixels is not None and self.pixels not in STANDARDS:
            raise unknown("pixels", self.pixels, STANDARDS)
        require(
            self.size is None or 1 <= self.size <= LARGEST_SIDE,
            f"size = {self.size}: give 1 to {LARGEST_SIDE} pixels.",
        )

    def fetch(self) -> None:
        """Download the model, if the source is a name on the hub."""
        with _quiet(import_optional("transformers", "hub", "A transformers encoder")):
            find_model_folder(self.source, download=True)

    def load(self, device: torch.device | None = None) -> Encoder:
        """Load the encoder with its weights onto a device."""
        library = import_optional("transformers", "hub", "A transformers encoder")
        folder = find_model_folder(self.source)
        with _quiet(library), hub_offline("hub", "A transformers encoder"):
            tower = _load_tower(library, folder, self)
            preprocessing = self._find_preprocessing(folder, tower.config)
            encoder = TransformersEncoder(self, preprocessing, tower.eval())
            encoder.measure()
        encoder.fingerprint = encoder_fingerprint(
            read_model_tensors(folder),
            preprocessing,
            config=read_network_config(folder),
            output=encoder.output,
        )
        return encoder.freeze_on(device)

    def _find_preprocessing(self, folder: Path, config: Any) -> Preprocessing:
        """The preprocessing by the options `pixels` and `size`, else by the model's files."""
        channels = getattr(config, "num_channels", 3)
        if self.pixels is None:
            own = read_preprocessing(folder, channels)
            return own if self.size is None else own.scaled_to(self.size)
        size = self.size or _side(getattr(config, "image_size", None))
        if size is None:
            raise InputError(f"{printable(self.source)} does not say its image size: set size=.")
        return Preprocessing.standard(size, channels, self.pixels)


class TransformersEncoder(Encoder):
    """The vision tower of a model."""

    kind = "transformers"

    def __init__(self, spec: Transformers, preprocessing: Preprocessing, tower: nn.Module) -> None:
        super().__init__(spec.source, preprocessing, 0, CPU_CHUNK)
        self.network = tower
        self.output: Choice = spec.output
        self.leading = 0
        """The number of tokens before those of the patches."""
        config: Any = tower.config
        self.side = _side(getattr(config, "patch_size", None))
        taken = inspect.signature(tower.forward).parameters
        other = self.size != _side(getattr(config, "image_size", None))
        self.options = (
            {"interpolate_pos_encoding": True}
            if other and "interpolate_pos_encoding" in taken
            else {}
        )

    def measure(self) -> None:
        """Try the network: choose its output, count its features, and refuse what are none."""
        images, shown = probe_images(self.preprocessing), printable(self.source)
        try:
            with torch.no_grad():
                given, again = self._run(images), self._run(images)
        except Exception as error:  # the library raises what its parts raise
            raise InputError(
                f"{shown} does not take images of {self.size} x {self.size} ({reason_of(error)}): "
                "set size= to what it was trained with."
            ) from None
        maps = given.last_hidden_state
        if maps.ndim == 3 and self.side:
            self.leading = max(0, maps.shape[1] - (self.size // self.side) ** 2)
        if self.output == "pooled" and _pooled_output(given) is None:
            self.output = "cls" if self.leading else "mean"
        require(
            self.output != "cls" or self.leading > 0,
            f"{shown} has no class token: set output=pooled or output=mean.",
        )
        self.num_features = count_features(
            self.source, self._features_of(given), self._features_of(again), len(images)
        )

    def forward(self, prepared: Tensor) -> Tensor:
        """(n, channels, size, size) to (n, D)."""
        return self._features_of(self._run(prepared))

    def _run(self, prepared: Tensor) -> Any:
        return self.network(pixel_values=prepared, return_dict=True, **self.options)

    def _features_of(self, given: Any) -> Tensor:
        """(n, D) features of what the network gives, by `output`."""
        if self.output == "pooled":
            return cast(Tensor, _pooled_output(given)).flatten(1).float()
        maps = cast(Tensor, given.last_hidden_state)
        if self.output == "cls":
            return maps[:, 0].float()
        patches = maps.flatten(2).transpose(1, 2) if maps.ndim == 4 else maps[:, self.leading :]
        return patches.float().mean(1)

    def describe(self) -> dict[str, Any]:
        """As of every encoder, with its output."""
        return {**super().describe(), "output": self.output}


def _pooled_output(given: Any) -> Tensor | None:
    """The pooled output, which has one of two names."""
    found = getattr(given, "pooler_output", None)
    return getattr(given, "image_embeds", None) if found is None else found


def _load_tower(library: Any, folder: Path, spec: Transformers) -> nn.Module:
    """The vision tower of a model, with all of its weights."""
    shown = printable(spec.source)
    stated, tensors = read_config(folder), dict(read_model_tensors(folder))
    require(
        stated.get("quantization_config") is None,
        f"{shown} holds quantized weights: give the model in full.",
    )
    usual = "timm_wrapper" if "pretrained_cfg" in stated else ""  # timm's files have no type
    kind = str(stated.get("model_type", usual))
    require(
        kind in library.CONFIG_MAPPING,
        f"{shown} is of the type {quoted(kind)}, which transformers does not know: update it, "
        "or give another model.",
    )
    try:
        config = library.CONFIG_MAPPING[kind].from_dict(_without_ignored(stated))
        model, found = library.MODEL_MAPPING[type(config)].from_pretrained(
            None,
            config=config,
            state_dict=tensors,
            local_files_only=True,
            output_loading_info=True,
            dtype=torch.float32,
        )
    except Exception as error:  # the library raises what its parts raise
        raise InputError(
            f"{shown} cannot be loaded by transformers ({reason_of(error)}): give a folder that "
            "save_pretrained wrote, with its model.safetensors."
        ) from None
    prefix = "vision_model." if hasattr(model, "vision_model") else ""
    tower = model.vision_model if prefix else model
    require(
        "pixel_values" in inspect.signature(tower.forward).parameters,
        f"{shown} holds a {type(model).__name__}, which is no vision encoder: give another.",
    )
    absent = sorted(name for name in found["missing_keys"] if name.startswith(prefix))
    body = [name for name in absent if "pooler" not in name.split(".")]
    require(not body, f"{shown} lacks weights of its network ({first_few(body)}): get it again.")
    require(
        not absent or spec.output != "pooled",
        f"{shown} lacks the weights of its pooled output ({first_few(absent)}): set output=cls or "
        "output=mean.",
    )
    return cast(nn.Module, tower)


def _without_ignored(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration, and those nested in it, without the ignored fields."""
    return {
        name: _without_ignored(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name not in IGNORED_FIELDS and not name.startswith("_")
    }


def _side(value: Any) -> int | None:
    """The side of a square, given as one number or as two equal ones; None for others."""
    if isinstance(value, list | tuple) and len(set(value)) == 1:
        value = value[0]
    return value if isinstance(value, int) else None


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Silence the library's warnings and progress bars, and keep the random generator as it is."""
    log = library.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        log.set_verbosity(log.CRITICAL)
        log.disable_progress_bar()
        try:
            yield
        finally:
            log.set_verbosity(level)
            if bars:
                log.enable_progress_bar()
