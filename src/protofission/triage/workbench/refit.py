"""Fit a model again, on the features that are kept, to the labels that a person has given.

Labels that somebody chose train and set neither threshold nor temperature; `calibration_labels`
says what calibrates, what of that is proved and what is assumed. Without a new label, the refit is
the fit, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from protofission.core.array_types import Ints
from protofission.core.errors import require
from protofission.core.progress import StageProgress
from protofission.data.image_sets import NO_LABEL, ImageSet
from protofission.pages.thumbnails import LARGEST_SIDE
from protofission.triage.bundle import Bundle
from protofission.triage.calibrated_model import ACCEPT, Verdicts, judge
from protofission.triage.fit_data import FitData
from protofission.triage.fit_files import bundle_of_fit, write_fit_files
from protofission.triage.fit_model import MOST_DUPLICATES, FitResult, fit_features
from protofission.triage.fold_ensemble import FoldEnsemble
from protofission.triage.folds import NO_FOLD, Mask
from protofission.triage.workbench.calibration_labels import (
    GivenLabels,
    RefitLabels,
    labels_of_refit,
)
from protofission.triage.workbench.carried_names import CarriedNames, carry_names
from protofission.triage.workbench.groups import ModelRows
from protofission.triage.workbench.material import Material
from protofission.triage.workbench.moved_images import Decided, MovedImages, moved_images
from protofission.triage.workbench.state import WorkbenchState
from protofission.triage.workbench.statistics import Comparison, compare_fits, judge_held_out
from protofission.triage.workbench.user_pixels import UserPixels
from protofission.triage.workbench.versions import RefitRecord, read_record, write_record

MOST_COMPARED = 4000
"""Most images of the pool by which before and after are compared; of more, some evenly spaced."""
DEFAULT_SIDE = 112
"""Side of decoded images, where the encoder does not tell its own."""


@dataclass(frozen=True, eq=False)
class RefitResult:
    """A refit that was neither kept nor dropped yet."""

    fitted: FitResult
    labels: RefitLabels
    bundle: Bundle
    comparison: Comparison
    moved: MovedImages
    names: CarriedNames
    parts: dict[int, int]
    """Numbers of sub-classes of classes that a person divided otherwise, by id."""
    data: FitData
    """The images, as the tables and the page show them."""

    def report(self) -> dict[str, Any]:
        """Before and after, sentences and what moved, in plain JSON values."""
        names = dict(zip(self.labels.class_ids, self.labels.class_names, strict=True))
        before, after = (self.comparison.facts(which) for which in (0, 1))
        low, high = self.comparison.accuracy_interval
        return {
            "before": before,
            "after": after,
            "accuracy_difference": {"low": low, "high": high},
            "sentences": [
                *self.comparison.sentences(),
                self.fitted.guarantee.sentence(),
                *self.labels.sentences,
            ],
            "moved": [*self.moved.sentences(names), *self.names.sentences],
            "images": self.moved.facts(),
        }

    def record(self) -> RefitRecord:
        """All that the next refit and the log need to know of this one."""
        return RefitRecord(
            self.labels.class_ids,
            self.bundle.subclass_names,
            self.bundle.cluster_names,
            tuple(self.labels.rows.tolist()),
            tuple(self.labels.labels.tolist()),
            tuple(self.fitted.folds.tolist()),
            {str(number): count for number, count in self.parts.items()},
            self.report(),
        )

    def write(
        self, folder: Path, model: Path, command: str, console: Console | None = None
    ) -> None:
        """Write the files of the refit into a folder.

        Args:
            model: the folder of the model, where the page will lie.
            command: the command that the page names.
        """
        console = console or Console(quiet=True)
        write_fit_files(
            self.bundle, self.fitted, self.data, folder, model.absolute(), console, command
        )
        write_record(folder, self.record())


def refit(
    material: Material,
    state: WorkbenchState,
    *,
    processes: int = 1,
    progress: StageProgress = lambda what, done, total: None,
) -> RefitResult:
    """Fit a model to all labels of a state, and compare it with the one in use.

    Nothing is written. An exception that `progress` raises ends it.

    Args:
        material: with the version of the model that the state has.
        processes: how many train, at most.

    Raises:
        InputError: fewer than two classes have labels.
    """
    require(
        material.version == state.version,
        f"The material is of version {material.version} of the model, and the state of "
        f"{state.version}: take both at one moment.",
    )
    labels = labels_of_refit(given_labels(state), material.repeated)
    rows = material.features.rows
    before = _model_before(material, state)
    parts = _wanted_parts(state, before.parts)
    places = {number: place for place, number in enumerate(labels.class_ids)}
    duplicates = _duplicates(material, np.concatenate([labels.rows, labels.pool]))
    fitted = fit_features(
        rows(labels.rows),
        labels.labels,
        lambda numbers: rows(labels.pool[numbers]),
        len(labels.pool),
        material.options,
        learn_from=_learned(material, labels),
        calibrates=labels.calibrates,
        strangers=labels.strangers,
        parts={places[number]: count for number, count in parts.items() if number in places},
        duplicates=duplicates if material.num_images <= MOST_DUPLICATES else None,
        processes=processes,
        progress=progress,
    )
    progress("comparing before and after", 0, 2)
    fitted = replace(fitted, about_labels=" ".join(labels.sentences), duplicates=duplicates)
    verdicts = _all_verdicts(material, labels, fitted)
    comparison = _compare(material, labels, before, fitted)
    progress("comparing before and after", 1, 2)
    new = ModelRows(
        verdicts.classes.numpy(),
        verdicts.subclasses.numpy(),
        verdicts.decisions.numpy() == ACCEPT,
        verdicts.clusters.numpy(),
    )
    names = carry_names(
        state, material.model_rows, material.bundle, labels, new, fitted.calibrated_model
    )
    data = _fit_data(material, labels)
    bundle = bundle_of_fit(
        fitted,
        data,
        material.bundle.encoder_spec,
        material.bundle.encoder_facts,
        material.options,
        subclass_names=names.subclasses,
        cluster_names=names.clusters,
    )
    progress("comparing before and after", 2, 2)
    moved = _moved(material, labels, before, new)
    return RefitResult(fitted, labels, bundle, comparison, moved, names, parts, data)


def given_labels(state: WorkbenchState) -> GivenLabels:
    """The labels of a state."""
    return GivenLabels(
        state.label_of,
        state.num_labeled,
        state.random_queues,
        {own.id: own.name for own in state.live_classes},
    )


@dataclass(frozen=True, eq=False)
class _Before:
    """The model in use, and what it learned from."""

    ensemble: FoldEnsemble
    classes: Ints
    """(S,): the ids that its classes have now."""
    fold_of: Ints
    """(N,): the fold of each label that calibrated; NO_FOLD of others."""
    trained: Mask
    """(N,): labels that every model learned from."""
    parts: dict[int, int]


def _model_before(material: Material, state: WorkbenchState) -> _Before:
    ensemble = material.bundle.calibrated_model
    if not isinstance(ensemble, FoldEnsemble):
        raise AssertionError("a model that keeps its images is of folds")
    parts: dict[int, int] = {}
    if material.version:
        record = read_record(material.version_folder(material.version))
        rows, folds = np.array(record.rows, np.int64), np.array(record.folds, np.int64)
        parts = {int(number): count for number, count in record.parts.items()}
    else:
        rows, folds = np.arange(material.num_labeled), np.array(material.kept.folds, np.int64)
    fold_of = np.full(material.num_images, NO_FOLD)
    fold_of[rows] = folds
    trained = np.zeros(material.num_images, bool)
    trained[rows] = folds == NO_FOLD
    ids = np.array([state.resolve(number) for number in state.groups.classes], np.int64)
    return _Before(ensemble, ids, fold_of, trained, parts)


def _wanted_parts(state: WorkbenchState, before: dict[int, int]) -> dict[int, int]:
    """Numbers of sub-classes, by class, where a person changed them; also in a refit before."""
    groups = state.groups
    found = {number: count for number, count in before.items() if state.resolve(number) == number}
    for place, number in enumerate(groups.classes):
        if state.resolve(number) != number:
            continue
        if number in groups.dissolved:
            found[number] = 1
            continue
        gone = {own for (owner, own) in groups.subclass_merges if owner == number}
        gone |= {own for (owner, own) in groups.subclass_promotions if owner == number}
        if gone:
            found[number] = max(1, len(groups.subclass_names[place]) - len(gone))
    return found


def _learned(material: Material, labels: RefitLabels) -> Mask:
    """(U',): images of the pool to learn from: none that is a copy of a labeled one."""
    new = labels.rows[labels.rows >= material.num_labeled]
    learned = ~material.repeated[labels.pool]
    if len(new):
        keys = _keys(material.features.rows(new))
        for start in range(0, len(labels.pool), MOST_COMPARED):
            some = slice(start, start + MOST_COMPARED)
            learned[some] &= ~np.isin(_keys(material.features.rows(labels.pool[some])), keys)
    return learned


def _keys(rows: NDArray[np.float32]) -> NDArray[Any]:
    """(n,): the bytes of each row."""
    whole = np.ascontiguousarray(rows + np.float32(0))  # -0 becomes 0
    return whole.view(f"V{whole.dtype.itemsize * whole.shape[1]}")[:, 0]


def _duplicates(material: Material, rows: Ints) -> Ints:
    """(n,): the group of near-duplicates that the fit put each image in, numbered anew."""
    groups = np.arange(material.num_images)
    for own in material.duplicates:
        groups[list(own)] = own[0]
    return np.unique(groups[rows], return_inverse=True)[1].reshape(-1)


def _all_verdicts(material: Material, labels: RefitLabels, fitted: FitResult) -> Verdicts:
    """Verdicts of the new model on all N images."""
    own = torch.from_numpy(material.features.rows(labels.rows))
    of_labels = judge(fitted.calibrated_model, torch.split(own, MOST_COMPARED))
    order = torch.from_numpy(np.argsort(np.concatenate([labels.rows, labels.pool])))
    pairs = zip(of_labels, fitted.pool, strict=True)
    return Verdicts(*(torch.cat(pair)[order] for pair in pairs))


def _compare(
    material: Material, labels: RefitLabels, before: _Before, fitted: FitResult
) -> Comparison:
    """Compare both on labels that calibrate now, and that no model before was trained on whole.

    A label that is new to the model before is judged by its model of the same number.
    """
    ids = np.array(labels.class_ids, np.int64)
    known = np.isin(ids[labels.labels], before.classes)
    some = (fitted.folds != NO_FOLD) & known & ~before.trained[labels.rows]
    own, folds = labels.rows[some], fitted.folds[some]
    old = before.fold_of[own]
    fresh = old == NO_FOLD
    old = np.where(fresh, folds % len(before.ensemble.fold_sizes), old)
    pool = labels.pool[~labels.strangers]
    pool = pool[:: max(1, -(-len(pool) // MOST_COMPARED))]
    features = material.features.rows(own), material.features.rows(pool)
    names = ids[labels.labels[some]]
    return compare_fits(
        judge_held_out(
            before.ensemble, features[0], names, before.classes, old, features[1], ~fresh
        ),
        judge_held_out(
            fitted.calibrated_model,
            features[0],
            names,
            ids,
            folds,
            features[1],
            np.ones(len(own), bool),
        ),
        fresh & labels.drawn[some],
        material.options.seed,
    )


def _moved(material: Material, labels: RefitLabels, before: _Before, new: ModelRows) -> MovedImages:
    rows, old = labels.pool[~labels.strangers], material.model_rows
    ids = np.array(labels.class_ids, np.int64)
    return moved_images(
        rows,
        Decided(old.accepted[rows], before.classes[old.classes[rows]]),
        Decided(new.accepted[rows], ids[new.classes[rows]]),
    )


def _fit_data(material: Material, labels: RefitLabels) -> FitData:
    """The images as a fit has them: those with a label first."""
    rows, kept = np.concatenate([labels.rows, labels.pool]), material.kept
    side = min(_decoded_side(material.bundle.encoder_facts), LARGEST_SIDE)  # for the page alone
    images = ImageSet(
        UserPixels(material.read_file, rows, side),
        np.concatenate([labels.labels, np.full(len(labels.pool), NO_LABEL)]),
        labels.class_names,
        paths=tuple(kept.paths[row] for row in rows.tolist()),
        digests=("",) * len(rows),  # copies are in the groups of near-duplicates
    )
    return FitData(
        images,
        len(labels.rows),
        material.repeated[labels.pool],
        material.unreadable,
        (*kept.findings, *labels.sentences),
        material.folders,
        np.array(kept.folder_of, np.int64)[rows],
    )


def _decoded_side(facts: dict[str, Any]) -> int:
    """The side that the encoder wants images decoded at, where it tells it."""
    preprocessing = facts.get("preprocessing")
    found = preprocessing.get("resized") if isinstance(preprocessing, dict) else None
    return found if isinstance(found, int) and 1 <= found <= 4096 else DEFAULT_SIDE
