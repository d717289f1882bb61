"""Near-duplicates: the share of changed photos that are found, pairs without a change, and time.

    python benchmarks/near_duplicates.py photos/ --images 250
    python benchmarks/near_duplicates.py --rows 100000

The first reads a folder of images, embeds them all and some of them once more for each change,
and prints how often an image and its changed copy come into one group, which no other image is
in unless it is a near-duplicate too. Beside it stands the plain rule, a cosine of centered
features above 0.9, by which pairs of dense data multiply. The second times random features.
"""

from __future__ import annotations

import argparse
import io
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

from protofission.core.near_duplicates import members, near_duplicates
from protofission.data.image_sets import floats
from protofission.data.readers.decode import Decoding, decode
from protofission.models.encoders import DEFAULT, Encoder, find_encoder


def saved(image: Image.Image, kind: str = "PNG", **options: int) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def resized(image: Image.Image, share: float) -> Image.Image:
    return image.resize((round(image.width * share), round(image.height * share)))


def cropped(image: Image.Image, share: float) -> Image.Image:
    """Cut a share of each side, two thirds of it on the left and at the top."""
    width, height = image.size
    left, top = width * share * 2 / 3, height * share * 2 / 3
    return image.crop((int(left), int(top), int(width - left / 2), int(height - top / 2)))


def stamped(image: Image.Image) -> Image.Image:
    """Write a line of text near the lower edge."""
    copy = image.copy()
    font = ImageFont.load_default(max(8, image.height // 12))
    place = image.width * 0.35, image.height * 0.85
    ImageDraw.Draw(copy).text(place, "(c) photo.example", fill="white", font=font)
    return copy


def marked(image: Image.Image) -> Image.Image:
    """Draw a red disk, an eighth of the image, near the upper right corner."""
    copy, side = image.copy(), min(image.size) // 8
    right, top = (image.width + min(image.size)) // 2 - 4, 4 + (image.height - min(image.size)) // 2
    ImageDraw.Draw(copy).ellipse((right - side, top, right, top + side), fill=(200, 30, 30))
    return copy


CHANGES: dict[str, Callable[[Image.Image], bytes]] = {
    "JPEG quality 90": lambda image: saved(image, "JPEG", quality=90),
    "JPEG quality 60": lambda image: saved(image, "JPEG", quality=60),
    "JPEG quality 40": lambda image: saved(image, "JPEG", quality=40),
    "3/4 of the size": lambda image: saved(resized(image, 0.75)),
    "half the size": lambda image: saved(resized(image, 0.5)),
    "2 % cropped": lambda image: saved(cropped(image, 0.02)),
    "5 % cropped": lambda image: saved(cropped(image, 0.05)),
    "8 % brighter": lambda image: saved(ImageEnhance.Brightness(image).enhance(1.08)),
    "a line of text": lambda image: saved(stamped(image)),
    "a logo": lambda image: saved(marked(image)),
}


def embedded(encoder: Encoder, contents: list[bytes]) -> NDArray[np.float32]:
    size, found = Decoding(encoder.decode, encoder.decode), []
    for start in range(0, len(contents), encoder.chunk):
        pixels = np.stack([decode(content, size) for content in contents[start:][: encoder.chunk]])
        found.append(encoder.features(floats(torch.from_numpy(pixels))).numpy())
    return np.concatenate(found)


def plain_pairs(rows: NDArray[np.float32]) -> int:
    """Pairs of images whose centered features have a cosine above 0.9."""
    units = rows - rows.mean(0)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    near = sum(int((block @ units.T > 0.9).sum()) for block in np.array_split(units, 20))
    return (near - len(rows)) // 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--images", type=int, default=250)
    parser.add_argument("--rows", type=int, default=0)
    asked = parser.parse_args()
    if asked.rows:
        rows = np.random.default_rng(0).gamma(1, size=(asked.rows, 1280)).astype(np.float32)
        start, used = time.perf_counter(), time.process_time()
        near_duplicates(rows)
        clock, used = time.perf_counter() - start, time.process_time() - used
        print(f"{asked.rows:,} x 1280: {clock:.0f} s, {used:.0f} s of processors' time")
    if asked.folder is None:
        return
    encoder = replace(find_encoder(DEFAULT), size=asked.size).load()  # type: ignore[type-var]
    paths = sorted(path for path in asked.folder.rglob("*") if path.is_file())
    rows = embedded(encoder, [path.read_bytes() for path in paths])
    groups = members(near_duplicates(rows))
    pairs = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    largest = max(map(len, groups), default=1)
    rate = 1000 / len(rows)
    print(
        f"{len(rows):,} images of {asked.folder.name} at {asked.size} px: {pairs * rate:.1f} "
        f"pairs per 1,000, largest group {largest}; cosine above 0.9: "
        f"{plain_pairs(rows) * rate:.1f}"
    )
    chosen = np.sort(np.random.default_rng(1).permutation(len(rows))[: asked.images])
    images = [Image.open(paths[place]).convert("RGB") for place in chosen]
    for name, change in CHANGES.items():
        copies = embedded(encoder, [change(image) for image in images])
        found = near_duplicates(np.concatenate([rows, copies]))
        share = (found[chosen] == found[len(rows) :]).mean()
        print(f"  {name}: {share:.0%}", flush=True)


if __name__ == "__main__":
    main()
