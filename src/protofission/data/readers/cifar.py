"""CIFAR-10 and CIFAR-100 from their official Python files."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, require
from protofission.data.image_sets import ImageSet, ImageSets, Labels
from protofission.data.readers.official_datasets import (
    OFFICIAL_DATASETS,
    find_dataset_folder,
    official_bytes,
)

__all__ = ["find_dataset_folder", "load_cifar10", "load_cifar100"]

SHAPE = (3, 32, 32)


def load_cifar10(folder: Path | str | None = None) -> ImageSets:
    """50,000 training and 10,000 test images of 10 classes.

    Args:
        folder: the folder of the official files, or its parent; see `find_dataset_folder`.
    """
    files = _read("cifar10", folder)
    names = _names(files["batches.meta"], b"label_names")
    batches = [files[f"data_batch_{number}"] for number in range(1, 6)]
    return ImageSets(
        train=ImageSet(_pixels(batches), _labels(batches, b"labels"), names),
        test=ImageSet(
            _pixels([files["test_batch"]]), _labels([files["test_batch"]], b"labels"), names
        ),
    )


def load_cifar100(folder: Path | str | None = None) -> ImageSets:
    """50,000 training and 10,000 test images of 100 classes, each in one of 20 coarse ones.

    Args:
        folder: the folder of the official files, or its parent; see `find_dataset_folder`.
    """
    files = _read("cifar100", folder)
    names = _names(files["meta"], b"fine_label_names")
    coarse_names = _names(files["meta"], b"coarse_label_names")
    train, test = (
        ImageSet(
            _pixels([files[part]]),
            _labels([files[part]], b"fine_labels"),
            names,
            _labels([files[part]], b"coarse_labels"),
            coarse_names,
        )
        for part in ("train", "test")
    )
    return ImageSets(train, test)


def _read(name: str, folder: Path | str | None) -> dict[str, dict[bytes, Any]]:
    """Read all files of a data set; each is unpickled only after its md5 was checked."""
    found = find_dataset_folder(name, folder)
    files = {}
    for file in OFFICIAL_DATASETS[name].files:
        content = official_bytes(name, file, found)
        try:
            files[file.name] = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        except pickle.UnpicklingError as error:
            raise InputError(f"{found / file.name} cannot be read: {error}.") from None
    return files


def _pixels(batches: Sequence[dict[bytes, Any]]) -> NDArray[np.uint8]:
    parts = [batch[b"data"] for batch in batches]
    rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
    require(
        rows.dtype == np.uint8 and rows.shape[1:] == (3072,),
        f"CIFAR's images are rows of 3072 bytes, not {rows.dtype} of the shape {rows.shape}: "
        "fetch the official files.",
    )
    return rows.reshape(-1, *SHAPE)


def _labels(batches: Sequence[dict[bytes, Any]], key: bytes) -> Labels:
    return np.array([label for batch in batches for label in batch[key]], np.int64)


def _names(meta: dict[bytes, Any], key: bytes) -> tuple[str, ...]:
    return tuple(name.decode() for name in meta[key])


class _Unpickler(pickle.Unpickler):
    """Unpickles arrays, and lists and dictionaries of plain values, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no image needs")
        return _ALLOWED[module, name]


def _dtype(code: str, *_: object) -> np.dtype[Any]:
    """A dtype by its code; the old files add numbers for booleans, of which NumPy warns."""
    return np.dtype(code)


_reconstruct: Callable[..., Any] = np.empty(0).__reduce__()[0]  # type: ignore[assignment]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
}
