"""Data sets by name: their readers, their views, and `DataSpec`, the choice of an experiment."""

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
from protofission.data.splits.labeling import Labeling, merged_names
from protofission.data.splits.registry import find_split
from protofission.data.splits.spec import SplitSpec
from protofission.data.splits.split import Split
from protofission.data.store.reader import Store
from protofission.data.store.stored_views import StoredViews, divide_store


def _load_digits(folder: str | None) -> ImageSets:
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
    "digits": (_load_digits, "digits"),
    "mnist": (load_mnist, "digits"),
    "fashion-mnist": (load_fashion_mnist, "digits"),
    "cifar10": (load_cifar10, "natural"),
    "cifar100": (load_cifar100, "natural"),
    "imagenet100": (_imagenet100, "natural"),
}
"""The function that reads each from a folder, and the name of its views."""

ANY_STORE = "train with --preset features, which takes the images and views of any store"


@dataclass(frozen=True)
class DataSpec:
    """The images of an experiment, their split and their views."""

    dataset: str | None = "digits"
    """A name of protofission.data.datasets.DATASETS; none for the one that the store is of."""
    folder: str | None = None
    """The folder of its files, if not in $PROTOFISSION_DATA or the cache folder."""
    split: SplitSpec = field(
        default_factory=lambda: find_split("orca"), metadata={NAMED: find_split}
    )
    """A name of protofission.data.splits.registry.SPLITS, with its options."""
    pool_has_labeled: bool = False
    """Whether the labeled images are in the unlabeled pool as well."""
    views: str | None = None
    """A name of protofission.data.datasets.VIEWS, if not the data set's usual one."""
    store: str | None = None
    """A folder of features of these images, made by `protofission embed`: training uses them in
    place of the images."""

    def __post_init__(self) -> None:
        if self.dataset is not None and self.dataset not in DATASETS:
            raise unknown("dataset", self.dataset, DATASETS)
        if self.views is not None and self.views not in VIEWS:
            raise unknown("views", self.views, VIEWS)

    def read(self) -> ImageSets:
        """Read the images of the data set."""
        return DATASETS[self._dataset_name()][0](self.folder)

    @property
    def augmentations(self) -> Augmentations:
        """The views of its images."""
        return VIEWS[self.views or DATASETS[self._dataset_name()][1]]

    def load(self) -> Data:
        """Read the images, or open the store, and split them."""
        if self.store is not None:
            return self.load_store(Store.open(self.store))
        sets = self.read()
        split = self.split.split(Labeling.of(sets))
        training, test = divide(sets, split, pool_has_labeled=self.pool_has_labeled)
        return Data(training, test, self.augmentations, split, split_class_names(split, sets.train))

    def load_store(self, store: Store) -> Data:
        """Split the images of a store.

        Raises:
            InputError: it is a store of other images or views, or holds no labels.
        """
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
        names = split_class_names(split, store.plan)
        return Data(training, test, StoredViews(store), split, names, store.plan.fingerprints)

    def _dataset_name(self) -> str:
        if self.dataset is None:
            raise InputError(
                "There is no store: make one with `protofission embed DATA --out STORE`, then give "
                "--store STORE."
            )
        return self.dataset


class HasClassNames(Protocol):
    """A source of images that names its classes."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the fine classes."""

    @property
    def coarse_names(self) -> tuple[str, ...]:
        """The names of the coarse classes."""


def split_class_names(split: Split, source: HasClassNames) -> tuple[str, ...]:
    """The names of a split's classes, fine or coarse, the seen ones first."""
    names = source.coarse_names if split.classes == "coarse" else source.class_names
    if split.merge is not None:
        names = merged_names(source.class_names, split.merge)
    return tuple(names[c] for c in split.seen_classes + split.novel_classes)


@dataclass(frozen=True)
class Data:
    """A data set after its split, with its views."""

    training: TrainingData
    test: TestData
    augmentations: Augmentations
    split: Split
    class_names: tuple[str, ...]
    """Names of the classes, seen ones first."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the store, if the inputs are features of one."""
