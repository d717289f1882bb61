"""Labeled images and a pool, read, checked and put together for a fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import InputError, printable, require
from protofission.data.image_sets import NO_LABEL, ImageSet, Labels
from protofission.data.readers.image_cache import Progress, digest
from protofission.data.readers.image_folders import load_folder
from protofission.data.store.manifest import npy_header
from protofission.system.plain_files import open_plain
from protofission.system.whole_files import written_whole

FEW = 10
"""A class with fewer labeled images is called small."""
BLOCK = 1024
"""Images that are copied at a time."""
MOST_CLASSES = 1000
"""With more, a step of training on a CPU takes seconds and gigabytes."""


@dataclass(frozen=True)
class Material:
    """What a fit learns from."""

    images: ImageSet
    """The labeled images that are used, then every image of the pool that could be read."""
    num_labeled: int
    repeated: NDArray[np.bool_]
    """(pool,): which images of the pool are among the labeled ones too; nobody learns from them."""
    unreadable: dict[str, str]
    """Why each of these files of the pool was left out."""
    findings: tuple[str, ...]
    """What was found, in sentences."""

    @property
    def labels(self) -> Labels:
        """Of the labeled images."""
        return self.images.labels[: self.num_labeled]

    @property
    def pool_paths(self) -> tuple[str, ...]:
        """Of the images of the pool."""
        return self.images.paths[self.num_labeled :]


def gather(
    labeled: Path,
    pool: Path,
    size: int,
    folder: Path,
    progress: Progress | None = None,
    pool_progress: Progress | None = None,
) -> Material:
    """Read and check two folders or lists.

    Of labeled images that are the same one is used, and none where their labels contradict each
    other. Images of a list of labeled ones that have no label join the pool.

    Args:
        size: the side at which images are decoded.
        folder: where the pixels of all of them are put.
        progress: called with the labeled files that are read, and all; so `pool_progress`.
    """
    known, about_known = load_folder(labeled, size, progress=progress)
    require(
        bool((known.labels != NO_LABEL).any()),
        f"{printable(str(labeled))} holds no class subfolders: give one for each class, or a list "
        "with a column of labels.",
    )
    others, about_pool = load_folder(pool, size, unlabeled=True, progress=pool_progress)
    digests = [digest(image) for image in known.pixels]
    used, findings = _used(known, digests)
    rest = np.flatnonzero(known.labels == NO_LABEL)
    labels, names = _renumbered(known, used, findings)
    pool_digests = [digests[place] for place in rest] + [digest(i) for i in others.pixels]
    seen = {digests[place] for place in used}
    repeated = np.array([found in seen for found in pool_digests])
    pixels = _together(
        [
            (known.pixels, used),
            (known.pixels, rest),
            (others.pixels, np.arange(len(others.labels))),
        ],
        folder / "pixels.npy",
    )
    images = ImageSet(
        pixels,
        np.concatenate([labels, np.full(len(pool_digests), NO_LABEL)]),
        names,
        paths=tuple(known.paths[place] for place in (*used, *rest)) + others.paths,
    )
    return Material(
        images,
        len(used),
        repeated,
        dict(about_pool.left_out),
        (
            *about_known.lines(),
            *about_pool.lines(),
            *findings,
            *_small(labels, names),
            *_repeated(int(repeated.sum())),
        ),
    )


def _used(known: ImageSet, digests: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """The places of labeled images that are used, and what is said of the others."""
    groups: dict[str, list[int]] = defaultdict(list)
    for place in np.flatnonzero(known.labels != NO_LABEL).tolist():
        groups[digests[place]].append(place)
    used, copies, contradicting = [], 0, 0
    for places in groups.values():
        if len({int(known.labels[place]) for place in places}) > 1:
            contradicting += len(places)
        else:
            used.append(places[0])
            copies += len(places) - 1
    findings = []
    if copies:
        what = "copy of another labeled image is" if copies == 1 else "copies of others are"
        findings.append(f"{copies:,} labeled {what} not used.")
    if contradicting:
        findings.append(
            f"{contradicting:,} labeled images are not used: the same image has several classes."
        )
    return np.array(sorted(used), np.int64), findings


def _renumbered(
    known: ImageSet, used: NDArray[np.int64], findings: Sequence[str]
) -> tuple[Labels, tuple[str, ...]]:
    """Labels and names of the classes that have an image which is used."""
    present, labels = np.unique(known.labels[used], return_inverse=True)
    names = tuple(known.class_names[place] for place in present)
    shown = "; ".join([*map(repr, map(printable, names[:1])), *(f.rstrip(".") for f in findings)])
    require(
        len(names) >= 2,
        f"Images of {len(names)} class{'es' * (len(names) != 1)} can be used"
        f"{f' ({shown})' * bool(shown)}, and to tell classes apart takes two: add a folder of "
        "another class.",
    )
    require(
        len(names) <= MOST_CLASSES,
        f"There are {len(names):,} classes, and a fit takes at most {MOST_CLASSES:,}: fit groups "
        "of them, or embed the images and use `protofission train`.",
    )
    require(
        int(np.bincount(labels).max()) >= 2,
        f"Each of the {len(names)} classes has a single image, so none can be held out to see "
        "how good the model is: add images, at least one to some class.",
    )
    return labels.astype(np.int64), names


def _small(labels: Labels, names: Sequence[str]) -> list[str]:
    counts = np.bincount(labels, minlength=len(names))
    small = [f"{printable(names[c])} ({counts[c]})" for c in np.flatnonzero(counts < FEW).tolist()]
    if not small:
        return []
    more = f" and {len(small) - 10} more" if len(small) > 10 else ""
    return [f"Classes with fewer than {FEW} labeled images: {', '.join(small[:10])}{more}."]


def _repeated(count: int) -> list[str]:
    if not count:
        return []
    what = (
        "image of the pool is a labeled one"
        if count == 1
        else "images of the pool are labeled ones"
    )
    return [f"{count:,} {what} too; nothing is learned from {'it' if count == 1 else 'them'}."]


def _together(
    parts: Sequence[tuple[NDArray[np.uint8], NDArray[np.int64]]], path: Path
) -> NDArray[np.uint8]:
    """Some images of several sets as one memory-mapped array."""
    shape = (sum(len(places) for _, places in parts), *parts[0][0].shape[1:])
    header = npy_header("|u1", shape)
    try:
        with written_whole(path) as partial, partial.open("wb") as file:
            file.write(header)
            for pixels, places in parts:
                for first in range(0, len(places), BLOCK):
                    file.write(pixels[places[first : first + BLOCK]].tobytes())
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
    with open_plain(path) as file:
        return np.memmap(file, np.uint8, "r", len(header), shape)
