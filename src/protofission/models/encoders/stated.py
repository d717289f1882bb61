"""The preprocessing that a model's own file states."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from protofission.core.errors import InputError, printable
from protofission.models.encoders.preprocessing import STANDARDS, Filter, Preprocessing
from protofission.system.json_files import read_json, typed

FILTERS: dict[int, Filter] = {2: "bilinear", 3: "bicubic"}
"""By Pillow's numbers."""
SHORT_EDGE = {"Bit", "CLIP", "ChineseCLIP", "ConvNext", "MobileNetV1"}
SQUARE = {"Beit", "Blip", "DINOv3ViT", "DeiT", "Pvt", "Siglip", "ViT"}
"""Processors that resize, crop, rescale and standardise, and do nothing else. A size of one number
is the short edge's with some, and that of both edges with others."""
SWITCHES = {"do_resize", "do_center_crop", "do_rescale", "do_normalize"}
NO_MATTER = {"do_convert_rgb", "do_reduce_labels"}
"""Switches for what images of ours are already, or do not have."""
WARPED_FROM = 384
"""The size from which ConvNext's processor squashes images in the place of cropping them."""


def stated_preprocessing(folder: Path, channels: int) -> Preprocessing:
    """What preprocessor_config.json states, or the image part of processor_config.json.

    Raises:
        InputError: if there is none, or if it asks for something that is not known here.
    """
    shown = printable(str(folder))
    remedy = f"state it yourself by pixels= ({', '.join(STANDARDS)})"
    try:
        stated = _read(folder)
        if stated is not None:
            return _followed(stated, channels)
    except KeyError as missing:
        why = f"{missing.args[0]} is missing"
    except (TypeError, ValueError, AttributeError, OSError) as error:
        why = str(error)
    else:
        raise InputError(f"{shown} has no preprocessor_config.json: add it, or {remedy}.")
    raise InputError(
        f"The preprocessing file of {shown} cannot be followed ({printable(why)[:200]}): {remedy}."
    )


def _read(folder: Path) -> dict[str, Any] | None:
    """What is stated; null, by which newer files mean the usual, is left out."""
    for name, part in (("preprocessor_config.json", None), ("processor_config.json", "image")):
        if (folder / name).is_file():
            content = read_json(folder / name, dict[str, Any])
            stated = content if part is None else content.get(f"{part}_processor")
            if stated is not None:
                stated = typed(stated, dict[str, Any], name)
                return {key: value for key, value in stated.items() if value is not None}
    return None


def _followed(stated: dict[str, Any], channels: int) -> Preprocessing:
    named = str(stated.get("image_processor_type", stated.get("feature_extractor_type")))
    kind = re.sub(r"(ImageProcessor|FeatureExtractor)(Fast|Pil)?$", "", named)
    if kind not in SHORT_EDGE | SQUARE:
        raise ValueError(f"the type {named} is not known")
    for name, value in stated.items():
        if name.startswith("do_") and value and name not in SWITCHES | NO_MATTER:
            raise ValueError(f"{name} is not known")
    if (resample := stated.get("resample")) not in FILTERS:
        raise ValueError(f"resample = {resample} is not known")
    resized, crop, squash = _sizes(stated, kind)
    scale = 255 * stated.get("rescale_factor", 1 / 255) if stated.get("do_rescale", True) else 255
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)
    if stated.get("do_normalize", True):
        mean, deviation = _numbers(stated["image_mean"]), _numbers(stated["image_std"])
    return Preprocessing(
        size=crop,
        resized=resized,
        channels=channels,
        mean=tuple(value / scale for value in mean),
        deviation=tuple(value / scale for value in deviation),
        filter=FILTERS[resample],
        squash=squash,
    )


def _sizes(stated: dict[str, Any], kind: str) -> tuple[int, int, bool]:
    """What is resized to, what is cropped to, and whether the long edge is squashed.

    Where nothing is resized, images of ours are to cover the crop; where nothing is cropped, what
    stands out of a square is.
    """
    crop = None
    if stated.get("do_center_crop", "crop_size" in stated):
        crop = _edge(stated["crop_size"])
    if not stated.get("do_resize", True) and crop is not None:
        return crop, crop, False
    size = stated["size"]
    by_name = {k: v for k, v in size.items() if v is not None} if isinstance(size, dict) else {}
    if "longest_edge" in by_name:
        raise ValueError("longest_edge is not known")
    squash = "shortest_edge" not in by_name if by_name else kind in SQUARE
    edge = int(by_name["shortest_edge"]) if "shortest_edge" in by_name else _edge(size)
    if kind == "ConvNext":
        warped = edge >= WARPED_FROM
        return edge if warped else int(edge / stated.get("crop_pct", 224 / 256)), edge, warped
    return edge, crop or edge, squash


def _edge(size: Any) -> int:
    """The side of a square that is stated as one number or two."""
    sides = {size["height"], size["width"]} if isinstance(size, dict) else {size}
    if len(sides) != 1:
        raise ValueError(f"{size} is no square")
    return int(sides.pop())


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(map(float, value)) if isinstance(value, list) else (float(value),)
