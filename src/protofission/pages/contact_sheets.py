"""Contact sheets: the images that each prototype claims, one row of pictures a prototype."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from protofission.core.array_types import Ints
from protofission.pages.head_names import Meaning, head_order, meaning
from protofission.training.predictions import NO_SLOT, Predictions

Pixels = NDArray[np.uint8]

LARGEST_THUMBNAIL = 40
"""Pixels of the longer side; larger images are shrunk to it."""
FEWEST_IN_STRIP, MOST_IN_STRIP, PAGE_PIXELS = 4, 12, 750_000
"""Fewest and most images of a strip; pixels of all strips of a page, about a megabyte."""
EACH = 10
"""Most seen heads, and most novel heads, whose sub-classes are shown."""
WIDTH = 480
"""Approximate width of a strip, in CSS pixels."""
PAPER, FRAME = (255, 255, 255), (213, 94, 0)


@dataclass(frozen=True)
class Strip:
    """The pictures of one prototype."""

    label: str
    alt: str
    uri: str
    """Data URI of a PNG."""
    width: int
    """Width in CSS pixels: a whole multiple of the PNG's own, so that pixels stay square."""
    height: int


@dataclass(frozen=True)
class Sheet:
    """The sub-classes of one head."""

    title: str
    strips: tuple[Strip, ...]
    unused: str
    """A line that names the prototypes without images, or nothing."""


def images_per_strip(num_strips: int, height: int, width: int) -> int:
    """The number of images in each strip that keeps a page at about a megabyte."""
    shrunk = min(1.0, LARGEST_THUMBNAIL / max(height, width))
    fitting = PAGE_PIXELS / max(1, num_strips * height * width * shrunk**2)
    return int(min(max(fitting, FEWEST_IN_STRIP), MOST_IN_STRIP))


def shown_heads(predictions: Predictions) -> list[int]:
    """The first EACH seen and EACH novel heads, in the order of the confusion matrix."""
    seen = predictions.num_seen
    order = head_order(predictions.confusion, seen)
    return order[:seen][:EACH] + order[seen:][:EACH]


def sheets(
    predictions: Predictions, pixels: Pixels, names: Sequence[str], per_slot: int = MOST_IN_STRIP
) -> list[Sheet]:
    """A sheet for each of the shown heads.

    Args:
        pixels: (N, channels, height, width), the images of the predictions.
        per_slot: how many images a strip shows.
    """
    counts = predictions.confusion
    num_heads, num_slots = predictions.prototypes.shape[:2]
    found = []
    for head in shown_heads(predictions):
        means = meaning(head, counts, predictions.num_seen, names)
        slots = range(num_slots if head < num_heads else 0)
        members = {slot: nearest_images(predictions, head, slot) for slot in (NO_SLOT, *slots)}
        strips = tuple(
            _strip(slot, images, predictions, pixels, means, per_slot)
            for slot, images in members.items()
            if len(images)
        )
        rejects = len(members[NO_SLOT]) > 0
        unused = [] if rejects else [slot for slot in slots if not len(members[slot])]
        found.append(Sheet(means.title, strips, _unused_line(unused)))
    return found


def nearest_images(predictions: Predictions, head: int, slot: int) -> Ints:
    """Places of the images on a head and slot, most similar first; for NO_SLOT, most OOD first."""
    members = np.flatnonzero((predictions.heads == head) & (predictions.slots == slot))
    worth = predictions.ood_scores if slot == NO_SLOT else predictions.similarities
    return members[np.argsort(-worth[members], kind="stable")]


def _unused_line(slots: Sequence[int]) -> str:
    """A line that names the prototypes without images; empty if there are none."""
    if not slots:
        return ""
    return f"prototype{'s' * (len(slots) > 1)} {', '.join(str(s + 1) for s in slots)} · unused"


def _strip(
    slot: int, members: Ints, predictions: Predictions, pixels: Pixels, means: Meaning, places: int
) -> Strip:
    name = "rejected, no prototype" if slot == NO_SLOT else f"prototype {slot + 1}"
    shown = members[:places]
    foreign = predictions.labels[shown] != means.stands_for
    row = picture_row(pixels[shown], foreign, places)
    scale = strip_scale(row)
    others = int((predictions.labels[members] != means.stands_for).sum())
    return Strip(
        label=f"{name} · {len(members)} image{'s' * (len(members) > 1)}"
        + f" · {others} of other classes" * bool(others),
        alt=f"{len(shown)} images of {means.title}, {name}; {int(foreign.sum())} marked.",
        uri=png_uri(row),
        width=scale * row.shape[1],
        height=scale * row.shape[0],
    )


def strip_scale(row: Pixels) -> int:
    """CSS pixels for each pixel of a row of pictures: more than one where these are small."""
    return max(1, round(WIDTH / int(row.shape[1])))


def picture_row(pixels: Pixels, marked: NDArray[np.bool_], places: int) -> Pixels:
    """(height, width, 3): images side by side on white, framed with a filled corner where marked.

    Around an image lie a white line and the line of the frame; between two, one more white line.
    """
    images = [_to_rgb(image) for image in pixels]
    height, width = images[0].shape[:2]
    line = max(1, min(height, width) // 16)
    pitch = width + 5 * line
    row = np.full((height + 4 * line, places * pitch - line, 3), PAPER, np.uint8)
    for place, (image, mark) in enumerate(zip(images, marked, strict=True)):
        tile = row[:, place * pitch : place * pitch + width + 4 * line]
        if mark:
            _frame(tile, line)
        tile[2 * line : -2 * line, 2 * line : -2 * line] = image
    return row


def _frame(tile: Pixels, line: int) -> None:
    """Draw a frame, its upper right corner thicker."""
    tile[:] = FRAME
    tile[line:-line, line:-line] = PAPER
    tile[: 2 * line, -4 * line :] = FRAME
    tile[: 4 * line, -2 * line :] = FRAME


def _to_rgb(image: Pixels) -> Pixels:
    """(channels, height, width) to (height, width, 3), sides of at most LARGEST_THUMBNAIL."""
    shown = np.moveaxis(image, 0, -1)
    shown = np.repeat(shown[:, :, :1], 3, axis=2) if shown.shape[2] < 3 else shown[:, :, :3]
    if max(shown.shape[:2]) > LARGEST_THUMBNAIL:
        small = Image.fromarray(np.ascontiguousarray(shown))
        small.thumbnail((LARGEST_THUMBNAIL, LARGEST_THUMBNAIL))
        shown = np.asarray(small)
    return shown


def png_uri(row: Pixels) -> str:
    """A PNG as a data URI: exact up to 256 colors, the nearest 256 beyond."""
    image = Image.fromarray(row)
    few = image.getcolors(256) is not None
    image = _palette_image(row) if few else image.quantize(256, Image.Quantize.FASTOCTREE)
    content = BytesIO()
    image.save(content, "PNG", optimize=True)
    return "data:image/png;base64," + b64encode(content.getvalue()).decode()


def _palette_image(row: Pixels) -> Image.Image:
    """An indexed image of at most 256 colors, with its own palette."""
    palette, places = np.unique(row.reshape(-1, 3), axis=0, return_inverse=True)
    image = Image.fromarray(places.reshape(row.shape[:2]).astype(np.uint8))
    image.putpalette(palette.tobytes())
    return image
