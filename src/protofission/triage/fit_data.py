"""The images of a fit: labeled ones and a pool, read, checked and joined without a copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protofission.core.errors import printable, require
from protofission.core.progress import Progress
from protofission.data.image_sets import NO_LABEL, ImageSet, Labels
from protofission.data.readers.image_folders import load_folder
from protofission.data.store.manifest import fingerprint
from protofission.data.store.mapped_arrays import JoinedRows

FEW = 10
"""Fewest labeled images of a class that is not called small."""
MOST_CLASSES = 1000
"""Most classes; with more, a step on a CPU takes seconds and gigabytes."""


@dataclass(frozen=True)
class FitData:
    """The images of a fit, and the findings of their check."""

    images: ImageSet
    """The labeled images that are used, then every image of the pool that could be read."""
    num_labeled: int
    repeated: NDArray[np.bool_]
    """(pool,): images that are among the labeled ones too; they are not learned from."""
    unreadable: dict[str, str]
    """Files of the pool that were left out, by path, each with the reason."""
    findings: tuple[str, ...]
    """Sentences on duplicates, small classes and files that were left out."""
    folders: tuple[Path, Path]
    """Folders that paths are relative to, absolute: of the labeled images, and of the pool."""
    folder_of: NDArray[np.int64]
    """(images,): indices into `folders`."""

    @property
    def labels(self) -> Labels:
        """Labels of the labeled images."""
        return self.images.labels[: self.num_labeled]

    @property
    def pool_paths(self) -> tuple[str, ...]:
        """Paths of the images of the pool."""
        return self.images.paths[self.num_labeled :]

    def fingerprint(self) -> str:
        """Fingerprint of all pixels and labels, by the digests of the images."""
        images = self.images
        return fingerprint(
            images.pixels.shape, images.pixel_digests(), images.labels.tolist(), images.class_names
        )


def load_fit_data(
    labeled: Path,
    pool: Path,
    size: int,
    progress: Progress | None = None,
    pool_progress: Progress | None = None,
) -> FitData:
    """Read and check two folders or lists.

    Of labeled images that are the same one is used, and none where their labels contradict each
    other. Images of a list of labeled ones that have no label join the pool.

    Args:
        size: the side at which images are decoded.
        progress: called with the number of labeled files read, and of all.
        pool_progress: the same for the pool.
    """
    known, about_known = load_folder(labeled, size, progress=progress)
    require(
        bool((known.labels != NO_LABEL).any()),
        f"{printable(str(labeled))} holds no class subfolders: give one for each class, or a list "
        "with a column of labels.",
    )
    others, about_pool = load_folder(pool, size, unlabeled=True, progress=pool_progress)
    digests = known.pixel_digests()
    used, findings = _select_labeled(known, digests)
    rest = np.flatnonzero(known.labels == NO_LABEL)
    labels, names = _renumber_classes(known, used, findings)
    used_digests = tuple(digests[place] for place in used)
    pool_digests = (*(digests[place] for place in rest), *others.pixel_digests())
    repeated = np.isin(pool_digests, used_digests)
    pool_rows = [(known.pixels, rest), (others.pixels, np.arange(len(others.labels)))]
    images = ImageSet(
        JoinedRows([(known.pixels, used), *pool_rows]),
        np.concatenate([labels, np.full(len(pool_digests), NO_LABEL)]),
        names,
        paths=tuple(known.paths[place] for place in (*used, *rest)) + others.paths,
        digests=used_digests + pool_digests,
    )
    return FitData(
        images,
        len(used),
        repeated,
        dict(about_pool.left_out),
        (
            # as they were named: a bundle, which holds this, shall not tell where its maker lives
            *replace(about_known, source=str(labeled)).lines(),
            *replace(about_pool, source=str(pool)).lines(),
            *findings,
            *_small_classes_finding(labels, names),
            *_repeated_finding(int(repeated.sum())),
        ),
        (_folder_of(labeled), _folder_of(pool)),
        np.repeat(np.arange(2), [len(used) + len(rest), len(others.labels)]),
    )


def _folder_of(source: Path) -> Path:
    """The folder that paths are relative to: the source, or the one that a list lies in."""
    source = source.expanduser().absolute()
    return source if source.is_dir() else source.parent


def _select_labeled(known: ImageSet, digests: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Select the labeled images to use: their indices, and findings on the others."""
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


def _renumber_classes(
    known: ImageSet, used: NDArray[np.int64], findings: Sequence[str]
) -> tuple[Labels, tuple[str, ...]]:
    """Number the classes that have a used image: (L,) labels, and the names of the classes."""
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


def _small_classes_finding(labels: Labels, names: Sequence[str]) -> list[str]:
    counts = np.bincount(labels, minlength=len(names))
    small = [f"{printable(names[c])} ({counts[c]})" for c in np.flatnonzero(counts < FEW).tolist()]
    if not small:
        return []
    more = f" and {len(small) - 10} more" if len(small) > 10 else ""
    return [f"Classes with fewer than {FEW} labeled images: {', '.join(small[:10])}{more}."]


def _repeated_finding(count: int) -> list[str]:
    if not count:
        return []
    what = (
        "image of the pool is a labeled one"
        if count == 1
        else "images of the pool are labeled ones"
    )
    return [f"{count:,} {what} too; nothing is learned from {'it' if count == 1 else 'them'}."]
