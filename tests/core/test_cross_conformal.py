"""Cross-conformal thresholds against counts, closed forms, worst cases and many draws."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofission.core.conformal import guarantee
from protofission.core.cross_conformal import (
    FoldScores,
    cross_guarantee,
    fold_scores,
    model_agreement,
    proved_share,
    simulated_ranks,
    simulated_shares,
)
from protofission.core.errors import InputError
from reference import calibration as scalar

close = pytest.approx


def drawn(seed: int, n: int = 23, models: int = 3, tied: bool = False) -> tuple[np.ndarray, ...]:
    """Scores of labels, their folds, scores of a pool and of new images; models have own scales."""
    random = np.random.default_rng(seed)
    folds = random.permutation(np.arange(n) % models)
    scales, offsets = random.uniform(0.5, 4, models), random.normal(size=models)
    pool = random.normal(size=(41, models)) * scales + offsets
    new = (random.normal(size=(60, 1)) + random.normal(size=(60, models)) / 2) * scales + offsets
    labels = random.normal(size=n) * scales[folds] + offsets[folds]
    if tied:
        labels, pool, new = np.round(labels), np.round(pool), np.round(new)
    return labels, folds, pool, new


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_ranks_and_id_scores_are_those_of_counted_labels(seed, tied):
    labels, folds, pool, new = drawn(seed, tied=tied)
    found, lists = fold_scores(labels, folds, pool), (labels.tolist(), folds.tolist())
    assert found.ranks(new).tolist() == [scalar.cross_rank(*lists, row) for row in new.tolist()]
    assert found.id_scores(new) == close(
        [scalar.cross_id_score(*lists, pool.tolist(), row) for row in new.tolist()], rel=1e-12
    )


@given(st.integers(0, 999), st.booleans(), st.sampled_from([0.5, 0.8, 0.9, 0.95]))
def test_an_image_is_accepted_exactly_if_its_p_value_exceeds_what_may_be_lost(seed, tied, keep):
    labels, folds, pool, new = drawn(seed, n=39, tied=tied)
    found, promised = fold_scores(labels, folds, pool), cross_guarantee(folds, keep)
    accepted = found.id_scores(new) >= promised.threshold
    assert (accepted == ((1 + found.ranks(new)) / 40 > 1 - keep + 1e-9)).all()


def test_one_model_accepts_what_split_conformal_prediction_does():
    random = np.random.default_rng(0)
    labels, pool, new = random.normal(size=50), random.normal(size=(30, 1)), random.normal(size=500)
    found = fold_scores(labels, np.zeros(50, int), pool).id_scores(new[:, None])
    crossed, split = cross_guarantee(np.zeros(50, int), 0.9), guarantee(labels, 0.9)
    assert ((found >= crossed.threshold) == (new >= split.threshold)).all()
    assert (np.argsort(found) == np.argsort(new)).all()
    assert crossed.proved == split.proved == split.expected


def test_id_scores_are_ordered_beyond_the_labels():
    found = fold_scores(np.zeros(4), [0, 0, 1, 1], [[-1.0, -2.0], [1.0, 2.0]])
    steps = np.array([[-900.0], [-90.0], [-9.0], [-0.1], [0.0], [0.1], [9.0], [90.0], [900.0]])
    scores = found.id_scores(steps * [1.0, 2.0])
    assert (np.diff(scores) > 0).all()
    assert 0 < scores[0] < scores[3] < 1 / 5
    assert 4 / 5 < scores[4] < scores[-1] < 1
    far = found.id_scores([[-math.inf, -math.inf], [math.inf, math.inf], [-math.inf, math.inf]])
    assert np.isfinite(far).all()
    assert far[0] < scores[0] < scores[-1] < far[1]


def test_decisions_hold_in_float32_with_as_many_labels_as_there_may_be():
    """Images just above and just below each of many ranks, all computed in float32."""
    n, keep = 50_000, 0.5
    labels, folds = np.arange(n, dtype=np.float32), np.zeros(n, int)
    found, promised = fold_scores(labels, folds, [[0.0], [2.0]]), cross_guarantee(folds, keep)
    t = np.float32([-1e6, 0, 1e6])
    within = np.float32(0.5) + np.float32(0.375) * t / (1 + np.abs(t))
    ranks = np.float32([1, promised.rank - 1, promised.rank, n])[:, None]
    single = (ranks + within) / np.float32(n + 1)
    assert single.dtype == np.float32
    assert (np.diff(single.ravel()) > 0).all()
    assert ((single >= np.float32(promised.threshold)) == (ranks >= promised.rank)).all()
    double = found.id_scores(np.arange(n)[:, None])
    assert ((double >= promised.threshold) == (np.arange(n) + 1 >= promised.rank)).all()


def test_labels_rank_among_each_other_as_new_images_would():
    """Equal models on scales of their own: a label's ID score is its place among the others."""
    random = np.random.default_rng(0)
    values, folds, pool = random.normal(size=30), np.arange(30) % 3, random.normal(size=(50, 1))
    scales, offsets = np.array([1.0, 3.0, 0.2]), np.array([0.0, 5.0, -1.0])
    found = fold_scores(values * scales[folds] + offsets[folds], folds, pool * scales + offsets)
    scores = found.label_id_scores()
    assert np.floor(30 * scores).tolist() == [(values < value).sum() for value in values]


@pytest.mark.parametrize(("models", "each"), [(2, 1), (2, 3), (5, 4), (3, 33)])
def test_the_proved_share_is_reached_in_the_worst_case_of_rank_one(models, each):
    """An image below all labels in every fold at once, as often as it can be: 1 in each + 1."""
    assert proved_share([each] * models, 1) <= each / (each + 1) + 1e-12
    bound = 1 - models / (models * each + models)
    assert proved_share([each] * models, 1) >= bound - 1e-12


@given(st.integers(2, 12), st.integers(1, 60), st.floats(0.5, 0.99))
def test_the_proved_share_is_no_less_than_the_theorem_of_cv_plus(models, each, keep):
    n = models * each
    found = cross_guarantee(np.arange(n) % models, keep)
    alpha = found.rank / (n + 1)
    theorem = 2 * alpha + min(
        2 * (1 - 1 / models) / (n / models + 1), (1 - models / n) / (models + 1)
    )
    assert found.proved >= 1 - theorem - 1e-12
    assert found.proved <= found.expected + 1e-12


@pytest.mark.parametrize("shared", [0.2, 0.7, 0.9, 1.0])
def test_a_threshold_of_folds_keeps_the_share_it_promises(shared):
    """Models that agree so much; plain CV+, which takes them to agree, keeps more."""
    random, kept, plain = np.random.default_rng(3), [], []
    folds = np.arange(40) % 5
    promised, first = cross_guarantee(folds, 0.9, agreement=shared), cross_guarantee(folds, 0.9)
    for _ in range(200):
        labels = random.normal(size=40)
        common, own = random.normal(size=(400, 1)), random.normal(size=(400, 5))
        new = math.sqrt(shared) * common + math.sqrt(1 - shared) * own
        found = FoldScores(labels, folds, np.zeros(5), np.ones(5)).id_scores(new)
        kept.append((found >= promised.threshold).mean())
        plain.append((found >= first.threshold).mean())
    assert 0.9 <= promised.expected < 0.935  # by the next rank, fewer than promised
    assert np.mean(kept) == close(promised.expected, abs=0.012)
    within = (np.array(kept) >= promised.at_least) & (np.array(kept) <= promised.at_most)
    assert within.mean() >= 0.88  # 0.95, of 400 images each, less 3 standard errors
    assert promised.rank >= first.rank == 4
    if shared <= 0.7:
        assert np.mean(plain) > np.mean(kept) + 0.02
        assert promised.proved < first.proved


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_the_range_allows_for_half_and_twice_the_disagreement(times):
    random, kept, folds = np.random.default_rng(4), [], np.arange(100) % 5
    promised, shared = cross_guarantee(folds, 0.9, agreement=0.75), 1 - times * 0.25
    for _ in range(200):
        common, own = random.normal(size=(400, 1)), random.normal(size=(400, 5))
        new = math.sqrt(shared) * common + math.sqrt(1 - shared) * own
        ranked = FoldScores(random.normal(size=100), folds, np.zeros(5), np.ones(5))
        kept.append((ranked.id_scores(new) >= promised.threshold).mean())
    within = (np.array(kept) >= promised.at_least) & (np.array(kept) <= promised.at_most)
    assert within.mean() >= 0.88
    tails = np.quantile(simulated_shares(np.full(5, 20), 0.75, promised.rank), [0.025, 0.975])
    narrow = (np.array(kept) >= tails[0]) & (np.array(kept) <= tails[1])
    assert narrow.mean() < within.mean()


def test_ranks_among_folds_that_have_nothing_in_common_have_a_closed_form():
    """The lowest of m + 1 in every fold: one in the product of these; each rank has mean m / 2."""
    sizes = np.array([1, 2, 3])
    found = simulated_ranks(sizes, 0.0)
    assert (found == 0).mean() == close(1 / 24, abs=4 * math.sqrt(1 / 24 / len(found)))
    assert found.mean() == close(3.0, abs=4 * math.sqrt(3 / len(found)))
    alike = simulated_ranks(np.array([6, 6]), 1.0)  # the rank by one model is uniform, 0 to 12
    assert np.bincount(alike, minlength=13) / len(alike) == close(np.full(13, 1 / 13), abs=0.009)


@pytest.mark.parametrize(("sizes", "agreement"), [([4, 3, 5], 0.6), ([7], 1.0), ([2, 9], 0.0)])
def test_shares_among_many_sets_of_labels_are_those_of_ranks_drawn_at_once(sizes, agreement):
    """Counted among labels that are drawn, and by binomials: their means are the same."""
    ranks = simulated_ranks(np.array(sizes), agreement)
    for rank in range(1, sum(sizes) + 1, 3):
        shares = simulated_shares(np.array(sizes), agreement, rank)
        spread = math.hypot(shares.std() / math.sqrt(len(shares)), 0.5 / math.sqrt(5000))
        assert shares.mean() == close((ranks >= rank).mean(), abs=4 * spread), rank


@pytest.mark.parametrize("shared", [0.3, 0.8, 1.0])
def test_agreement_is_measured_on_images_that_look_known(shared):
    """Half of the disagreement of normal scores counts; strangers, however they vary, do not."""
    random, models = np.random.default_rng(5), 4
    scales, offsets = np.array([1.0, 3.0, 0.2, 7.0]), np.array([0.0, 5.0, -1.0, 2.0])
    folds = np.arange(400) % models
    labels = random.normal(size=400)
    pool = math.sqrt(shared) * random.normal(size=(3000, 1))
    pool = pool + math.sqrt(1 - shared) * random.normal(size=(3000, models))
    strange = random.normal(-9, 3, size=(500, models))
    centered = FoldScores(labels * scales[folds] + offsets[folds], folds, offsets, scales)
    found = model_agreement(centered, np.concatenate([pool, strange]) * scales + offsets)
    assert found == close((1 + shared) / 2, abs=0.03)
    assert model_agreement(centered, strange * scales + offsets) == 1.0  # nothing looks known
    one = FoldScores(labels, np.zeros(400, np.int64), np.zeros(1), np.ones(1))
    assert model_agreement(one, pool[:, :1]) == 1.0


def test_the_promise_of_folds_in_words():
    found = cross_guarantee(np.arange(100) % 5, 0.95)
    assert (found.folds, found.rank, found.threshold) == (5, 5, 5 / 101)
    assert found.proved == close(1 - 13 / 105)
    assert found.sentence() == (
        "Of new images of a known class, if drawn like the 100 labels, about 95 % are "
        "accepted: between 90 % and 98.4 % with 95 % confidence for so many (proved: at least "
        "87.6 % on average)."
    )
    few = cross_guarantee([0, 1, 1], 0.95)
    assert (few.rank, few.threshold, few.proved) == (0, -math.inf, 1.0)
    assert few.sentence() == (
        "3 labels cannot set a threshold that keeps 95 % of known images, so every image is "
        "accepted: label 19 at least, or lower keep to 0.75."
    )
    assert json.loads(json.dumps(asdict(found))) == asdict(found)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fold_scores([1.0, 2.0], [0], [[1.0]]), r"Folds of shape \(1,\)"),
        (lambda: fold_scores([1.0], [0.0], [[1.0]]), "kind float64 for 1 scores"),
        (lambda: fold_scores([1.0], [1], [[1.0]]), r"Folds 1 \.\.\. 1 lie outside 0 \.\.\. 0"),
        (lambda: fold_scores([1.0], [0], [[1.0, 2.0]]), "Fold 1 has no labels"),
        (lambda: fold_scores([1.0], [0], [1.0]), r"reference scores are of shape \(1,\)"),
        (lambda: fold_scores([1.0], [0], np.zeros((0, 1))), "There are no reference scores"),
        (lambda: fold_scores([math.nan], [0], [[1.0]]), "1 of 1 held-out scores are NaN"),
        (lambda: fold_scores([1.0], [0], [[1.0]]).ranks([[1.0, 2.0]]), "give 1 an image"),
        (lambda: fold_scores([1.0], [0], [[1.0]]).ranks([[math.nan]]), "1 of 1 new scores are NaN"),
        (lambda: cross_guarantee([0, 2], 0.9), "Fold 1 has no labels"),
        (lambda: cross_guarantee([0, 1], 0.9, agreement=1.5), r"agreement = 1\.5 must be between"),
        (lambda: cross_guarantee([0], 1.0), r"keep = 1\.0 must be above 0"),
    ],
)
def test_bad_input_is_one_sentence(call, words):
    with pytest.raises(InputError, match=words) as refused:
        call()
    assert str(refused.value).endswith(".")
