"""The list of images that a fit keeps beside its model, for the workbench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from protofission.core.array_types import Ints
from protofission.core.errors import InputError, printable, require
from protofission.system.json_files import as_type, parse_json, to_json
from protofission.system.plain_files import read_plain
from protofission.system.whole_files import write_whole
from protofission.triage.fit_options import FitOptions
from protofission.triage.label_verdicts import LabelVerdicts
from protofission.triage.triage_data import NO_GROUP

IMAGES_FILE = "images.json"
FEATURES_FOLDER = "features"
"""The store of the features of all images, labeled ones first."""
IMAGES_FORMAT = 1
MOST_IMAGES_FILE_BYTES = 2**30
"""Largest size of images.json."""


@dataclass(frozen=True)
class KeptImages:
    """The images of a fit, L labeled ones and then U of the pool, and its findings on them."""

    format: int
    folders: tuple[str, str]
    """Folders that paths are relative to, absolute: of the labeled images, and of the pool."""
    class_names: tuple[str, ...]
    subclass_names: tuple[tuple[str, ...], ...]
    cluster_names: tuple[str, ...]
    paths: tuple[str, ...]
    """(L + U,)"""
    folder_of: tuple[int, ...]
    """(L + U,): indices into `folders`."""
    labels: tuple[int, ...]
    """(L,): places in `class_names`."""
    folds: tuple[int, ...]
    """(L,): the fold that each label was held out in; NO_FOLD where every model saw it."""
    likeliest: tuple[int, ...]
    """(L,): the likeliest class by a model that did not see the label; NO_CLASS without one."""
    probability: tuple[float, ...]
    """(L,): of the label; NaN where no model judged."""
    likeliest_probability: tuple[float, ...]
    """(L,): of the likeliest class; NaN where no model judged."""
    doubtful: tuple[int, ...]
    """Rows of the labels in doubt."""
    repeated: tuple[int, ...]
    """Rows of the pool that are labeled images too."""
    duplicates: tuple[tuple[int, ...], ...]
    """Groups of rows that are near-duplicates."""
    unreadable: dict[str, str]
    """Files of the pool that were left out, each with the reason."""
    findings: tuple[str, ...]
    options: FitOptions

    def __post_init__(self) -> None:
        count, labeled, classes = len(self.paths), len(self.labels), len(self.class_names)
        require(self.format == IMAGES_FORMAT, f"format = {self.format} is not known.")
        require(len(self.folder_of) == count, "folder_of has another length than paths.")
        _check_range("folder_of", self.folder_of, 0, 2)
        require(labeled <= count, "there are more labels than paths.")
        for name in ("folds", "likeliest", "probability", "likeliest_probability"):
            require(len(getattr(self, name)) == labeled, f"{name} has another length than labels.")
        _check_range("labels", self.labels, 0, classes)
        _check_range("likeliest", self.likeliest, -1, classes)
        _check_range("doubtful", self.doubtful, 0, labeled)
        _check_range("repeated", self.repeated, labeled, count)
        for group in self.duplicates:
            _check_range("duplicates", group, 0, count)
        require(len(set(self.class_names)) == classes > 0, "class_names are not one of each.")
        require(
            len(self.subclass_names) == classes, "subclass_names are not one list for each class."
        )

    def label_verdicts(self) -> LabelVerdicts:
        """Verdicts on the labels, by models that did not see them."""
        doubtful = np.zeros(len(self.labels), bool)
        doubtful[list(self.doubtful)] = True
        return LabelVerdicts(
            labels=np.array(self.labels, np.int64),
            likeliest=np.array(self.likeliest, np.int64),
            probability=np.array(self.probability, np.float64),
            likeliest_probability=np.array(self.likeliest_probability, np.float64),
            folds=np.array(self.folds, np.int64),
            doubtful=doubtful,
        )

    def write(self, folder: Path) -> None:
        """Write the list into the folder of a model."""
        write_whole(folder / IMAGES_FILE, to_json(asdict(self)).encode())

    @staticmethod
    def read(model: Path) -> KeptImages:
        """Read the list of a model.

        Raises:
            InputError: it keeps none, or it was edited or damaged.
        """
        path = model / IMAGES_FILE
        try:
            content = parse_json(read_plain(path, MOST_IMAGES_FILE_BYTES))
            return as_type(content, KeptImages, "", nan=True)
        except (FileNotFoundError, NotADirectoryError):  # a .zip is no folder
            raise not_kept(model) from None
        except OSError as error:
            why = error.strerror or str(error)
        except InputError as error:
            why = str(error).rstrip(".")
        raise InputError(
            f"{printable(str(path))} was edited or is damaged ({why}): fit the model again, or "
            "take another copy of the folder."
        )


def not_kept(model: Path) -> InputError:
    """The refusal of a model that does not keep its features and images."""
    return InputError(
        f"{printable(str(model))} does not keep its features and list of images, as models of an "
        "older protofission, of --no-features or of `protofission pack`: give the folder that "
        "`protofission fit` wrote, or fit it again, to open the workbench on it."
    )


def groups_of_rows(groups: Ints) -> tuple[tuple[int, ...], ...]:
    """The rows of each group of near-duplicates, by their first image.

    Args:
        groups: (N,), NO_GROUP of an image that is alone.
    """
    found: dict[int, list[int]] = {}
    for row in np.flatnonzero(groups != NO_GROUP).tolist():
        found.setdefault(int(groups[row]), []).append(row)
    return tuple(tuple(rows) for rows in found.values() if len(rows) > 1)


def _check_range(name: str, values: Sequence[int], low: int, end: int) -> None:
    if values:
        least, most = min(values), max(values)
        require(
            low <= least and most < end,
            f"{name} has {least if least < low else most}, which is none of {low} to {end - 1}.",
        )
