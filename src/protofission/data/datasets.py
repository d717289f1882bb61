"""Data sets by name: how each is read, and how its images are augmented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from protofission.core.errors import InputError, require, unknown
from protofission.core.options import NAMED
from protofission.data.augment.affine_views import DIGITS
from protofission.data.augment.natural_views import NATURAL, NATURAL_24, NATURAL_ORCA, NATURAL_USB
from protofission.data.augment.views import Augmentations
from protofission.data.image_sets import ImageSets, TestData, TrainingData, divide
from protofission.data.readers.cifar import load_cifar10, load_cifar100
from protofission.data.readers.digits import load_digits
from protofission.data.readers.idx import load_fashion_mnist, load_mnist
from protofission.data.readers.imagenet100 import load_imagenet100
from protofission.data.splits import Labeling, Split, SplitSpec, spec_of
from protofission.data.store.reader import Store, StoredViews, divide_store


def _embedded(folder: str | None) -> ImageSets:
    require(folder is None, f"The digits come with scikit-learn: leave the folder {folder!r} out.")
    return ImageSets(load_digits())


def _imagenet100(folder: str | None) -> ImageSets:
    require(
        folder is not None,
        "ImageNet-100 is made from a folder of ImageNet: name it by data.folder=...",
    )
    return load_imagenet100(str(folder))[0]


VIEWS: dict[str, Augmentations] = {
    "digits": DIGITS,
    "natural": NATURAL,
    "natural-24": NATURAL_24,
    "natural-orca": NATURAL_ORCA,
    "natural-usb": NATURAL_USB,
}

DATASETS: dict[str, tuple[Callable[[str | None], ImageSets], str]] = {
    "digits": (_embedded, "digits"),
    "mnist": (load_mnist, "digits"),
    "fashion-mnist": (load_fashion_mnist, "digits"),
    "cifar10": (load_cifar10, "natural"),
    "cifar100": (load_cifar100, "natural"),
    "imagenet100": (_imagenet100, "natural"),
}
"""How each is read from a folder, and the name of its views."""

ANY_STORE = "train with --preset features, which takes the images and views of any store"


@dataclass(frozen=True)
class DataSpec:
    """Which images, and how they are split."""

    dataset: str | None = "digits"
    """A name of protofission.data.datasets.DATASETS; none for whatever the store is of."""
    folder: str | None = None
    """Where its files are, if not in $PROTOFISSION_DATA or the cache folder."""
    split: SplitSpec = field(default_factory=lambda: spec_of("orca"), metadata={NAMED: spec_of})
    """A name of protofission.data.splits.SPLITS, with its options."""
    pool_has_labeled: bool = False
    """Whether the labeled images are in the unlabeled pool as well."""
    views: str | None = None
    """A name of protofission.data.datasets.VIEWS, if not the data set's usual one."""
    store: str | None = None
    """A folder of features of these images, as `protofission embed` makes it: they are trained on
    in the place of the images."""

    def __post_init__(self) -> None:
        if self.dataset is not None and self.dataset not in DATASETS:
            raise unknown("dataset", self.dataset, DATASETS)
        if self.views is not None and self.views not in VIEWS:
            raise unknown("views", self.views, VIEWS)

    def read(self) -> ImageSets:
        """The images of the data set."""
        return DATASETS[self._named()][0](self.folder)

    @property
    def augmentations(self) -> Augmentations:
        """What makes views of its images."""
        return VIEWS[self.views or DATASETS[self._named()][1]]

    def load(self) -> Data:
        """Read the images, or open the store, and split them."""
        if self.store is not None:
            return self.divided(Store.open(self.store))
        sets = self.read()
        split = self.split.split(Labeling.of(sets))
        training, test = divide(sets, split, pool_has_labeled=self.pool_has_labeled)
        return Data(training, test, self.augmentations, split, shown_names(split, sets.train))

    def divided(self, store: Store) -> Data:
        """The images of a store, split."""
        name = store.plan.data["name"]
        require(
            self.dataset in (None, name),
            f"{store.folder} is a store of {name}, not of {self.dataset}: name another store, or "
            f"{ANY_STORE}.",
        )
        views = store.plan.augmentation.get("views")
        require(
            self.views in (None, views),
            f"{store.folder} holds views of {views}, not of {self.views}: {ANY_STORE}.",
        )
        require(
            len(store.plan.class_names) > 0,
            f"{store.folder} holds no labels, and training wants some: embed a folder with class "
            "subfolders, or a list with labels.",
        )
        split = self.split.split(store.labeling())
        training, test = divide_store(store, split, pool_has_labeled=self.pool_has_labeled)
        names = shown_names(split, store.plan)
        return Data(training, test, StoredViews(store), split, names, store.plan.fingerprints)

    def _named(self) -> str:
        if self.dataset is None:
            raise InputError(
                "There is no store: make one with `protofission embed DATA --out STORE`, then give "
                "--store STORE."
            )
        return self.dataset


class Named(Protocol):
    """What has names for its classes."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Of the fine ones."""

    @property
    def coarse_names(self) -> tuple[str, ...]:
        """Of the coarse ones."""


def shown_names(split: Split, named: Named) -> tuple[str, ...]:
    """The names of the classes that a split is of, the seen ones first."""
    names = named.coarse_names if split.classes == "coarse" else named.class_names
    return tuple(names[c] for c in split.seen_classes + split.novel_classes)


@dataclass(frozen=True)
class Data:
    """A data set, split."""

    training: TrainingData
    test: TestData
    augmentations: Augmentations
    split: Split
    class_names: tuple[str, ...]
    """Seen classes first."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Of the store that the images stand in, if they do."""
