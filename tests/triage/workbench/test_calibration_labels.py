"""The labels of a refit: what calibrates is what was drawn, whatever else was chosen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofission.core.errors import InputError
from protofission.triage.workbench.actions import NONE, UNLABELED
from protofission.triage.workbench.calibration_labels import GivenLabels, labels_of_refit

NAMES = {0: "ash", 1: "birch", 2: "cedar", 5: "oak"}
IMAGES, LABELED = 30, 8
FOLDERS = [0, 1, 2, 0, 1, 2, 0, 1]


def given_of(changes, queues=()):
    label_of = np.full(IMAGES, UNLABELED)
    label_of[:LABELED] = FOLDERS
    for row, label in changes.items():
        label_of[row] = label
    return GivenLabels(label_of, LABELED, tuple(map(np.array, queues)), NAMES)


def refit_labels(changes, queues=(), repeated=()):
    mask = np.zeros(IMAGES, bool)
    mask[list(repeated)] = True
    return labels_of_refit(given_of(changes, queues), mask)


answers = st.dictionaries(
    st.integers(0, IMAGES - 1), st.sampled_from([0, 1, 2, 5, NONE, UNLABELED])
)
draws = st.lists(
    st.lists(st.integers(LABELED, IMAGES - 1), min_size=1, max_size=6, unique=True), max_size=4
)


@given(answers, draws, st.sets(st.integers(LABELED, IMAGES - 1), max_size=4))
def test_what_calibrates_equals_a_slow_twin(changes, queues, repeated):
    label_of = given_of(changes).label_of.tolist()
    try:
        found = refit_labels(changes, queues, repeated)
    except InputError:
        used = [label for row, label in enumerate(label_of) if label >= 0 and row not in repeated]
        assert len(set(used)) < 2 or max(map(used.count, used)) < 2
        return
    wanted = set()
    for row in range(IMAGES):
        if label_of[row] < 0 or row in repeated:
            continue
        answered = [q for q in queues if all(label_of[other] != UNLABELED for other in q)]
        if row < LABELED or any(row in queue for queue in answered):
            wanted.add(row)
    assert set(found.rows[found.calibrates].tolist()) == wanted
    assert set(found.rows[found.drawn].tolist()) == {row for row in wanted if row >= LABELED}
    assert sorted([*found.rows.tolist(), *found.pool.tolist()]) == list(range(IMAGES))
    for row, place in zip(found.rows.tolist(), found.labels.tolist(), strict=True):
        assert found.class_ids[place] == label_of[row]
    assert set(found.pool[found.strangers].tolist()) == {
        row for row in range(IMAGES) if label_of[row] == NONE
    }


@given(
    st.dictionaries(st.integers(LABELED, IMAGES - 1), st.sampled_from([0, 1, 2, 5])),
    st.sets(st.integers(LABELED, IMAGES - 1), min_size=1, max_size=6),
)
def test_no_chosen_label_changes_the_rows_that_calibrate(chosen, queue):
    """The queue has its answers; whatever else is labeled, the same rows calibrate."""
    answers = dict.fromkeys(queue, 1)
    others = {row: label for row, label in chosen.items() if row not in queue}
    one = refit_labels(answers, [sorted(queue)])
    two = refit_labels({**others, **answers}, [sorted(queue)])
    assert one.rows[one.calibrates].tolist() == two.rows[two.calibrates].tolist()


def test_a_queue_with_an_open_image_trains_only_and_says_so():
    queue = [10, 11, 12]
    open_one = refit_labels({10: 0, 11: NONE}, [queue])
    assert not open_one.drawn.any()
    assert "1 of 3 images drawn at random has no answer yet" in " ".join(open_one.sentences)
    answered = refit_labels({10: 0, 11: NONE, 12: 5}, [queue])
    assert answered.rows[answered.drawn].tolist() == [10, 12]
    assert "8 labels of the folders and 2 of images drawn at random" in answered.sentences[0]
    assert not any("no answer" in line for line in answered.sentences)
    both = refit_labels({10: 0, 11: NONE, 12: 5, 20: 1}, [queue, [20, 21]])
    assert both.rows[both.drawn].tolist() == [10, 12], "one open queue does not undo another"


def test_classes_without_labels_are_left_out_and_new_ones_promised_nothing():
    found = refit_labels({10: 5, 11: 5})
    assert found.class_ids == (0, 1, 2, 5)
    assert found.promised.tolist() == [True, True, True, False]
    assert "Nothing is promised for 'oak': no label of it was drawn at random." in found.sentences
    assert "2 labels were chosen, train and set neither." in found.sentences
    gone = refit_labels({2: 0, 5: 0})
    assert gone.class_names == ("ash", "birch")
    assert "'cedar', 'oak' have no labels: left out." in gone.sentences
    assert gone.calibrates.all(), "a label of the folders that was mended calibrates all the same"


def test_no_change_says_nothing_but_of_empty_classes():
    assert refit_labels({}).sentences == ("'oak' has no labels: left out.",)


def test_one_class_or_single_labels_are_refused():
    with pytest.raises(InputError, match="1 class with labels"):
        refit_labels(dict.fromkeys(range(LABELED), 0))
    single = dict.fromkeys(range(3, LABELED), UNLABELED)
    with pytest.raises(InputError, match="Each of the 3 classes has a single label"):
        refit_labels(single)


def test_copies_of_labeled_images_are_neither_labels_nor_drawn():
    found = refit_labels({10: 1, 11: 2}, [[10, 11]], repeated=[10])
    assert 10 in found.pool
    assert found.rows[found.drawn].tolist() == [11]


def test_if_every_label_was_chosen_none_calibrates():
    chosen = {10: 0, 11: 0, 12: 1, **dict.fromkeys(range(LABELED), UNLABELED)}
    found = refit_labels(chosen)
    assert not found.calibrates.any()
    assert found.sentences[0].startswith("Every label was chosen, so none sets a threshold")
