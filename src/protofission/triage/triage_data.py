"""The content of a triage: plain arrays and sentences that its page and its tables are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.errors import require
from protofission.data.image_sets import PixelRows
from protofission.triage.label_verdicts import LabelVerdicts

NO_GROUP = -1
"""The number of an image that is in no group of near-duplicates."""


@dataclass(frozen=True)
class PoolVerdicts:
    """Verdicts on the U images of a pool."""

    classes: Ints
    """(U,): the likeliest known class."""
    probability: NDArray[np.floating]
    """(U,): of that class."""
    subclasses: Ints
    """(U,): the sub-class of that class."""
    id_scores: NDArray[np.floating]
    """(U,): higher is more like a known class."""
    decisions: Ints
    """(U,): indices into DECISIONS."""
    clusters: Ints
    """(U,): the cluster of an image that was not accepted, else NO_CLASS."""
    typicality: NDArray[np.floating]
    """(U,): higher is more typical of the image's cluster: these are shown first."""


@dataclass(frozen=True)
class TriageData:
    """The images, verdicts, names and sentences of a fit.

    Images are the L labeled ones, then the U of the pool.
    """

    pixels: PixelRows
    """(L + U, channels, height, width)."""
    paths: Sequence[str]
    """(L + U,): as the tables have them: relative to the image's folder, or absolute."""
    folders: Sequence[Path]
    """Folders that paths are relative to, absolute."""
    folder_of: Ints
    """(L + U,): indices into `folders`."""
    labels: LabelVerdicts
    """Verdicts on the L labels."""
    pool: PoolVerdicts
    duplicate_groups: Ints
    """(L + U,): the number of the group of near-duplicates that an image is in, or NO_GROUP."""
    class_names: Sequence[str]
    subclass_names: Sequence[Sequence[str]]
    """Names of the sub-classes of each class; classes may have different numbers of them."""
    cluster_names: Sequence[str]
    known_scores: NDArray[np.floating]
    """ID scores of known images by models that did not see them."""
    threshold: float
    """The lowest ID score that is accepted."""
    guarantee: str
    """A sentence on the threshold."""
    facts: Sequence[tuple[str, str]]
    """Facts to read first: a word or two, and a sentence."""
    findings: Sequence[str]
    """Sentences on the data."""
    kinds: Sequence[str] = ()
    """Sentences on the sub-classes of each class."""

    def __post_init__(self) -> None:
        count, labeled, pool = len(self.paths), len(self.labels.labels), len(self.pool.classes)
        require(
            count == labeled + pool == len(self.pixels) == len(self.folder_of)
            and count == len(self.duplicate_groups),
            f"{labeled} labeled images and {pool} of the pool want as many paths ({count}), rows "
            f"of pixels ({len(self.pixels)}), folders ({len(self.folder_of)}) and groups "
            f"({len(self.duplicate_groups)}).",
        )

    @property
    def num_labeled(self) -> int:
        """L, the number of labeled images."""
        return len(self.labels.labels)

    def file(self, image: int) -> Path:
        """The file of an image, absolute where its folder is."""
        return self.folders[int(self.folder_of[image])] / self.paths[image]

    def duplicate_numbers(self) -> Ints:
        """(L + U,): groups of near-duplicates numbered from 1 by their first image; 0 for none."""
        groups, first, inverse, counts = np.unique(
            self.duplicate_groups, return_index=True, return_inverse=True, return_counts=True
        )
        real = (groups != NO_GROUP) & (counts > 1)
        order = np.argsort(np.where(real, first, len(inverse)), kind="stable")
        numbers = np.zeros(len(groups), np.int64)
        numbers[order[: real.sum()]] = np.arange(1, real.sum() + 1)
        return numbers[inverse]
