"""NumPy arrays and torch tensors as an image set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, require
from protofission.data.image_sets import NO_LABEL, ImageSet, Labels
from protofission.data.label_names import check_distinct, number_labels

CHANNELS = (1, 3)
CHUNK_IMAGES = 1024
"""The number of images converted at a time."""


def from_arrays(
    images: Any,
    labels: Any = None,
    class_names: Sequence[str] | None = None,
    coarse_labels: Any = None,
    coarse_names: Sequence[str] | None = None,
    *,
    layout: Literal["NHW", "NHWC", "NCHW"] | None = None,
) -> ImageSet:
    """An image set of images in memory; they are copied, unless they are read-only.

    Args:
        images: (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels: uint8, or floats in
            [0, 1], which are rounded to 256 levels (halves to the even one).
        labels: whole numbers, -1 for none; or names, None or "" for none. By default, all images
            are without a label.
        class_names: the classes in order; by default the names among the labels, by
            `sort_class_names`, or the numbers as text.
        coarse_labels: labels of coarser classes, in the same form.
        coarse_names: the coarse classes in order.
        layout: the order of the axes, if the shape leaves it open.
    """
    pixels = _pixels(_array(images), layout)
    places, names = _places(labels, class_names, len(pixels), "labels")
    coarse, coarser = _places(coarse_labels, coarse_names, len(pixels), "coarse_labels")
    return ImageSet(pixels, places, names, None if coarse_labels is None else coarse, coarser)


def _array(values: Any) -> NDArray[Any]:
    """A NumPy array of an array, a list or a torch tensor on any device."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
        return np.asarray(values.numpy())
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"Not an array ({error}): give images of one size, and labels.") from None


def _pixels(array: NDArray[Any], layout: str | None) -> NDArray[np.uint8]:
    axes = _layout(array.shape, layout)
    channels_first = array[:, None] if axes == "NHW" else array
    if axes == "NHWC":
        channels_first = array.transpose(0, 3, 1, 2)
    require(
        min(channels_first.shape[2:]) > 0,
        f"Images of the shape {array.shape} have no pixels: give a height and a width.",
    )
    if array.dtype == np.uint8:
        if array.flags.writeable:
            return channels_first.copy(order="C")
        return np.ascontiguousarray(channels_first)  # it may be memory-mapped
    require(
        np.issubdtype(array.dtype, np.floating),
        f"Images of the type {array.dtype} have no agreed range: give uint8 from 0 to 255, "
        "or floats from 0 to 1.",
    )
    pixels = np.empty(channels_first.shape, np.uint8)
    for start in range(0, len(pixels), CHUNK_IMAGES):
        part = channels_first[start : start + CHUNK_IMAGES]
        bad = int((~np.isfinite(part).all(axis=(1, 2, 3))).sum())
        require(bad == 0, f"{bad} images hold NaN or infinity: clean or drop them.")
        low, high = float(part.min()), float(part.max())
        require(
            low >= 0 and high <= 1,
            f"Floating-point images must be in [0, 1], but these go from {low:g} to {high:g}: "
            "rescale them, or give uint8 from 0 to 255.",
        )
        pixels[start : start + CHUNK_IMAGES] = np.rint(part.astype(np.float64) * 255)
    return pixels


def _layout(shape: tuple[int, ...], layout: str | None) -> str:
    """The axes of an array: as given, or by the only axis that can hold channels."""
    fits = {
        "NHW": len(shape) == 3,
        "NHWC": len(shape) == 4 and shape[-1] in CHANNELS,
        "NCHW": len(shape) == 4 and shape[1] in CHANNELS,
    }
    if layout is not None:
        require(
            fits.get(layout, False),
            f"Images of the shape {shape} do not fit layout = {layout!r}: "
            "NHW, NHWC and NCHW with 1 or 3 channels are known.",
        )
        return layout
    found = [name for name, fit in fits.items() if fit]
    require(
        len(found) > 0,
        f"Images of the shape {shape} are not understood: give (N, H, W), (N, H, W, C) or "
        "(N, C, H, W) with 1 or 3 channels, and put RGBA on a background first.",
    )
    require(
        len(found) == 1,
        f"Images of the shape {shape} may have their channels first or last: "
        'say layout="NCHW" or layout="NHWC".',
    )
    return found[0]


def _places(
    labels: Any, class_names: Sequence[str] | None, count: int, what: str
) -> tuple[Labels, tuple[str, ...]]:
    names = None if class_names is None else check_distinct([str(name) for name in class_names])
    if labels is None:
        return np.full(count, NO_LABEL, np.int64), names or ()
    array = _array(labels)
    require(
        array.shape == (count,),
        f"{what} of the shape {array.shape} do not fit {count} images: give one each.",
    )
    if array.dtype.kind in "iu":
        return _whole_numbers(array, names, what)
    if array.dtype.kind in "UO" and all(v is None or isinstance(v, str) for v in array.tolist()):
        return number_labels([value or None for value in array.tolist()], names)
    raise InputError(
        f"{what} of the type {array.dtype} are not understood: give whole numbers or names."
    )


def _whole_numbers(
    array: NDArray[Any], names: tuple[str, ...] | None, what: str
) -> tuple[Labels, tuple[str, ...]]:
    low, high = (int(array.min()), int(array.max())) if len(array) else (NO_LABEL, NO_LABEL)
    require(low >= NO_LABEL, f"{what} hold {low}: give numbers from 0, or -1 for none.")
    if names is None:
        names = tuple(str(place) for place in range(high + 1))
    require(
        high < len(names),
        f"{what} hold {high}, but there are {len(names)} class names: name every class.",
    )
    return array.astype(np.int64), names
