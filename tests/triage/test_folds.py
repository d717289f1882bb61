"""Folds of the labels: every property that training and calibration rely on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofission.core.conformal import fewest_images
from protofission.triage.folds import NO_FOLD, assign_folds, hold_out, join_nearest, nearest_rows


@st.composite
def labels_and_groups(draw):
    """Labels of 2 to 5 classes, all of which occur, and groups of near-duplicates across them."""
    counts = draw(st.lists(st.integers(1, 12), min_size=2, max_size=5))
    labels = np.repeat(np.arange(len(counts)), counts)
    groups = draw(st.lists(st.integers(0, 15), min_size=len(labels), max_size=len(labels)))
    order = np.array(draw(st.permutations(range(len(labels)))))
    return labels[order], np.array(groups)[order]


def units_of(labels, groups):
    """The labels of each unit: near-duplicates of one class."""
    units = {}
    for place, key in enumerate(zip(labels.tolist(), groups.tolist(), strict=True)):
        units.setdefault(key, []).append(place)
    return units


@given(labels_and_groups(), st.integers(2, 6), st.integers(0, 3))
def test_every_label_that_can_be_is_in_one_fold_and_no_model_lacks_a_class(case, number, seed):
    labels, groups = case
    folds, units = assign_folds(labels, groups, number, seed), units_of(labels, groups)
    assert folds.shape == labels.shape
    assert all(len(set(folds[own].tolist())) == 1 for own in units.values()), "a unit is split"
    sizes = {}
    for name in range(labels.max() + 1):
        own = [folds[places[0]] for (of, _), places in units.items() if of == name]
        if len(own) == 1:
            assert own == [NO_FOLD]
            continue
        shares = np.bincount(own, minlength=number)
        assert shares.max() - shares.min() <= 1
        sizes[name] = shares
    total = sum(sizes.values(), np.zeros(number, int))
    assert total.max() - total.min() <= 1, "folds are about equally large"
    used = sorted(set(folds.tolist()) - {NO_FOLD})
    assert used == list(range(min(number, total.sum())))
    for fold in used:
        assert set(labels[folds != fold].tolist()) == set(labels.tolist())
    assert np.array_equal(folds, assign_folds(labels, groups, number, seed))


def test_another_seed_gives_other_folds_of_the_same_sizes():
    labels, groups = np.arange(60) % 3, np.arange(60)
    one, two = (assign_folds(labels, groups, 5, seed) for seed in (0, 1))
    assert (one != two).any()
    assert np.bincount(one).tolist() == np.bincount(two).tolist() == [12] * 5


def test_numbers_of_groups_do_not_matter_but_their_equality_does():
    labels = np.arange(40) % 2
    alone, pairs = np.arange(40), np.arange(40) // 4 * 2 + labels
    assert np.array_equal(
        assign_folds(labels, alone, 4, 0), assign_folds(labels, 7 * alone + 3, 4, 0)
    )
    found = assign_folds(labels, pairs, 4, 0)
    assert np.array_equal(found[0::4], found[2::4])
    assert np.array_equal(found[1::4], found[3::4])


@given(
    labels_and_groups(),
    st.floats(0.05, 0.9),
    st.sampled_from([0.5, 0.8, 0.95]),
    st.integers(0, 3),
)
def test_as_many_are_held_out_as_are_wanted_and_one_of_each_class_stays(case, share, keep, seed):
    labels, groups = case
    folds, units = hold_out(labels, groups, share, keep, seed), units_of(labels, groups)
    assert set(folds.tolist()) <= {0, NO_FOLD}
    assert all(len(set(folds[own].tolist())) == 1 for own in units.values()), "a unit is split"
    assert set(labels[folds == NO_FOLD].tolist()) == set(labels.tolist())
    held = sum(folds[own[0]] == 0 for own in units.values())
    wanted = max(math.ceil(share * len(units)), fewest_images(keep))
    assert held == min(wanted, len(units) // 2, len(units) - len(set(labels.tolist())))
    assert np.array_equal(folds, hold_out(labels, groups, share, keep, seed))


@pytest.mark.parametrize("seed", range(3))
def test_each_class_has_its_share_held_out(seed):
    counts = np.array([10, 20, 40])
    labels = np.repeat(np.arange(3), counts)
    held = np.bincount(labels[hold_out(labels, np.arange(70), 0.3, 0.5, seed) == 0])
    assert np.abs(held - 0.3 * counts).max() <= 1


@given(labels_and_groups(), st.integers(2, 6), st.data())
def test_chosen_labels_join_the_fold_of_the_nearest_and_no_model_lacks_a_class(case, number, data):
    labels, groups = case
    mask = data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels)))
    calibrates = np.array(mask)
    own = labels[calibrates]
    if not len(own):
        return
    numbered = np.unique(own, return_inverse=True)[1]
    folds = assign_folds(numbered, groups[calibrates], number, 0)
    places = st.integers(0, len(own) - 1)
    count = int((~calibrates).sum())
    nearest = np.array(data.draw(st.lists(places, min_size=count, max_size=count)), np.int64)
    found = join_nearest(folds, labels, calibrates, nearest)
    assert np.array_equal(found[calibrates], folds), "what calibrates is as without the others"
    wanted = dict(zip(np.flatnonzero(~calibrates).tolist(), folds[nearest].tolist(), strict=True))
    for place, fold in wanted.items():
        same = labels == labels[place]
        freed = (
            len(
                {
                    *folds[own == labels[place]].tolist(),
                    *(wanted[k] for k in np.flatnonzero(same & ~calibrates).tolist()),
                }
            )
            == 1
        )
        assert found[place] == (NO_FOLD if freed else fold)
    for fold in set(found.tolist()) - {NO_FOLD}:
        assert set(labels[found != fold].tolist()) == set(labels.tolist())


def test_the_nearest_is_by_the_cosine_of_standardized_rows():
    random = np.random.default_rng(0)
    rows, among = (random.normal(3, 2, (n, 4)).astype(np.float32) for n in (30, 9))
    rows[:, 2] = among[:, 2] = 5  # a feature without spread
    both = np.concatenate([rows, among]).astype(float)
    standard = (both - both.mean(0))[:, [0, 1, 3]] / both.std(0)[[0, 1, 3]]
    twin = []
    for row in standard[:30]:
        cosines = [row @ other / np.sqrt(row @ row * (other @ other)) for other in standard[30:]]
        twin.append(int(np.argmax(cosines)))
    assert nearest_rows(rows, among).tolist() == twin
    assert nearest_rows(rows[:0], among).tolist() == []
