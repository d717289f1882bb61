"""The workbench: the state of a model, and the way to change it that keeps its log."""

from __future__ import annotations

import secrets
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from protofission.core.array_types import Ints
from protofission.core.errors import InputError, printable, require
from protofission.triage.workbench.actions import (
    Action,
    DrawRandom,
    JunkClusters,
    PromoteClusters,
    PromoteSubclass,
    Redo,
    SplitCluster,
    Undo,
)
from protofission.triage.workbench.group_views import (
    ClusterGroup,
    SubclassGroup,
    cluster_groups,
    cluster_of_rows,
    subclass_groups,
    subclass_of_rows,
)
from protofission.triage.workbench.log import REMEDY, ActionLog
from protofission.triage.workbench.state import WorkbenchState

if TYPE_CHECKING:  # it imports torch, and a workbench can do without
    from protofission.triage.workbench.material import Material

MOST_DRAWN = 10_000
"""Most images that are drawn at random at once."""


class Workbench:
    """A material and its log; every change goes through `do`, which keeps it first.

    Safe for threads: `state` and `material` are values that do not change, a change makes new
    ones.

    Raises:
        InputError: the log does not fit the material.
    """

    def __init__(self, material: Material, log: ActionLog) -> None:
        self._log, self._lock = log, threading.Lock()
        try:
            state = _replay(material.start_state(), log)
            self._now = state, material.at(state.version, state.groups)
        except BaseException:
            log.close()
            raise

    @staticmethod
    def open(
        model: Path,
        labeled: Path | None = None,
        pool: Path | None = None,
        *,
        read_only: bool = False,
    ) -> Workbench:
        """Open the workbench of a model's folder.

        Args:
            labeled: the folder of the labeled images, if it was moved.
            pool: the folder of the pool, if it was moved.
            read_only: look, while another process may be at work on it.
        """
        from protofission.triage.workbench.material import Material

        material = Material.open(model, labeled, pool)
        return Workbench(material, ActionLog(material.model, read_only=read_only))

    def close(self) -> None:
        """Let others in."""
        self._log.close()

    def __enter__(self) -> Workbench:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def check_place(self) -> None:
        """Refuse to write beside a model that was moved or deleted meanwhile."""
        self._log.check_place()

    @property
    def state(self) -> WorkbenchState:
        """The state now; a value that stays as it is."""
        return self._now[0]

    @property
    def material(self) -> Material:
        """The material with the version of the model that is kept now."""
        return self._now[1]

    @property
    def now(self) -> tuple[WorkbenchState, Material]:
        """State and material of one moment."""
        return self._now

    def do(self, action: Action) -> int:
        """Check an action against the state, keep it in the log, apply it, and return its id.

        The images of a group that is promoted or junked are filled in.

        Raises:
            InputError: it does not fit, or cannot be kept; then nothing has changed.
        """
        with self._lock:
            return self._do(action)

    def undo(self, expected: int | None = None) -> int:
        """Take the last action back; the id of the undo.

        Args:
            expected: the id of the action that the caller means; another one is refused.
        """
        with self._lock:
            last = self.state.next_undo
            if last is None:
                raise InputError("There is nothing to undo.")
            _check_expected(expected, last[0])
            return self._do(Undo(last[0]))

    def redo(self, expected: int | None = None) -> int:
        """Do the action again that was taken back last; the id of the redo.

        Args:
            expected: the id of the action that the caller means; another one is refused.
        """
        with self._lock:
            last = self.state.next_redo
            if last is None:
                raise InputError("There is nothing to do again.")
            _check_expected(expected, last[0])
            return self._do(Redo(last[0]))

    def draw_random(self, count: int) -> tuple[int, ...]:
        """Draw images of the pool at random into a queue, and return their rows.

        Each that was not drawn before is as likely as any other, whether it has a label or not: of
        the rest alone, the draw would lack what was chosen before (`calibration_labels`). Those
        with a label count as answered. Fewer are drawn if fewer are left.
        """
        require(
            1 <= count <= MOST_DRAWN,
            f"{count} images cannot be drawn: give a number from 1 to {MOST_DRAWN:,}.",
        )
        with self._lock:
            state, material = self._now
            may_be = ~state.drawn & ~material.repeated
            may_be[: state.num_labeled] = False
            left = np.flatnonzero(may_be)
            require(len(left) > 0, "Every image of the pool was drawn already.")
            random = np.random.default_rng(secrets.randbits(128))
            rows = tuple(random.permutation(left)[:count].tolist())
            self._do(DrawRandom(rows))
            return rows

    def clusters(self) -> list[ClusterGroup]:
        """The clusters that are not part of others, with their images."""
        state, material = self._now
        return cluster_groups(state, material.model_rows)

    def subclasses(self, class_id: int) -> list[SubclassGroup]:
        """The sub-classes of a class, with their images."""
        state, material = self._now
        return subclass_groups(state, material.model_rows, class_id)

    def cluster_of(self) -> Ints:
        """(N,): the cluster of each image that is not accepted and has no label; else -1."""
        state, material = self._now
        return cluster_of_rows(state, material.model_rows)

    def subclass_of(self) -> Ints:
        """(N,): the sub-class of each image in its likeliest class; -1 without one."""
        state, material = self._now
        return subclass_of_rows(state, material.model_rows)

    def _do(self, action: Action) -> int:
        action = self._with_images(action)
        state = self.state.copy()
        state.apply(self._log.last_id + 1, action)
        material = self.material.at(state.version, state.groups)
        number = self._log.append(action)
        self._now = state, material
        return number

    def _with_images(self, action: Action) -> Action:
        """An action on a group with the images of the group."""
        match action:
            case PromoteSubclass(class_id=class_id, subclass=subclass):
                self.state.groups.check_subclass(class_id, subclass)
                final = self.state.resolve(class_id)
                rows = next(
                    own.rows
                    for own in self.subclasses(final)
                    if (own.class_id, own.number) == (class_id, subclass)
                )
                return replace(action, images=_members(rows, f"Sub-class {subclass}"))
            case PromoteClusters(clusters=clusters) | JunkClusters(clusters=clusters):
                return replace(action, images=self._cluster_images(*clusters))
            case SplitCluster(cluster=cluster, parts=parts):
                images = self._cluster_images(cluster)
                require(
                    sorted(row for part in parts for row in part) == sorted(images),
                    f"The parts are not the {len(images):,} images of cluster {cluster}: reload "
                    "the page, and split it again.",
                )
        return action

    def _cluster_images(self, *clusters: int) -> tuple[int, ...]:
        """The images of clusters, none of which is empty."""
        numbers = self.cluster_of()
        for one in clusters:
            self.state.groups.check_cluster(one)
        filled = {*numbers.tolist()}
        for one in clusters:
            require(one in filled, f"Cluster {one} has no images any more: nothing is left to do.")
        return tuple(np.flatnonzero(np.isin(numbers, clusters)).tolist())


def _replay(state: WorkbenchState, log: ActionLog) -> WorkbenchState:
    """The state after all actions of a log."""
    for number, action in log.actions():
        try:
            state.apply(number, action)
        except InputError as wrong:
            raise InputError(
                f"{printable(str(log.path))} does not fit the model (action {number}: "
                f"{str(wrong).rstrip('.')}): {REMEDY}."
            ) from None
    return state


def _members(rows: Ints, name: str) -> tuple[int, ...]:
    require(len(rows) > 0, f"{name} has no images any more: nothing is left to do.")
    return tuple(rows.tolist())


def _check_expected(expected: int | None, found: int) -> None:
    require(
        expected in (None, found),
        f"Action {expected} is not the last one any more: reload the page to see what was done.",
    )
