"""The material of a workbench: all that a fit kept, and the verdicts of the model on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.errors import InputError, printable, require
from protofission.data.store.reader import Store
from protofission.data.store.stored_views import StoredViews
from protofission.system.paths import path_of
from protofission.system.plain_files import read_plain
from protofission.triage.bundle import Bundle
from protofission.triage.calibrated_model import ACCEPT, JUDGED_AT_ONCE, Verdicts, judge
from protofission.triage.fit_options import FitOptions
from protofission.triage.kept_images import FEATURES_FOLDER, KeptImages, not_kept
from protofission.triage.label_verdicts import LabelVerdicts
from protofission.triage.workbench.groups import GroupEdits, ModelRows
from protofission.triage.workbench.state import WorkbenchState
from protofission.triage.workbench.versions import version_folder

MOST_IMAGE_BYTES = 2**30
"""Largest size of an image's file that is read."""


class FeatureRows:
    """The features of all images, memory-mapped; digests are checked when they are first read."""

    def __init__(self, store: Store) -> None:
        self.store, self._views = store, StoredViews(store)

    def __len__(self) -> int:
        return self.store.plan.parts["train"].rows

    @property
    def width(self) -> int:
        """D, the features of an image."""
        return self.store.plan.item[0]

    def rows(self, numbers: Ints) -> NDArray[np.float32]:
        """(n, D): the features of images by their row numbers."""
        try:
            rows = torch.from_numpy(np.asarray(numbers, np.int64))
            found: NDArray[np.float32] = self._views.plain(rows).float().numpy()
        except InputError as error:
            raise _damaged(self.store.folder, error) from None
        return found


@dataclass(frozen=True, eq=False)
class Material:
    """The images, features and model that a workbench works on; rows are L labeled, then U pool."""

    model: Path
    """The folder of the model."""
    bundle: Bundle
    """A version of the model; at first that of the fit."""
    version: int
    """Its number; 0 is that of the fit."""
    features: FeatureRows
    kept: KeptImages
    folders: tuple[Path, Path]
    """Folders of the labeled images and of the pool, where they are now."""

    @staticmethod
    def open(model: Path | str, labeled: Path | None = None, pool: Path | None = None) -> Material:
        """Open what a fit kept in the folder of a model.

        Args:
            labeled: the folder or list of the labeled images, if it was moved.
            pool: the folder or list of the pool, if it was moved.

        Raises:
            InputError: it keeps nothing, or what it keeps is damaged or of another model.
        """
        model = path_of(model).absolute()
        bundle = Bundle.load(_version_folder(model, 0))
        kept = KeptImages.read(model)
        if not (model / FEATURES_FOLDER).is_dir():
            raise not_kept(model)
        try:
            features = FeatureRows(Store.open(model / FEATURES_FOLDER))
        except InputError as error:
            raise _damaged(model / FEATURES_FOLDER, error) from None
        plan = features.store.plan
        require(
            bundle.class_names == kept.class_names
            and len(features) == len(kept.paths)
            and len(plan.item) == 1
            and plan.encoder["fingerprint"] == bundle.encoder_facts["fingerprint"],
            f"{printable(str(model))} keeps images and features of another model: fit it again.",
        )
        given = zip((labeled, pool), kept.folders, strict=True)
        first, second = (_folder(own, Path(old)) for own, old in given)
        return Material(model, bundle, 0, features, kept, (first, second))

    @property
    def paths(self) -> tuple[str, ...]:
        """(L + U,): paths, relative to the image's folder, or absolute."""
        return self.kept.paths

    @property
    def num_images(self) -> int:
        """L + U, all images."""
        return len(self.kept.paths)

    @property
    def num_labeled(self) -> int:
        """L, images with a label of the user's folders."""
        return len(self.kept.labels)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes at the fit; their places are the ids of these classes."""
        return self.kept.class_names

    @property
    def duplicates(self) -> tuple[tuple[int, ...], ...]:
        """Groups of rows that are near-duplicates."""
        return self.kept.duplicates

    @property
    def unreadable(self) -> dict[str, str]:
        """Files of the pool that could not be read, each with the reason."""
        return self.kept.unreadable

    @property
    def options(self) -> FitOptions:
        """The options of the fit."""
        return self.kept.options

    @cached_property
    def labels(self) -> Ints:
        """(L,): the labels of the user's folders."""
        return np.array(self.kept.labels, np.int64)

    @cached_property
    def repeated(self) -> NDArray[np.bool_]:
        """(L + U,): images of the pool that are labeled ones too."""
        found = np.zeros(self.num_images, bool)
        found[list(self.kept.repeated)] = True
        return found

    @cached_property
    def label_verdicts(self) -> LabelVerdicts:
        """Verdicts of the fit on the labels, by models that did not see them."""
        return self.kept.label_verdicts()

    @cached_property
    def verdicts(self) -> Verdicts:
        """Verdicts of the model on all images."""
        starts = range(0, self.num_images, JUDGED_AT_ONCE)
        every = np.arange(self.num_images)
        return judge(
            self.bundle.calibrated_model,
            (torch.from_numpy(self.features.rows(every[i : i + JUDGED_AT_ONCE])) for i in starts),
        )

    @cached_property
    def model_rows(self) -> ModelRows:
        """The verdicts as plain arrays."""
        found = self.verdicts
        return ModelRows(
            found.classes.numpy(),
            found.subclasses.numpy(),
            found.decisions.numpy() == ACCEPT,
            found.clusters.numpy(),
        )

    def start_state(self) -> WorkbenchState:
        """The state before any action."""
        kept = self.kept
        return WorkbenchState.start(
            self.labels, self.num_images, kept.class_names, kept.subclass_names, kept.cluster_names
        )

    def version_folder(self, version: int) -> Path:
        """The folder of the bundle of a version, to be saved there before it is kept."""
        return version_folder(self.model, version)

    def at(self, version: int, groups: GroupEdits) -> Material:
        """The material with another version of the model.

        Args:
            groups: the groups of the state, which the model must fit.

        Raises:
            InputError: the version is missing, damaged, or another one than was kept.
        """
        if version == self.version:
            return self
        bundle = Bundle.load(_version_folder(self.model, version))
        counts = bundle.calibrated_model.subclass_counts
        require(
            bundle.calibrated_model.inputs == self.features.width and _fits(groups, counts, bundle),
            f"Version {version} of the model of {printable(str(self.model))} is not the one that "
            "was kept: put a copy back.",
        )
        return replace(self, bundle=bundle, version=version)

    def missing_folders(self) -> list[str]:
        """A sentence for each folder of images that is not there any more."""
        options = ("--labeled DIR", "POOL")
        return [
            f"The folder {printable(str(folder))} is gone, and its images cannot be shown: open "
            f"the workbench with its new place ({option})."
            for number, (folder, option) in enumerate(zip(self.folders, options, strict=True))
            if number in self.kept.folder_of and not folder.is_dir()
        ]

    def file(self, row: int) -> Path:
        """The file of an image, absolute, where it was or where its folder is now."""
        require(0 <= row < self.num_images, f"There is no image {row}.")
        return self.folders[self.kept.folder_of[row]] / self.kept.paths[row]

    def read_file(self, row: int) -> bytes:
        """The content of an image's file.

        Raises:
            InputError: it is gone or cannot be read.
        """
        path = self.file(row)
        option = ("--labeled DIR", "POOL")[self.kept.folder_of[row]]
        try:
            return read_plain(path, MOST_IMAGE_BYTES)
        except FileNotFoundError:
            why = "is gone"
        except OSError as error:
            why = f"cannot be read ({error.strerror or error})"
        raise InputError(
            f"{printable(str(path))} {why}: put it back, or open the workbench with the new place "
            f"of its folder ({option})."
        )


def _version_folder(model: Path, version: int) -> Path:
    """The folder that has a version; the model of the fit is in the model's own until a keep."""
    found = version_folder(model, version)
    return model if version == 0 and not found.exists() else found


def _fits(groups: GroupEdits, counts: tuple[int, ...], bundle: Bundle) -> bool:
    named = tuple(map(len, groups.subclass_names))
    return named == counts and len(groups.cluster_names) >= bundle.calibrated_model.num_clusters


def _folder(given: Path | None, kept: Path) -> Path:
    """The folder that paths are relative to: as it was, or where it was moved to."""
    if given is None:
        return kept
    found = path_of(given).absolute()
    require(found.exists(), f"{printable(str(found))} is not there: name the folder of the images.")
    return found if found.is_dir() else found.parent


def _damaged(folder: Path, error: InputError) -> InputError:
    return InputError(
        f"The features in {printable(str(folder))} cannot be used ({str(error).rstrip('.')}): fit "
        "the model again, or take another copy of the folder."
    )
