"""Read the preprocessing of a Hugging Face model from its preprocessor_config.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from protofission.core.errors import InputError, printable
from protofission.models.encoders.preprocessing import STANDARDS, Filter, Preprocessing
from protofission.system.json_files import as_type, read_json

FILTERS: dict[int, Filter] = {2: "bilinear", 3: "bicubic"}
"""Filters by Pillow's numbers."""
SHORT_EDGE = {"Bit", "CLIP", "ChineseCLIP", "ConvNext", "MobileNetV1"}
SQUARE = {"Beit", "Blip", "DINOv3ViT", "DeiT", "Pvt", "Siglip", "ViT"}
"""Processors that resize, crop, rescale and standardize, and do nothing else. A size of one number
is that of the short edge in SHORT_EDGE, and that of both edges in SQUARE."""
SWITCHES = {"do_resize", "do_center_crop", "do_rescale", "do_normalize"}
NO_MATTER = {"do_convert_rgb", "do_reduce_labels"}
"""Switches that change nothing here: images are RGB already, and labels are not read."""
WARPED_FROM = 384
"""The size from which ConvNext's processor squashes images instead of cropping them."""


def read_preprocessing(folder: Path, channels: int) -> Preprocessing:
    """Read preprocessor_config.json, or the image part of processor_config.json.

    Raises:
        InputError: if there is none, or if it asks for something that is not known here.
    """
    shown = printable(str(folder))
    remedy = f"state it yourself by pixels= ({', '.join(STANDARDS)})"
    try:
        config = _read_config(folder)
        if config is not None:
            return _to_preprocessing(config, channels)
    except KeyError as missing:
        why = f"{missing.args[0]} is missing"
    except (TypeError, ValueError, AttributeError, OSError) as error:
        why = str(error)
    else:
        raise InputError(f"{shown} has no preprocessor_config.json: add it, or {remedy}.")
    raise InputError(
        f"The preprocessing file of {shown} cannot be followed ({printable(why)[:200]}): {remedy}."
    )


def _read_config(folder: Path) -> dict[str, Any] | None:
    """The fields of a folder's file, without those that are null: null means the default."""
    for name, part in (("preprocessor_config.json", None), ("processor_config.json", "image")):
        if (folder / name).is_file():
            content = read_json(folder / name, dict[str, Any])
            config = content if part is None else content.get(f"{part}_processor")
            if config is not None:
                config = as_type(config, dict[str, Any], name)
                return {key: value for key, value in config.items() if value is not None}
    return None


def _to_preprocessing(config: dict[str, Any], channels: int) -> Preprocessing:
    named = str(config.get("image_processor_type", config.get("feature_extractor_type")))
    kind = re.sub(r"(ImageProcessor|FeatureExtractor)(Fast|Pil)?$", "", named)
    if kind not in SHORT_EDGE | SQUARE:
        raise ValueError(f"the type {named} is not known")
    for name, value in config.items():
        if name.startswith("do_") and value and name not in SWITCHES | NO_MATTER:
            raise ValueError(f"{name} is not known")
    if (resample := config.get("resample")) not in FILTERS:
        raise ValueError(f"resample = {resample} is not known")
    resized, crop, squash = _sizes(config, kind)
    scale = 255 * config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 255
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)
    if config.get("do_normalize", True):
        mean, deviation = _numbers(config["image_mean"]), _numbers(config["image_std"])
    return Preprocessing(
        size=crop,
        resized=resized,
        channels=channels,
        mean=tuple(value / scale for value in mean),
        deviation=tuple(value / scale for value in deviation),
        filter=FILTERS[resample],
        squash=squash,
    )


def _sizes(config: dict[str, Any], kind: str) -> tuple[int, int, bool]:
    """The size to resize to, the size to crop to, and whether the long edge is squashed.

    If the file resizes nothing, images are resized to cover the crop; if it crops nothing, they
    are cropped to a square.
    """
    crop = None
    if config.get("do_center_crop", "crop_size" in config):
        crop = _edge(config["crop_size"])
    if not config.get("do_resize", True) and crop is not None:
        return crop, crop, False
    size = config["size"]
    by_name = {k: v for k, v in size.items() if v is not None} if isinstance(size, dict) else {}
    if "longest_edge" in by_name:
        raise ValueError("longest_edge is not known")
    squash = "shortest_edge" not in by_name if by_name else kind in SQUARE
    edge = int(by_name["shortest_edge"]) if "shortest_edge" in by_name else _edge(size)
    if kind == "ConvNext":
        warped = edge >= WARPED_FROM
        return edge if warped else int(edge / config.get("crop_pct", 224 / 256)), edge, warped
    return edge, crop or edge, squash


def _edge(size: Any) -> int:
    """The side of a square that is given as one number or as height and width."""
    sides = {size["height"], size["width"]} if isinstance(size, dict) else {size}
    if len(sides) != 1:
        raise ValueError(f"{size} is no square")
    return int(sides.pop())


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(map(float, value)) if isinstance(value, list) else (float(value),)
