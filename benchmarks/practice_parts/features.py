"""Feature stores of the comparison: read from .npz files, or made from images and kept."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from practice_parts.cells import Floats, Ints
from protofission.core.errors import require
from protofission.data.datasets import DATASETS, VIEWS
from protofission.models.encoders.quality import Quality
from protofission.training.embed import images_of
from protofission.training.encoder_choice import choose_encoder

AT_ONCE = 64


@dataclass(frozen=True)
class Embedding:
    """How images become features."""

    encoder: str | None
    quality: Quality | None
    size: int | None
    cache: Path
    most: int
    """Most images of a set, as many of each class."""


def read_features(path: Path) -> tuple[Floats, Ints]:
    """(N, D) features and (N,) labels of an .npz file."""
    with np.load(path) as file:
        features, labels = file["features"], file["labels"]
    require(
        features.ndim == 2 and labels.shape == (len(features),),
        f"{path} holds arrays of the shapes {features.shape} and {labels.shape}: give features "
        "(N, D) and labels (N,).",
    )
    return features.astype(np.float32), labels.astype(np.int64)


def store_of(argument: str, embedding: Embedding) -> tuple[str, Path]:
    """The name of a set, and its .npz file, which is made from images if it must be.

    Args:
        argument: NAME=FILE.npz, NAME=FOLDER of images in folders of classes, or a data set of
            DATASETS by name, such as digits or cifar10=FOLDER.
    """
    name, _, place = argument.partition("=")
    if place.endswith(".npz"):
        require(Path(place).is_file(), f"{place} is no file: give features, or images.")
        return name, Path(place).resolve()
    source = name if name in DATASETS else str(Path(place or name).expanduser())
    options = () if embedding.size is None else (f"size={embedding.size}",)
    choice = choose_encoder(embedding.encoder, embedding.quality, options)
    spec, _ = choice.for_images(source if name in DATASETS else Path(source))
    name = name if name in DATASETS or place else Path(name).name
    kind = Path(spec.source).name
    path = embedding.cache / f"{name}-{kind}-{getattr(spec, 'size', 'own')}-{embedding.most}.npz"
    if path.exists():
        return name, path.resolve()
    encoder = spec.load()
    images = images_of(source, encoder.decode, (place or None) if name in DATASETS else None)
    train, views = images.sets.train, VIEWS[images.views]
    rows = _sample(train.labels, embedding.most)
    found = np.empty((len(rows), encoder.num_features), np.float32)
    for start in range(0, len(rows), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        pixels = torch.from_numpy(np.asarray(train.pixels[rows[some]]))
        found[some] = encoder.features(views.plain(pixels)).cpu().numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.npz")
    np.savez(partial, features=found, labels=train.labels[rows])
    partial.replace(path)
    print(f"{name}: {len(rows):,} images by {kind} into {path}", flush=True)
    return name, path.resolve()


def _sample(labels: Ints, most: int) -> Ints:
    """Rows of at most so many images, as many of each class, drawn at random, in order."""
    names, random = np.unique(labels[labels >= 0]), np.random.default_rng(0)
    each = max(1, most // len(names))
    drawn = [random.permutation(np.flatnonzero(labels == name))[:each] for name in names]
    found: Ints = np.sort(np.concatenate(drawn))
    return found
