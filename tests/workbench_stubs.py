"""A material without images, features and torch, and random actions on it, for tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from protofission.core.errors import InputError
from protofission.triage.workbench.actions import (
    UNLABELED,
    Action,
    AddClass,
    ConfirmLabels,
    DissolveSubclasses,
    DrawRandom,
    JunkClusters,
    KeepRefit,
    Label,
    LabelAsNew,
    LabelEach,
    MergeClasses,
    MergeClusters,
    MergeSubclasses,
    NameCluster,
    NameSubclass,
    PromoteClusters,
    PromoteSubclass,
    Redo,
    RenameClass,
    RevertRefit,
    Skip,
    SplitCluster,
    Undo,
)
from protofission.triage.workbench.group_views import cluster_groups, subclass_groups
from protofission.triage.workbench.groups import GroupEdits, ModelRows
from protofission.triage.workbench.state import WorkbenchState

NAMES = ("ash", "birch", "cedar")
LABELED, IMAGES, CLUSTERS, PARTS = 9, 60, 4, 3


@dataclass(frozen=True, eq=False)
class StubMaterial:
    """A material of made-up verdicts."""

    version: int = 0
    known: int = len(NAMES)

    @property
    def model_rows(self) -> ModelRows:
        draw = np.random.default_rng(self.version)
        accepted = draw.random(IMAGES) < 0.5
        return ModelRows(
            draw.integers(0, self.known, IMAGES),
            draw.integers(0, PARTS, IMAGES),
            accepted,
            np.where(accepted, -1, draw.integers(0, CLUSTERS, IMAGES)),
        )

    def start_state(self) -> WorkbenchState:
        parts = [[f"{name} / {i}" for i in range(PARTS)] for name in NAMES]
        clusters = [f"novel {i}" for i in range(CLUSTERS)]
        return WorkbenchState.start(np.arange(LABELED) % 3, IMAGES, NAMES, parts, clusters)

    def at(self, version: int, groups: GroupEdits) -> StubMaterial:
        return replace(self, version=version, known=len(groups.classes))


def random_action(state: WorkbenchState, chance: random.Random) -> Action:
    """An action that fits the state mostly, with the images of groups filled in."""
    some = tuple(chance.sample(range(IMAGES), chance.choice((1, 1, 2, 12))))
    ids = sorted(state.classes)
    one, other, part = chance.choice(ids), chance.choice(ids), chance.randrange(PARTS)
    name, cluster = f"name {chance.randrange(30)}", chance.randrange(CLUSTERS + 2)
    left = np.flatnonzero((state.label_of == UNLABELED) & ~state.drawn).tolist()
    labeled = np.flatnonzero(state.label_of >= 0).tolist()
    makers: list[Callable[[], Action]] = [
        lambda: Skip(some),
        lambda: Label(tuple(state.random_open.tolist()) or some, one, "random"),
        lambda: LabelAsNew(some, name, "next"),
        lambda: LabelEach(some, tuple(chance.choice([*ids, -1]) for _ in some), "next"),
        lambda: ConfirmLabels(tuple(labeled[:3]) or some),
        lambda: DrawRandom(tuple(chance.sample(left, min(3, len(left)))) or some),
        lambda: AddClass(name),
        lambda: RenameClass(one, name),
        lambda: MergeClasses((one,), other if other != one else one + 1),
        lambda: NameSubclass(one, part, name),
        lambda: MergeSubclasses(one, (part,), (part + 1) % PARTS),
        lambda: DissolveSubclasses(one),
        lambda: NameCluster(cluster, name),
        lambda: MergeClusters((cluster,), (cluster + 1) % CLUSTERS),
        lambda: _promotion(state, chance, one, name),
        lambda: RevertRefit(state.version),
        lambda: _refit(state),
        *[lambda: Label(some, chance.choice([*ids, -1, None]), "grid")] * 6,
        *[lambda: _cluster_action(state, chance, cluster, name)] * 3,
        *[lambda: Undo(state.undo_stack[-1] if state.undo_stack else 1)] * 4,
        *[lambda: Redo(state.redo_stack[-1] if state.redo_stack else 1)] * 3,
    ]
    return chance.choice(makers)()


def _promotion(state: WorkbenchState, chance: random.Random, one: int, name: str) -> Action:
    groups = [own for own in subclass_groups(state, _rows(state), one) if len(own.rows)]
    if not groups:
        return AddClass(name)
    own = chance.choice(groups)
    return PromoteSubclass(own.class_id, own.number, name, tuple(own.rows.tolist()))


def _refit(state: WorkbenchState) -> Action:
    live = tuple(own.id for own in state.live_classes)[:3]
    parts = tuple(tuple(f"part {i}" for i in range(PARTS)) for _ in live)
    names = tuple(f"cluster {i}" for i in range(CLUSTERS))
    return KeepRefit(state.newest_version + 1, live, parts, names)


def _rows(state: WorkbenchState) -> ModelRows:
    return StubMaterial().at(state.version, state.groups).model_rows


def _cluster_action(
    state: WorkbenchState, chance: random.Random, cluster: int, name: str
) -> Action:
    groups = {own.number: own for own in cluster_groups(state, _rows(state)) if len(own.rows) > 1}
    if cluster not in groups:
        return MergeClusters((cluster,), (cluster + 1) % CLUSTERS)
    rows = tuple(groups[cluster].rows.tolist())
    several = tuple(chance.sample(sorted(groups), len(groups)))
    rows_of_several = tuple(row for one in several for row in groups[one].rows.tolist())
    return chance.choice(
        (
            PromoteClusters((cluster,), name, rows),
            JunkClusters((cluster,), rows),
            PromoteClusters(several, name, rows_of_several),
            JunkClusters(several, rows_of_several),
            SplitCluster(cluster, (rows[:1], rows[1:])),
        )
    )


def random_log(seed: int, length: int) -> list[tuple[int, Action]]:
    """Actions that a fold takes, with their ids."""
    chance, state, found = random.Random(seed), StubMaterial().start_state(), []
    while len(found) < length:
        action = random_action(state, chance)
        try:
            state.apply(len(found) + 1, action)
        except InputError:
            continue
        found.append((len(found) + 1, action))
    return found
