"""The state is a fold of the log: replays, prefixes, undo and redo come to the same."""

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protofission.core.errors import InputError
from protofission.triage.workbench.actions import (
    NONE,
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
from protofission.triage.workbench.book import ClassState
from protofission.triage.workbench.cells import LABEL_SOURCES
from protofission.triage.workbench.group_views import (
    cluster_groups,
    cluster_of_rows,
    subclass_groups,
    subclass_of_rows,
)
from protofission.triage.workbench.groups import ModelRows
from protofission.triage.workbench.state import WorkbenchState, fold
from workbench_stubs import IMAGES, LABELED, StubMaterial, random_action, random_log


def start() -> WorkbenchState:
    return StubMaterial().start_state()


def after(*actions: Action) -> WorkbenchState:
    return fold(start(), enumerate(actions, 1))


# The laws of a fold


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_a_replay_of_any_prefix_is_the_state_of_that_moment(seed, length):
    log, moments, state = random_log(seed, length), [], start()
    for number, action in log:
        state.apply(number, action)
        moments.append(state.content())
    chance = random.Random(seed)
    for cut in {len(log), *(chance.randrange(1, len(log) + 1) for _ in range(4))}:
        assert fold(start(), log[:cut]).content() == moments[cut - 1]


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_undo_is_the_moment_before_and_redo_the_moment_after(seed, length):
    state = fold(start(), random_log(seed, length))
    now, last = state.content(), state.last_id
    stack = list(state.undo_stack)
    if not stack:
        return
    state.apply(last + 1, Undo(stack[-1]))
    assert state.content() != now
    assert state.undo_stack == stack[:-1]
    state.apply(last + 2, Redo(stack[-1]))
    assert state.content() == now


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_all_can_be_undone_and_all_done_again(seed, length):
    state = fold(start(), random_log(seed, length))
    while state.redo_stack:
        state.apply(state.last_id + 1, Redo(state.redo_stack[-1]))
    now, depth = state.content(), len(state.undo_stack)
    for _ in range(depth):
        state.apply(state.last_id + 1, Undo(state.undo_stack[-1]))
    beginning = {key: value for key, value in state.content().items() if key != "undone"}
    assert beginning == {k: v for k, v in start().content().items() if k != "undone"}
    for _ in range(depth):
        state.apply(state.last_id + 1, Redo(state.redo_stack[-1]))
    assert state.content() == now


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_a_refused_action_changes_nothing_and_a_copy_stands_apart(seed, length):
    state, chance = fold(start(), random_log(seed, length)), random.Random(seed)
    before = state.content()
    for _ in range(20):
        other = state.copy()
        action = random_action(other, chance)
        try:
            other.apply(other.last_id + 1, action)
        except InputError:
            assert other.content() == before
        assert state.content() == before


def effective(log: list[tuple[int, Action]]) -> list[Action]:
    """The actions that count, by a stack of what was undone."""
    done: list[tuple[int, Action]] = []
    undone: list[tuple[int, Action]] = []
    for number, action in log:
        if isinstance(action, Undo):
            undone.append(done.pop())
        elif isinstance(action, Redo):
            done.append(undone.pop())
        else:
            done.append((number, action))
            undone = []
    return [action for _, action in done]


def given_label(action: Action, classes: int) -> tuple[int, str, tuple[int, ...]]:
    """The label, its source and the images of an action that labels."""
    match action:
        case Label(class_id=None):
            return UNLABELED, "none", action.images
        case Label(class_id=class_id):
            return class_id, action.source, action.images
        case LabelAsNew():
            return classes, action.source, action.images
        case PromoteClusters() | PromoteSubclass():
            return classes, "cluster", action.images
        case JunkClusters():
            return NONE, "cluster", action.images
    return UNLABELED, "", ()


def labels_by_hand(log: list[tuple[int, Action]]) -> list[tuple[int, str, bool, bool, bool]]:
    """Label, source and marks of every image, one image after another, without an undo."""
    found = [[i % 3, "folder", False, False, False] for i in range(LABELED)]
    found += [[UNLABELED, "none", False, False, False] for _ in range(IMAGES - LABELED)]
    classes, marks = 3, {Skip: 2, ConfirmLabels: 3, DrawRandom: 4}
    for action in effective(log):
        label, source, rows = given_label(action, classes)
        for row in rows:
            found[row][:4] = [label, source, False, False]
        if isinstance(action, LabelEach):
            for row, label in zip(action.images, action.classes, strict=True):
                found[row][:4] = [label, action.source, False, False]
        if type(action) in marks:
            for row in action.images:
                found[row][marks[type(action)]] = True
        if isinstance(action, MergeClasses):
            for own in found:
                own[0] = action.into if own[0] in action.classes else own[0]
        classes += isinstance(action, AddClass | LabelAsNew | PromoteClusters | PromoteSubclass)
    return [tuple(own) for own in found]


@settings(max_examples=80)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_labels_are_those_of_a_slow_replay_by_hand(seed, length):
    log = random_log(seed, length)
    state = fold(start(), log)
    columns = (
        state.label_of.tolist(),
        [LABEL_SOURCES[number] for number in state.source_of],
        state.skipped.tolist(),
        state.confirmed.tolist(),
        state.drawn.tolist(),
    )
    assert list(zip(*columns, strict=True)) == labels_by_hand(log)
    drawn = [row for own in effective(log) if isinstance(own, DrawRandom) for row in own.images]
    assert state.random_queue.tolist() == drawn


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_groups_hold_each_image_once_and_nothing_that_has_another_label(seed, length):
    state = fold(start(), random_log(seed, length))
    model = StubMaterial().at(state.version, state.groups).model_rows
    clusters = cluster_groups(state, model)
    rows = np.concatenate([own.rows for own in clusters] or [np.zeros(0, int)])
    wanted = np.flatnonzero(~model.accepted & (state.label_of == UNLABELED))
    moved = {row for _, part in state.groups.splits for row in part}
    assert sorted(rows.tolist()) == wanted.tolist()
    assert set(wanted) >= {row for row in moved if state.label_of[row] == UNLABELED}
    for own in state.live_classes:
        for part in subclass_groups(state, model, own.id):
            labels = state.label_of[part.rows]
            assert set(labels.tolist()) <= {own.id, UNLABELED}
            assert model.accepted[part.rows[labels == UNLABELED]].all()


# What each action does


def test_labels_are_of_any_row_and_can_be_taken_back():
    state = after(
        Label((0, 20), 2, "next"), Label((1, 21), NONE, "map"), Label((2, 20), None, "grid")
    )
    assert state.label_of[[0, 20, 1, 21, 2, 3]].tolist() == [2, UNLABELED, NONE, NONE, UNLABELED, 0]
    assert [LABEL_SOURCES[n] for n in state.source_of[[0, 1, 2, 3]]] == [
        "next",
        "map",
        "none",
        "folder",
    ]
    with pytest.raises(ValueError, match="read-only"):
        state.label_of[0] = 1


def test_a_label_ends_a_skip_and_a_confirmation():
    state = after(Skip((20,)), ConfirmLabels((0,)))
    assert np.flatnonzero(state.skipped).tolist() == [20]
    assert np.flatnonzero(state.confirmed).tolist() == [0]
    state.apply(3, Label((0, 20), 1, "grid"))
    assert not state.skipped.any()
    assert not state.confirmed.any()


def test_the_random_queue_is_fixed_and_open_until_it_is_answered():
    state = after(DrawRandom((30, 12, 40)), Label((12,), 1, "random"), Skip((40,)))
    assert state.random_queue.tolist() == [30, 12, 40]
    assert state.random_open.tolist() == [30]
    state.apply(4, Label((12,), None, "grid"))
    assert state.random_open.tolist() == [30, 12]  # drawn images stay drawn
    with pytest.raises(InputError, match="was not drawn at random"):
        state.apply(5, Label((30, 31), 1, "random"))
    with pytest.raises(InputError, match="Image 30 was drawn already"):
        state.apply(5, DrawRandom((31, 30)))
    state.apply(5, Label((31,), 1, "grid"))
    state.apply(6, DrawRandom((31, 32)))  # one with a label counts as answered
    assert state.random_open.tolist() == [30, 12, 32]
    assert [rows.tolist() for rows in state.random_queues] == [[30, 12, 40], [31, 32]]
    assert state.label_of[31] == 1


def test_classes_are_added_renamed_and_merged_and_labels_follow():
    state = after(
        AddClass("fir"), Label((20,), 3, "grid"), MergeClasses((3, 0), 1), RenameClass(1, "trees")
    )
    assert state.label_of[20] == 1
    assert set(state.label_of[:LABELED].tolist()) == {1, 2}
    assert state.classes[3] == ClassState(3, "fir", "added", merged_into=1)
    assert [own.name for own in state.live_classes] == ["trees", "cedar"]
    assert state.resolve(3) == state.resolve(0) == 1
    assert LABEL_SOURCES[state.source_of[0]] == "folder"
    state.apply(5, AddClass("ash"))  # the name of a merged class is free
    assert state.class_named("ash").id == 4
    state.apply(6, MergeClasses((1,), 2))
    assert state.resolve(3) == 2
    assert set(state.label_of[:LABELED].tolist()) == {2}
    for _ in range(6):
        state.apply(state.last_id + 1, Undo(state.undo_stack[-1]))
    assert state.label_of.tolist() == start().label_of.tolist()
    assert state.classes == start().classes


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (AddClass("ash"), "Class 0 is called 'ash' already"),
        (RenameClass(1, "ash"), "Class 0 is called 'ash' already"),
        (RenameClass(9, "fir"), "There is no class 9"),
        (Label((0,), 9, "grid"), "There is no class 9"),
        (LabelEach((20, 21), (0, 9), "next"), "There is no class 9"),
        (LabelEach((20, 60), (0, 1), "next"), "There is no image 60"),
        (LabelEach((20, 21), (0, 1), "random"), "not drawn at random"),
        (Label((60,), 0, "grid"), "There is no image 60: rows are numbered from 0 to 59"),
        (Skip((5, 99)), "There is no image 99"),
        (MergeClasses((0,), 9), "There is no class 9"),
        (ConfirmLabels((0, 20)), "Image 20 has no label of a class"),
        (NameSubclass(0, 3, "x"), "Class 0 has no sub-class 3: give one from 0 to 2"),
        (NameSubclass(5, 0, "x"), "Class 5 has no sub-classes"),
        (MergeSubclasses(0, (0,), 7), "Class 0 has no sub-class 7"),
        (DissolveSubclasses(5), "Class 5 has no sub-classes"),
        (NameCluster(4, "x"), "There is no cluster 4: give one from 0 to 3"),
        (NameCluster(-1, "x"), "There is no cluster -1"),
        (MergeClusters((0,), 4), "There is no cluster 4"),
        (SplitCluster(0, ((1,), (99,))), "There is no image 99"),
        (PromoteClusters((0,), "fir"), "The images of the group are missing"),
        (PromoteClusters((0,), "ash", (20,)), "is called 'ash' already"),
        (PromoteClusters((7,), "fir", (20,)), "There is no cluster 7"),
        (KeepRefit(1, (0, 9), ((), ()), ()), "There is no class 9"),
        (RevertRefit(0), "the one of the fit"),
        (Undo(1), "There is no action that can be undone"),
        (Redo(1), "There is no action that can be done again"),
    ],
)
def test_an_action_that_does_not_fit_is_one_sentence_and_no_change(action, sentence):
    state = start()
    with pytest.raises(InputError, match=sentence) as caught:
        state.apply(1, action)
    assert "\n" not in str(caught.value)
    assert state.content() == start().content()
    assert state.last_id == 0


def test_merged_things_are_refused_with_the_name_of_what_they_became():
    state = after(MergeClasses((0,), 1), MergeSubclasses(1, (0,), 1), MergeClusters((0,), 1))
    for action, sentence in (
        (Label((20,), 0, "grid"), "Class 0, 'ash', is part of class 1 now"),
        (NameSubclass(1, 0, "x"), "is part of another one: undo the merge"),
        (NameCluster(0, "x"), "Cluster 0 is part of another one"),
    ):
        with pytest.raises(InputError, match=sentence):
            state.apply(4, action)


def test_ids_rise_and_only_the_last_action_is_undone():
    state = after(AddClass("fir"), AddClass("oak"))
    with pytest.raises(InputError, match="ids must rise"):
        state.apply(2, AddClass("elm"))
    with pytest.raises(InputError, match="Action 1 cannot be undone before action 2 is"):
        state.apply(3, Undo(1))
    state.apply(3, Undo(2))
    assert (state.next_undo, state.next_redo) == ((1, AddClass("fir")), (2, AddClass("oak")))
    state.apply(4, Label((20,), 3, "grid"))
    assert state.redo_stack == []


MODEL = ModelRows(
    classes=np.array([0, 0, 1, 1, 2, 2] * 10),
    subclasses=np.arange(60) % 3,
    accepted=np.arange(60) % 2 == 0,
    clusters=np.where(np.arange(60) % 2 == 0, -1, np.arange(60) // 2 % 4),
)


def test_a_promoted_subclass_takes_accepted_and_labeled_images_by_one_action_and_one_undo():
    state = after(Label((12,), 1, "grid"), Label((18,), NONE, "grid"))
    assert state.label_of[:3].tolist() == [0, 1, 2]
    first = subclass_groups(state, MODEL, 0)[0]
    # of class 0 by the model, sub-class 0: rows 0 6 12 18 24 ..., of which 12 and 18 have another
    # label and 6 is labeled so; odd rows are rejected
    assert first.rows.tolist() == [0, 6, 24, 30, 36, 42, 48, 54]
    before = state.content()
    state.apply(3, PromoteSubclass(0, 0, "fir", tuple(first.rows.tolist())))
    assert set(state.label_of[first.rows].tolist()) == {3}
    assert state.classes[3].origin == "subclass"
    assert subclass_groups(state, MODEL, 0)[0].promoted == 3
    assert len(subclass_groups(state, MODEL, 0)[0].rows) == 0
    state.apply(4, Undo(3))
    assert {**state.content(), "undone": []} == before


def test_subclasses_are_named_merged_and_dissolved():
    state = after(NameSubclass(0, 1, "young"), MergeSubclasses(0, (0, 2), 1))
    (only,) = subclass_groups(state, MODEL, 0)
    assert (only.class_id, only.number, only.name, only.dissolved) == (0, 1, "young", False)
    wanted = [r for r in range(60) if MODEL.classes[r] == 0 and MODEL.accepted[r] and r >= LABELED]
    wanted += [r for r in range(LABELED) if r % 3 == 0 and MODEL.classes[r] == 0]
    assert sorted(only.rows.tolist()) == sorted(wanted)
    assert len(subclass_groups(state, MODEL, 1)) == 3
    state.apply(3, DissolveSubclasses(1))
    (whole,) = subclass_groups(state, MODEL, 1)
    assert (whole.number, whole.name, whole.dissolved) == (0, "birch", True)
    members = [r for r in range(LABELED, 60) if MODEL.classes[r] == 1 and MODEL.accepted[r]]
    assert whole.rows[whole.rows >= LABELED].tolist() == members
    assert subclass_of_rows(state, MODEL)[whole.rows].tolist() == [0] * len(whole.rows)
    state.apply(4, MergeClasses((0,), 1))
    assert {(own.class_id, own.number) for own in subclass_groups(state, MODEL, 1)} == {
        (0, 1),
        (1, 0),
    }
    assert subclass_groups(state, MODEL, 0) == []


def test_clusters_are_named_merged_split_promoted_and_set_aside():
    def rows(state, number):
        return next(own for own in cluster_groups(state, MODEL) if own.number == number).rows

    state = after(NameCluster(1, "frogs"), MergeClusters((0, 2), 1))
    assert [(own.number, own.name) for own in cluster_groups(state, MODEL)] == [
        (1, "frogs"),
        (3, "novel 3"),
    ]
    members = rows(state, 1).tolist()
    assert members == [r for r in range(LABELED, 60) if MODEL.clusters[r] in (0, 1, 2)]
    state.apply(3, SplitCluster(1, (tuple(members[3:]), tuple(members[:2]), (members[2],))))
    assert [(own.number, own.name) for own in cluster_groups(state, MODEL)] == [
        (1, "frogs"),
        (3, "novel 3"),
        (4, "frogs / 2"),
        (5, "frogs / 3"),
    ]
    assert rows(state, 4).tolist() == members[:2]
    assert rows(state, 1).tolist() == members[3:]
    state.apply(4, MergeClusters((5,), 4))
    assert rows(state, 4).tolist() == members[:3]
    state.apply(5, PromoteClusters((4,), "toads", tuple(members[:3])))
    assert state.label_of[members[:3]].tolist() == [3, 3, 3]
    assert [LABEL_SOURCES[n] for n in state.source_of[members[:1]]] == ["cluster"]
    state.apply(6, JunkClusters((3,), tuple(rows(state, 3).tolist())))
    junk = next(own for own in cluster_groups(state, MODEL) if own.number == 3)
    assert (junk.junk, len(junk.rows)) == (True, 0)
    assert (state.label_of == NONE).sum() == (MODEL.clusters[LABELED:] == 3).sum()
    state.apply(7, Undo(6))
    assert not (state.label_of == NONE).any()
    assert len(rows(state, 3)) == (cluster_of_rows(state, MODEL) == 3).sum() > 0


def test_a_kept_model_brings_its_own_groups_and_a_revert_the_old_ones():
    state = after(NameCluster(1, "frogs"), AddClass("fir"))
    state.apply(3, KeepRefit(1, (0, 1, 3), (("a",), ("b", "c"), ()), ("frogs", "new")))
    assert (state.version, state.newest_version) == (1, 1)
    assert state.groups.cluster_names == ("frogs", "new")
    state.apply(4, NameCluster(1, "newts"))
    state.apply(5, Label((20,), 3, "grid"))
    with pytest.raises(InputError, match="Version 1 of the model is not above 1"):
        state.apply(6, KeepRefit(1, (0,), ((),), ()))
    with pytest.raises(InputError, match="Version 2 of the model cannot be left: 1 is in use"):
        state.apply(6, RevertRefit(2))
    state.apply(6, RevertRefit(1))
    assert state.version == 0
    assert state.groups.cluster_names[1] == "frogs"
    assert state.label_of[20] == 3  # labels stay
    with pytest.raises(InputError, match="the one of the fit"):
        state.apply(7, RevertRefit(0))
    with pytest.raises(InputError, match="Version 1 of the model is not above 1"):
        state.apply(7, KeepRefit(1, (0,), ((),), ()))  # an undo would find another model there
    state.apply(7, Undo(6))
    assert state.groups.cluster_names == ("frogs", "newts")
    for number in (8, 9, 10):
        state.apply(number, Undo(state.undo_stack[-1]))
    assert (state.version, state.newest_version) == (0, 1)


def test_a_hundred_thousand_actions_fold_in_two_seconds():
    chance, images = random.Random(0), 100_000
    names = [f"class {i}" for i in range(20)]
    log: list[tuple[int, Action]] = []
    for number in range(1, 100_001):
        kind = chance.random()
        if kind < 0.85:
            first = chance.randrange(images - 24)
            rows = range(first, first + (1 if kind < 0.75 else 24))
            log.append((number, Label(tuple(rows), chance.randrange(20), "next")))
        elif kind < 0.95 and isinstance(log[-1][1], Label):
            log.append((number, Undo(log[-1][0])))
        else:
            log.append((number, Skip((chance.randrange(images),))))
    state = WorkbenchState.start(np.arange(1000) % 20, images, names)
    began = time.process_time()
    fold(state, log)
    assert time.process_time() - began < 2
    assert state.last_id == 100_000
    assert (state.label_of != UNLABELED).sum() > 50_000
