"""The demo's images as PNG files for `protofission fit` and `protofission predict`.

The labeled images of its runs become `labeled`, with a folder for each class. Of their test images
some become `new`, the others `pool`. A file's name begins with its class, which nothing reads.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from protofission.core.errors import require
from protofission.core.rng import step_rng
from protofission.data.datasets import Data
from protofission.data.image_sets import Labels
from protofission.system.locks import folder_lock
from protofission.system.plain_files import read_plain

MOST_LABELED, MOST_POOL, NEW = 100, 150, 30
"""Images of a class in each folder."""
SIDE = 32
"""Approximate side in pixels to which smaller images are enlarged."""
ABOUT = "README.txt"


def write_demo_images(data: Data, folder: Path, origin: str) -> None:
    """Write the folders `labeled`, `pool` and `new`, all at once; what is there stays.

    Args:
        folder: of the three folders.
        origin: what the images depend on, in a line.

    Raises:
        InputError: the folder has images of another origin.
    """
    about = _about(data, origin)
    work = folder.with_name(f".{folder.name}.writing")
    with folder_lock(work):
        if folder.exists():
            file = folder / ABOUT
            require(
                file.is_file() and read_plain(file) == about.encode(),
                f"{folder} holds other images than this demo's: delete it, or name another --out.",
            )
        else:
            _write_parts(data, work / "images")
            (work / "images" / ABOUT).write_bytes(about.encode())
            (work / "images").replace(folder)
        shutil.rmtree(work)


def _about(data: Data, origin: str) -> str:
    seen, novel = np.split(np.array(data.class_names), [data.training.num_seen])
    return f"""Images for protofission fit and predict, written by protofission demo.

labeled/  known classes: {", ".join(seen)}
pool/     the same classes and strangers: {", ".join(novel) or "none"}
new/      others of both, to predict

The first part of a file's name is its class, for you to see: nothing reads it.
Of: {origin}
"""


def _write_parts(data: Data, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    names = [re.sub(r"[^\w-]+", "_", name) for name in data.class_names]
    labels = data.training.labels.numpy()
    for number, name in enumerate(names):
        own = _draw(labels, number, "labeled images")[:MOST_LABELED]
        _write(folder / "labeled" / name, name, data.training.labeled[own].numpy(), own)
        own = _draw(data.test.labels, number, "new images")
        new = min(NEW, len(own) // 2)
        for part, some in (("new", own[:new]), ("pool", own[new:][:MOST_POOL])):
            _write(folder / part, name, data.test.inputs[some].numpy(), some)


def _draw(labels: Labels, number: int, purpose: str) -> NDArray[np.int64]:
    """The places of a class's images, in random order."""
    places = np.flatnonzero(labels == number)
    order = torch.randperm(len(places), generator=step_rng(0, number, f"{purpose} of the demo"))
    drawn: NDArray[np.int64] = places[order.numpy()]
    return drawn


def _write(folder: Path, name: str, images: NDArray[np.uint8], places: NDArray[np.int64]) -> None:
    """Write (images, channels, height, width) as PNG files that are numbered by their places."""
    if not len(images):
        return
    folder.mkdir(parents=True, exist_ok=True)
    scale = max(1, SIDE // max(images.shape[2:]))
    for place, image in zip(places, images, strict=True):
        pixels = image.repeat(scale, 1).repeat(scale, 2).transpose(1, 2, 0)
        Image.fromarray(pixels[:, :, 0] if len(image) == 1 else pixels).save(
            folder / f"{name}-{place:05d}.png"
        )
