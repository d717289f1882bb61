"""Data sets by name: how each is read, and how its images are augmented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from protofission.data.augment import DIGITS, Augmentations
from protofission.data.digits import load_digits
from protofission.data.images import ImageSet, TestData, TrainingData, divide
from protofission.data.splits import Split, orca_split
from protofission.errors import check_choices, require

DATASETS: dict[str, tuple[Callable[[], ImageSet], Augmentations]] = {
    "digits": (load_digits, DIGITS),
}


@dataclass(frozen=True)
class DataSpec:
    """Which images, and how they are split."""

    dataset: Literal["digits"] = "digits"
    """A name of protofission.data.datasets.DATASETS."""
    split: Literal["orca"] = "orca"
    """How the images are divided."""
    num_seen: int = 5
    """S: the first S classes are seen."""
    labeled_share: float = 0.5
    """The chance of a seen image to be labeled."""
    split_seed: int = 0
    """Of the split alone: runs of several seeds share their images."""
    pool_has_labeled: bool = False
    """Whether the labeled images are in the unlabeled pool as well."""

    def __post_init__(self) -> None:
        check_choices(self)
        require(
            0 <= self.split_seed < 2**32,
            f"split_seed = {self.split_seed} must be between 0 and 2^32 - 1.",
        )

    def load(self) -> Data:
        """Read the images and split them."""
        read, augmentations = DATASETS[self.dataset]
        images = read()
        split = orca_split(
            images.labels,
            len(images.class_names),
            num_seen=self.num_seen,
            labeled_share=self.labeled_share,
            seed=self.split_seed,
            pool_has_labeled=self.pool_has_labeled,
        )
        training, test = divide(images, split)
        names = tuple(images.class_names[c] for c in split.seen_classes + split.novel_classes)
        return Data(training, test, augmentations, split, names)


@dataclass(frozen=True)
class Data:
    """A data set, split."""

    training: TrainingData
    test: TestData
    augmentations: Augmentations
    split: Split
    class_names: tuple[str, ...]
    """Seen classes first."""
