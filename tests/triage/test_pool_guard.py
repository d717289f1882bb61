"""The guard: closed forms, a slow twin of the rule, simulations, no claim beyond the numbers."""

import math
from dataclasses import replace

import numpy as np
import pytest

from protofission.triage import pool_guard
from protofission.triage.pool_guard import FoldVerdicts, Guard, compare, standardize


def verdicts(random, n=60, size=150, share=0.4, apart=2.0, accuracy=0.9, models=3):
    """Verdicts of models on scales of their own; strangers score lower by `apart`."""
    folds, parts = np.arange(n) % models, np.arange(size) % models
    scale, middle = random.random(models) + 0.5, 5 * random.normal(size=models)
    strange = np.arange(size) < share * size
    return FoldVerdicts(
        right=random.random(n) < accuracy,
        scores=random.normal(size=n) * scale[folds] + middle[folds],
        folds=folds,
        pool=(random.normal(size=size) - apart * strange) * scale[parts] + middle[parts],
        parts=parts,
        images=np.arange(size),
    )


def twin_above(found):
    """The share of pairs in which a label scores above an image of the pool, pair by pair."""
    labels, pool = [], []
    for fold in sorted(set(found.folds.tolist())):
        own = found.pool[found.parts == fold]
        middle = float(np.median(own))
        deviation = sum(abs(s - middle) for s in own) / len(own)
        labels += [(s - middle) / deviation for s in found.scores[found.folds == fold]]
        pool += [(s - middle) / deviation for s in own]
    wins = sum((one > other) + (one == other) / 2 for one in labels for other in pool)
    return wins / len(labels) / len(pool)


@pytest.mark.parametrize("n", [6, 60])
def test_pairs_are_counted_and_the_difference_adds_up(n):
    random = np.random.default_rng(n)
    control, model = verdicts(random, n), verdicts(random, n, apart=3.0)
    found = compare(control, model, 0.4, 0)
    assert found.above == pytest.approx([twin_above(v) for v in (control, model)])
    assert found.accuracy == pytest.approx([control.right.mean(), model.right.mean()])
    more = found.above[1] - found.above[0]
    wanted = 0.6 * (found.accuracy[1] - found.accuracy[0]) + more
    assert found.difference == pytest.approx(wanted)
    assert (found.images, found.pool) == (n, 150)


def test_ties_count_half():
    zeros, nine = np.zeros(9, int), np.arange(9.0)
    tied = FoldVerdicts(zeros == 0, nine, zeros, np.repeat(nine[:3], 3), zeros, np.arange(9))
    assert compare(tied, tied, 0.5, 0).above == pytest.approx([(0.5 + 1.5 + 2.5 + 18) / 27] * 2)


def test_the_same_model_twice_is_no_difference_at_all():
    one = verdicts(np.random.default_rng(0))
    found = compare(one, one, 0.4, 0)
    assert (found.difference, found.error, found.pool_hurts) == (0, 0, False)
    assert "too little to tell them apart, and the model is kept" in found.sentence()


def test_scales_of_models_do_not_matter():
    one = verdicts(np.random.default_rng(0))
    scale, middle = np.array([1.0, 20.0, 0.01]), np.array([0.0, -40.0, 8.0])
    other = replace(
        one,
        scores=one.scores * scale[one.folds] + middle[one.folds],
        pool=one.pool * scale[one.parts] + middle[one.parts],
    )
    assert standardize(other).scores == pytest.approx(standardize(one).scores, abs=1e-6)
    assert compare(one, other, 0.4, 0).difference == pytest.approx(0, abs=1e-12)


def test_a_plainly_better_one_is_kept_and_said_to_be():
    random = np.random.default_rng(1)
    bad, good = verdicts(random, accuracy=0.5, apart=0.0), verdicts(random, apart=4.0, accuracy=1)
    hurts, helps = compare(good, bad, 0.4, 0), compare(bad, good, 0.4, 0)
    assert hurts.pool_hurts
    assert hurts.sentence().endswith("the pool hurts, and the control is kept.")
    assert not helps.pool_hurts
    assert helps.sentence().endswith("the pool helps.")
    assert hurts.difference == pytest.approx(-helps.difference)
    assert hurts.difference < -0.3
    assert hurts.error == pytest.approx(helps.error)


def test_accuracy_or_rejection_alone_decides_too():
    one = verdicts(np.random.default_rng(2), apart=3.0, accuracy=1.0)
    wrong = replace(one, right=np.arange(60) % 3 > 0)
    assert compare(one, wrong, 0.4, 0).difference == pytest.approx(-0.6 / 3)
    assert compare(one, wrong, 0.4, 0).pool_hurts
    blind = replace(one, pool=np.where(np.arange(150) < 60, one.pool[::-1], one.pool))
    assert compare(one, blind, 0.4, 0).accuracy == (1, 1)
    assert compare(one, blind, 0.4, 0).pool_hurts


@pytest.mark.parametrize(
    ("difference", "error", "images", "pool", "words", "hurts"),
    [
        (-0.05, 0.06, 50, 90, "too little to tell", False),
        (-0.05, 0.022, 50, 90, "too little to tell", False),
        (-0.05, 0.02, 50, 90, "the pool hurts, and the control is kept", True),
        (0.05, 0.03, 50, 90, "too little to tell", False),
        (0.05, 0.02, 50, 90, "the pool helps", False),
        (0.05, 0.0, 19, 90, "too little to tell", False),
        (0.05, 0.0, 50, 19, "too little to tell", False),
        (-0.05, 0.0, 10, 90, "the pool seems to hurt", True),
        (0.0, 0.0, 0, 90, "Too few labels to compare", False),
        (0.0, 0.0, 50, 0, "There is no pool", False),
    ],
)
def test_the_sentence_claims_no_more_than_the_numbers(
    difference, error, images, pool, words, hurts
):
    found = Guard(images, pool, (0.8, 0.9), (0.1, 0.2), difference, error)
    assert words in found.sentence()
    assert found.pool_hurts == hurts
    assert "nan" not in found.sentence()
    if "On " in found.sentence():
        assert f"On {images} images held out" in found.sentence()


def test_without_labels_or_pool_nothing_is_compared():
    some = verdicts(np.random.default_rng(0))
    nothing = np.zeros(0, int)
    without_pool = replace(some, pool=np.zeros(0), parts=nothing, images=nothing)
    without_labels = replace(some, right=nothing > 0, scores=np.zeros(0), folds=nothing)
    for each in (without_pool, without_labels):
        found = compare(each, each, 0.5, 0)
        assert not found.pool_hurts
        assert "nan" not in found.sentence()


def test_the_difference_is_the_share_times_that_of_the_auc(monkeypatch):
    """above = (1 - s) / 2 + s AUC; so the first part cancels."""
    monkeypatch.setattr(pool_guard, "RESAMPLES", 1)
    random, off = np.random.default_rng(3), []
    for _ in range(40):
        size, share = 500, 0.4
        both = [verdicts(random, 200, size, share, apart, models=1) for apart in (1.0, 2.5)]
        found = compare(*both, share, 0)
        strange = np.arange(size) < share * size
        aucs = [(each.scores[:, None] > each.pool[strange]).mean() for each in both]
        off.append(found.above[1] - found.above[0] - share * (aucs[1] - aucs[0]))
    assert np.mean(off) == pytest.approx(0, abs=3 * np.std(off) / math.sqrt(len(off)))
    assert np.std(off) < 0.05


def test_models_that_are_alike_are_seldom_told_apart(monkeypatch):
    """Twice as often as chance may tell them apart, in 100 draws."""
    monkeypatch.setattr(pool_guard, "RESAMPLES", 50)
    random, told, hurt = np.random.default_rng(4), 0, 0
    for _ in range(100):
        found = compare(verdicts(random, 40), verdicts(random, 40), 0.4, 0)
        told += found.told_apart
        hurt += found.pool_hurts
    assert told <= 11
    assert hurt <= 5


def test_an_image_that_every_model_scores_counts_as_one():
    """Its scores have one weight in all bootstraps, so the error is that of so many images."""
    random = np.random.default_rng(5)
    pair = [verdicts(random, 60, 30, apart=apart, models=1) for apart in (0.5, 3.0)]
    tiled = [
        replace(
            each,
            folds=np.arange(60) % 3,
            pool=np.tile(each.pool, 3),
            parts=np.repeat(np.arange(3), 30),
            images=np.tile(np.arange(30), 3),
        )
        for each in pair
    ]
    one, many = compare(*pair, 0.4, 0), compare(*tiled, 0.4, 0)
    assert (many.difference, many.pool) == (pytest.approx(one.difference), 30)
    assert many.error == pytest.approx(one.error)
