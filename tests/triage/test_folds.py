"""Folds of the labels: every property that training and calibration rely on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofission.core.conformal import fewest_images
from protofission.triage.folds import NO_FOLD, assign_folds, hold_out


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


@st.composite
def chosen_labels(draw):
    """Labels and groups as above, of which some only train; every class has one label at least."""
    labels, groups = draw(labels_and_groups())
    mask = draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels)))
    return labels, groups, np.array(mask)


@given(chosen_labels(), st.integers(1, 6), st.integers(0, 3))
def test_labels_that_only_train_change_no_fold_and_are_in_none(case, number, seed):
    """But for near-duplicates of a held-out label, which are held out with it."""
    labels, groups, calibrates = case

    def folds_of(own):
        if number == 1:
            return hold_out(labels[own], groups[own], 0.4, 0.8, seed, calibrates[own])
        return assign_folds(labels[own], groups[own], number, seed, calibrates[own])

    every = np.ones(len(labels), bool)
    folds = folds_of(every)
    units = units_of(labels, groups)
    for places in units.values():
        assert len(set(folds[places].tolist())) == 1
        if not calibrates[places].any():
            assert folds[places[0]] == NO_FOLD
    used = sorted(set(folds.tolist()) - {NO_FOLD})
    assert used == list(range(len(used)))
    for fold in used:
        assert calibrates[folds == fold].any(), "every fold has a label that calibrates"
        assert set(labels[folds != fold].tolist()) == set(labels.tolist()), "no model lacks a class"
    # A class whose calibrating labels could be held out without the others has the same folds.
    alone = folds_of(calibrates) if calibrates.any() else folds[calibrates]
    counts = {
        c: sum(of == c for of, _ in units_of(labels[calibrates], groups[calibrates]))
        for c in set(labels.tolist())
    }
    if number > 1 and all(count != 1 for count in counts.values()):
        assert np.array_equal(alone, folds[calibrates])


def test_a_class_of_one_calibrating_label_is_held_out_if_others_teach_it():
    labels, groups = np.array([0, 0, 0, 1, 1]), np.arange(5)
    calibrates = np.array([True, True, True, True, False])
    assert assign_folds(labels, groups, 2, 0, calibrates)[3] != NO_FOLD
    assert assign_folds(labels[:4], groups[:4], 2, 0, calibrates[:4])[3] == NO_FOLD
