"""Vision encoders of the transformers library, from a local folder or the hub.

The library is given a configuration and tensors, never the folder of a model: no code of a model is
run, weights are read from safetensors files only, and how a network is computed is not the file's
to say. Only `fetch` reaches the network.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from protofission.core.errors import InputError, check_choices, printable, require, unknown
from protofission.core.options import FIXED
from protofission.models.encoders.base import (
    Encoder,
    check_features,
    fingerprint_of,
    probe,
    reason_of,
)
from protofission.models.encoders.preprocessing import LARGEST, STANDARDS, Pixels, Preprocessing
from protofission.models.encoders.stated import stated_preprocessing
from protofission.models.weight_files import first_few
from protofission.system.json_files import read_json, typed
from protofission.system.optional_libraries import needed
from protofission.system.plain_files import open_plain

CHUNK = 16
INDEX = "model.safetensors.index.json"
FILES = (
    "config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "model*.safetensors",
    INDEX,
)
"""What is fetched from the hub."""
PATIENCE = 5
"""Seconds that the hub has for an answer."""
OURS = {
    "attn_implementation",
    "auto_map",
    "dtype",
    "experts_implementation",
    "fusion_config",
    "torch_dtype",
}
"""What a configuration may say of code to import and kernels to download, and is not asked. Names
that begin with an underscore are the library's own, and are not asked either."""
PASSING = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""What a configuration says of how it was saved, and not of the network."""

Choice = Literal["pooled", "cls", "mean"]


@dataclass(frozen=True)
class Transformers:
    """A vision encoder of the transformers library, such as CLIP's, SigLIP's, DINOv2 or ViT."""

    source: str = field(metadata={FIXED: True})
    """A folder that save_pretrained wrote, or the name of a model on the hub."""
    output: Choice = "pooled"
    """The network's own pooled output; the class token; or the mean over the patches. A network
    without a pooled output gives its class token, and one without that the mean."""
    pixels: Pixels | None = None
    """By whose mean and deviation the pixels are standardised, in the place of what the model's
    preprocessing file states."""
    size: int | None = None
    """Side of the images that the network takes, if not what its files state."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.pixels is not None and self.pixels not in STANDARDS:
            raise unknown("pixels", self.pixels, STANDARDS)
        require(
            self.size is None or 1 <= self.size <= LARGEST,
            f"size = {self.size}: give 1 to {LARGEST} pixels.",
        )

    def fetch(self) -> None:
        """Download the model, if the source is a name on the hub."""
        with _quiet(needed("transformers", "clip", "A transformers encoder")):
            _folder(self.source, download=True)

    def load(self, device: torch.device | None = None) -> Encoder:
        """The encoder with its weights, on a device."""
        library = needed("transformers", "clip", "A transformers encoder")
        folder = _folder(self.source)
        with _quiet(library), _offline():
            tower = _tower(library, folder, self)
            preprocessing = self._preprocessing(folder, tower.config)
            encoder = TransformersEncoder(self, preprocessing, tower.eval())
            encoder.measure()
        encoder.fingerprint = fingerprint_of(
            _tensors(folder), preprocessing, config=_lasting(folder), output=encoder.output
        )
        return encoder.placed(device)

    def _preprocessing(self, folder: Path, config: Any) -> Preprocessing:
        channels = getattr(config, "num_channels", 3)
        if self.pixels is None:
            stated = stated_preprocessing(folder, channels)
            return stated if self.size is None else stated.scaled_to(self.size)
        size = self.size or _side(getattr(config, "image_size", None))
        if size is None:
            raise InputError(f"{printable(self.source)} does not say its image size: set size=.")
        return Preprocessing.standard(size, channels, self.pixels)


class TransformersEncoder(Encoder):
    """The vision part of a model."""

    kind = "transformers"

    def __init__(self, spec: Transformers, preprocessing: Preprocessing, tower: nn.Module) -> None:
        super().__init__(spec.source, preprocessing, 0, CHUNK)
        self.network = tower
        self.output: Choice = spec.output
        self.leading = 0
        """Tokens before those of the patches."""
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
        """Find out what the network gives, and refuse what is not there or are no features."""
        images, shown = probe(self.preprocessing), printable(self.source)
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
        if self.output == "pooled" and _pooled(given) is None:
            self.output = "cls" if self.leading else "mean"
        require(
            self.output != "cls" or self.leading > 0,
            f"{shown} has no class token: set output=pooled or output=mean.",
        )
        self.num_features = check_features(
            self.source, self._chosen(given), self._chosen(again), len(images)
        )

    def forward(self, prepared: Tensor) -> Tensor:
        """(n, channels, size, size) to (n, D)."""
        return self._chosen(self._run(prepared))

    def _run(self, prepared: Tensor) -> Any:
        return self.network(pixel_values=prepared, return_dict=True, **self.options)

    def _chosen(self, given: Any) -> Tensor:
        if self.output == "pooled":
            return cast(Tensor, _pooled(given)).flatten(1).float()
        maps = cast(Tensor, given.last_hidden_state)
        if self.output == "cls":
            return maps[:, 0].float()
        patches = maps.flatten(2).transpose(1, 2) if maps.ndim == 4 else maps[:, self.leading :]
        return patches.float().mean(1)

    def describe(self) -> dict[str, Any]:
        """What it is, in plain JSON values."""
        return {**super().describe(), "output": self.output}


def _pooled(given: Any) -> Tensor | None:
    """The pooled output, which models call by one of two names."""
    found = getattr(given, "pooler_output", None)
    return getattr(given, "image_embeds", None) if found is None else found


def _tower(library: Any, folder: Path, spec: Transformers) -> nn.Module:
    """The vision part of a model, with all of its weights."""
    shown = printable(spec.source)
    stated, tensors = _stated(folder), dict(_tensors(folder))
    require(
        stated.get("quantization_config") is None,
        f"{shown} holds quantized weights: give the model in full.",
    )
    usual = "timm_wrapper" if "pretrained_cfg" in stated else ""  # timm's files state no type
    kind = str(stated.get("model_type", usual))
    require(
        kind in library.CONFIG_MAPPING,
        f"{shown} is of the type {printable(kind)!r}, which transformers does not know: update it, "
        "or give another model.",
    )
    try:
        config = library.CONFIG_MAPPING[kind].from_dict(_asked(stated))
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


def _folder(source: str, *, download: bool = False) -> Path:
    """The folder of a model: the source, or where the hub's files are kept."""
    path, shown = Path(source).expanduser(), printable(source)
    if path.is_dir():
        return path
    require(
        not path.exists() and re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", source) is not None,
        f"{shown} is neither a folder nor a hub name: give a folder that save_pretrained wrote.",
    )
    hub = needed("huggingface_hub", "clip", "A transformers encoder")
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


def _parts(folder: Path) -> set[str]:
    """The files that hold the tensors of a model in several files."""
    found = read_json(folder / INDEX, dict[str, Any]).get("weight_map")
    return set(typed(found, dict[str, str], f"weight_map of {INDEX}").values())


def _tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a model's files by name, as they are stored.

    Their names in the loaded network may change with the library's version.
    """
    try:
        files = {"model.safetensors"}
        if not (folder / "model.safetensors").exists():
            files = _parts(folder)
        homes: dict[str, str] = {}
        for file in sorted(files):
            open_plain(folder / file).close()  # a pipe would be waited for
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


def _stated(folder: Path) -> dict[str, Any]:
    """What config.json says."""
    path = folder / "config.json"
    try:
        return read_json(path, dict[str, Any])
    except (OSError, InputError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error).removesuffix(".")
        raise InputError(
            f"{printable(str(path))} cannot be read ({why}): give a folder that save_pretrained "
            "wrote."
        ) from None


def _asked(stated: dict[str, Any]) -> dict[str, Any]:
    """A configuration and those in it without what is not the file's to say."""
    return {
        name: _asked(value) if isinstance(value, dict) else value
        for name, value in stated.items()
        if name not in OURS and not name.startswith("_")
    }


def _lasting(folder: Path) -> dict[str, Any]:
    """The configuration without what may change when a model is saved again."""
    return {name: value for name, value in _stated(folder).items() if name not in PASSING}


def _side(value: Any) -> int | None:
    """The side of a square that may be given as one number or two."""
    if isinstance(value, list | tuple) and len(set(value)) == 1:
        value = value[0]
    return value if isinstance(value, int) else None


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Within it, the library neither speaks nor draws bars nor moves the random generator."""
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


@contextmanager
def _offline() -> Iterator[None]:
    """Within it, nothing is asked of the hub."""
    state = needed("huggingface_hub", "clip", "A transformers encoder").constants
    before, state.HF_HUB_OFFLINE = state.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        state.HF_HUB_OFFLINE = before
