"""The desk: a workbench with the arrays that its screens read, each computed once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Floats, Ints
from protofission.triage.prediction_table import escape_text
from protofission.triage.workbench.actions import UNLABELED
from protofission.triage.workbench.group_views import cluster_of_rows, subclass_of_rows
from protofission.triage.workbench.groups import ModelRows
from protofission.triage.workbench.material import Material
from protofission.triage.workbench.next_table import whitened_units
from protofission.triage.workbench.state import WorkbenchState
from protofission.triage.workbench.versions import read_record, version_folder
from protofission.triage.workbench.workbench import Workbench
from protofission.web.label.image_space import ImageSpace
from protofission.web.label.row_sets import ImageTable, rows_of_set

MOST_KEPT_SETS = 16
"""Most sets of images whose rows are kept until the next action."""


class DeskMoment(NamedTuple):
    """A state with the version of the model that it has kept, and the facts of all images."""

    state: WorkbenchState
    material: Material
    table: ImageTable


class ModelArrays:
    """Verdicts of one version of the model on all images, as arrays."""

    def __init__(self, material: Material) -> None:
        found = material.verdicts
        self.probability: Floats = found.probs.amax(-1).numpy().astype(np.float64)
        self.id_scores: Floats = found.id_scores.numpy().astype(np.float64)
        self.decisions: Ints = found.decisions.numpy().astype(np.int64)
        self.threshold = float(material.bundle.calibrated_model.threshold)


class Desk:
    """A workbench for many threads: every screen is made from one state, and says which.

    A state of the workbench does not change any more, so a screen that takes it once is consistent.
    """

    def __init__(self, workbench: Workbench) -> None:
        self.workbench = workbench
        material = workbench.material
        self.names = tuple(escape_text(path) for path in material.paths)
        self.title = escape_text(material.model.name)
        self.refit_status: Callable[[], dict[str, Any]] = dict
        """The state of the refit in the background, as JSON values."""
        self.versions = threading.Lock()
        """Held while versions of the model change."""
        self._lock, self._space_lock = threading.Lock(), threading.Lock()
        self._fitted: tuple[int, Ints] | None = None
        self._model_units: tuple[Material, NDArray[np.float32]] | None = None
        self._arrays: tuple[Material, ModelArrays] | None = None
        self._moment: DeskMoment | None = None
        self._sets: dict[str, Ints] = {}
        self._space: ImageSpace | None = None
        self._places: tuple[Ints, Ints] | None = None
        self._stability: tuple[Ints, dict[int, float]] | None = None

    @property
    def number(self) -> int:
        """N, all images."""
        return len(self.names)

    @property
    def last_action(self) -> int:
        """The id of the last action."""
        return self.workbench.state.last_id

    @property
    def space(self) -> ImageSpace:
        """Unit vectors of all images, found on first use; some seconds for 100,000 images."""
        with self._space_lock:
            if self._space is None:
                own = self.workbench.material
                self._space = ImageSpace.of(own.features.rows, self.number, own.labels)
            return self._space

    @property
    def places(self) -> tuple[Ints, Ints]:
        """Places of all images on the map."""
        space = self.space
        with self._space_lock:
            if self._places is None:
                self._places = space.places()
            return self._places

    def stability(self, clusters: Ints) -> dict[int, float]:
        """The stability of clusters, kept until they change."""
        space = self.space
        with self._space_lock:
            if self._stability is None or not np.array_equal(self._stability[0], clusters):
                self._stability = clusters, space.stability(clusters)
            return self._stability[1]

    def model_units(self, material: Material) -> NDArray[np.float32]:
        """(N, d): the images in the space of the model's clusters, kept for one version."""
        with self._space_lock:
            found = self._model_units
            if found is None or found[0] is not material:
                self._model_units = found = material, whitened_units(material)
            return found[1]

    def fitted_labels(self, state: WorkbenchState, material: Material) -> Ints:
        """(N,): the labels that the version in use was fitted to, as ids of classes then."""
        found = self._fitted
        if found is None or found[0] != state.version:
            labels = np.full(self.number, UNLABELED)
            labels[: material.num_labeled] = material.labels
            if state.version > 0:
                record = read_record(version_folder(material.model, state.version))
                labels[:] = UNLABELED
                labels[list(record.rows)] = np.array(record.classes)[list(record.labels)]
            self._fitted = found = state.version, labels
        return found[1]

    def now(self) -> DeskMoment:
        """The state after the last action, with the facts of all images in it."""
        with self._lock:
            return self._now()

    def rows_of(self, name: str) -> tuple[ImageTable, Ints]:
        """The rows of a set of images, kept until the next action, and the facts of all images."""
        with self._lock:
            table = self._now().table
            if name not in self._sets:
                if len(self._sets) >= MOST_KEPT_SETS:
                    self._sets.pop(next(iter(self._sets)))
                self._sets[name] = rows_of_set(table, name)
            return table, self._sets[name]

    def _now(self) -> DeskMoment:
        state, material = self.workbench.now
        if self._moment is None or self._moment.state is not state:
            if self._arrays is None or self._arrays[0] is not material:
                self._arrays = material, ModelArrays(material)
            table = self._make_table(state, material.model_rows, self._arrays[1])
            self._moment = DeskMoment(state, material, table)
            self._sets.clear()
        return self._moment

    def _make_table(
        self, state: WorkbenchState, model: ModelRows, arrays: ModelArrays
    ) -> ImageTable:
        groups = state.groups
        ids = np.array(groups.classes, np.int64)
        living = np.array([state.resolve(own) for own in groups.classes], np.int64)
        clusters = groups.cluster_numbers(model)
        return ImageTable(
            last_action=state.last_id,
            num_labeled=state.num_labeled,
            classes=living[model.classes],
            model_classes=ids[model.classes],
            probability=arrays.probability,
            id_scores=arrays.id_scores,
            decisions=arrays.decisions,
            labels=state.label_of,
            skipped=state.skipped,
            subclasses=groups.subclass_numbers(model),
            members=subclass_of_rows(state, model),
            clusters=clusters,
            open_clusters=cluster_of_rows(state, model),
            typicality=self._typicality(clusters),
            random=state.random_queue,
            threshold=arrays.threshold,
            living=frozenset(own.id for own in state.live_classes),
        )

    def _typicality(self, clusters: Ints) -> Floats:
        """The typicality of images in clusters; computed anew only where these have changed."""
        before = None if self._moment is None else self._moment.table
        if before is not None and np.array_equal(before.clusters, clusters):
            return before.typicality
        return self.space.typicality(clusters)
