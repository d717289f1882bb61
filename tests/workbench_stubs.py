"""A material without images, features and torch, and random actions on it, for tests."""

from __future__ import annotations

import random
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
    JunkCluster,
    KeepRefit,
    Label,
    MergeClasses,
    MergeClusters,
    MergeSubclasses,
    NameCluster,
    NameSubclass,
    PromoteCluster,
    PromoteSubclass,
    Redo,
    RenameClass,
    RevertRefit,
    Skip,
    SplitCluster,
    Undo,
)
from protofission.triage.workbench.group_views import cluster_groups, subclass_groups
from protofission.triage.workbench.groups import ModelRows
from protofission.triage.workbench.state import WorkbenchState

NAMES = ("ash", "birch", "cedar")
LABELED, IMAGES, CLUSTERS, PARTS = 9, 60, 4, 3


@dataclass(frozen=True, eq=False)
class StubMaterial:
    """A material of made-up verdicts."""

    version: int = 0

    @property
    def model_rows(self) -> ModelRows:
        draw = np.random.default_rng(self.version)
        accepted = draw.random(IMAGES) < 0.5
        return ModelRows(
            draw.integers(0, len(NAMES), IMAGES),
            draw.integers(0, PARTS, IMAGES),
            accepted,
            np.where(accepted, -1, draw.integers(0, CLUSTERS, IMAGES)),
        )

    def start_state(self) -> WorkbenchState:
        parts = [[f"{name} / {i}" for i in range(PARTS)] for name in NAMES]
        clusters = [f"novel {i}" for i in range(CLUSTERS)]
        return WorkbenchState.start(np.arange(LABELED) % 3, IMAGES, NAMES, parts, clusters)

    def at(self, version: int, groups: object = None) -> StubMaterial:
        return replace(self, version=version)


def random_action(state: WorkbenchState, chance: random.Random) -> Action:
    """An action that fits the state mostly, with the images of groups filled in."""
    some = tuple(chance.sample(range(IMAGES), chance.choice((1, 1, 2, 12))))
    ids = sorted(state.classes)
    one, other = chance.choice(ids), chance.choice(ids)
    name = f"name {chance.randrange(30)}"
    clusters, part = len(state.groups.cluster_names), chance.randrange(PARTS)
    cluster = chance.randrange(clusters) if clusters else 0
    open_rows = np.flatnonzero((state.label_of == UNLABELED) & ~state.drawn).tolist()
    match chance.randrange(24):
        case 0 | 1 | 2 | 3 | 4:
            return Label(some, chance.choice([*ids, -1, None]), "grid")
        case 5:
            return Label(tuple(state.random_open.tolist()) or some, one, "random")
        case 6:
            return Skip(some)
        case 7:
            return ConfirmLabels(tuple(np.flatnonzero(state.label_of >= 0).tolist()[:3]) or some)
        case 8:
            return DrawRandom(tuple(chance.sample(open_rows, min(3, len(open_rows)))) or some)
        case 9:
            return AddClass(name)
        case 10:
            return RenameClass(one, name)
        case 11:
            return MergeClasses((one,), other if other != one else one + 1)
        case 12:
            return NameSubclass(one, part, name)
        case 13:
            return MergeSubclasses(one, (part,), (part + 1) % PARTS)
        case 14:
            return DissolveSubclasses(one) if chance.random() < 0.3 else NameCluster(cluster, name)
        case 15:
            groups = [own for own in subclass_groups(state, _rows(state), one) if len(own.rows)]
            if not groups:
                return AddClass(name)
            own = chance.choice(groups)
            return PromoteSubclass(own.class_id, own.number, name, tuple(own.rows.tolist()))
        case 16 | 17 | 18:
            return _cluster_action(state, chance, cluster, name)
        case 19:
            if chance.random() < 0.6:
                return RevertRefit(state.version)
            live = tuple(own.id for own in state.live_classes)[:3]
            parts = tuple(tuple(f"part {i}" for i in range(PARTS)) for _ in live)
            names = tuple(f"cluster {i}" for i in range(CLUSTERS))
            return KeepRefit(state.newest_version + 1, live, parts, names)
        case 20 | 21:
            return Undo(state.undo_stack[-1] if state.undo_stack else 1)
        case _:
            return Redo(state.redo_stack[-1] if state.redo_stack else 1)


def _rows(state: WorkbenchState) -> ModelRows:
    rows = StubMaterial(state.version).model_rows
    return replace(rows, classes=rows.classes % len(state.groups.classes))


def _cluster_action(
    state: WorkbenchState, chance: random.Random, cluster: int, name: str
) -> Action:
    groups = {own.number: own for own in cluster_groups(state, _rows(state)) if len(own.rows) > 1}
    if cluster not in groups:
        return MergeClusters((cluster,), (cluster + 1) % CLUSTERS)
    rows = tuple(groups[cluster].rows.tolist())
    return chance.choice(
        (
            PromoteCluster(cluster, name, rows),
            JunkCluster(cluster, rows),
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
