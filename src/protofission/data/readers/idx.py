"""MNIST and Fashion-MNIST from their idx files, gzipped or not."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, require
from protofission.data.image_sets import ImageSet, ImageSets
from protofission.data.readers.official_datasets import (
    MOST_OFFICIAL_BYTES,
    OFFICIAL_DATASETS,
    find_dataset_folder,
    possible_names,
    remedy,
)
from protofission.system.plain_files import open_plain, read_plain

DIGIT_NAMES = tuple("0123456789")
CLOTHES_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
UNSIGNED_BYTES = 8
"""The type code of uint8 in an idx file."""
BYTE_LIMIT = 2**28
"""The limit of an unpacked file: no file of these data sets is larger."""


def load_mnist(folder: Path | str | None = None) -> ImageSets:
    """60,000 training and 10,000 test images of handwritten digits; see `find_dataset_folder`."""
    return _load("mnist", folder, DIGIT_NAMES)


def load_fashion_mnist(folder: Path | str | None = None) -> ImageSets:
    """60,000 training and 10,000 test images of clothes; see `find_dataset_folder`."""
    return _load("fashion-mnist", folder, CLOTHES_NAMES)


def _load(name: str, folder: Path | str | None, class_names: tuple[str, ...]) -> ImageSets:
    found = find_dataset_folder(name, folder)
    paths = [_find_file(name, file.name, found) for file in OFFICIAL_DATASETS[name].files]
    train, test = (_read_pair(paths[i], paths[i + 1], class_names) for i in (0, 2))
    return ImageSets(train, test)


def _find_file(name: str, file: str, folder: Path) -> Path:
    path = next((folder / s for s in possible_names(file) if (folder / s).is_file()), None)
    if path is None:
        raise InputError(
            f"{OFFICIAL_DATASETS[name].title}'s file {file} is missing in {folder}: {remedy(name)}."
        )
    if path.suffix == ".gz":  # the files of both data sets have the same names
        md5 = hashlib.md5(read_plain(path, MOST_OFFICIAL_BYTES), usedforsecurity=False).hexdigest()
        for other, source in OFFICIAL_DATASETS.items():
            require(
                other == name or md5 not in [file.md5 for file in source.files],
                f"{path} is a file of {source.title}, not of {OFFICIAL_DATASETS[name].title}: "
                "name the other folder.",
            )
    return path


def _read_pair(images: Path, labels: Path, class_names: tuple[str, ...]) -> ImageSet:
    pixels, places = read_idx(images, 3), read_idx(labels, 1)
    require(
        len(pixels) == len(places),
        f"{images} has {len(pixels)} images, but {labels} has {len(places)} labels: "
        "take both from the same download.",
    )
    highest = int(places.max(initial=0))
    require(
        highest < len(class_names),
        f"{labels} holds the label {highest}, but there are {len(class_names)} classes: "
        "fetch the official file.",
    )
    return ImageSet(pixels[:, None], places.astype(np.int64), class_names)


def _unzip(path: Path, file: BinaryIO) -> BinaryIO | gzip.GzipFile:
    return gzip.open(file) if path.suffix == ".gz" else file


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read the uint8 array of an idx file; header and length are checked."""
    start = 4 + 4 * dimensions
    try:
        with open_plain(path) as plain, _unzip(path, plain) as file:
            header = file.read(start)
            magic = bytes([0, 0, UNSIGNED_BYTES, dimensions])
            require(
                len(header) == start and header[:4] == magic,
                f"{path} does not begin as an idx file of {dimensions} dimensions of bytes: "
                "fetch the official file.",
            )
            shape = struct.unpack(f">{dimensions}I", header[4:])
            size = math.prod(shape)
            require(
                size <= BYTE_LIMIT,
                f"{path} claims the shape {shape}, {size} bytes: fetch the official file.",
            )
            content = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error}): fetch the official file.") from None
    require(
        len(content) == size,
        f"{path} claims the shape {shape}, {size} bytes, but has "
        f"{'more' if len(content) > size else len(content)}: fetch the official file.",
    )
    return np.frombuffer(content, np.uint8).reshape(shape)
