"""Before and after: intervals that hold, claims that n allows, and twins by hand."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protofission.core.cross_conformal import cross_guarantee, fold_scores
from protofission.triage.fold_ensemble import FoldEnsemble
from protofission.triage.pool_guard import FoldVerdicts
from protofission.triage.workbench.statistics import (
    Comparison,
    CountedShare,
    HeldOutVerdicts,
    compare_fits,
    judge_held_out,
)


def chance(count, total, share):
    return math.comb(total, count) * share**count * (1 - share) ** (total - count)


@given(st.integers(1, 25), st.data())
def test_the_interval_of_a_share_ends_where_the_count_becomes_improbable(total, data):
    count = data.draw(st.integers(0, total))
    low, high = CountedShare(count, total).interval()
    if count:
        assert sum(chance(k, total, low) for k in range(count, total + 1)) == pytest.approx(0.025)
    else:
        assert low == 0
    if count < total:
        assert sum(chance(k, total, high) for k in range(count + 1)) == pytest.approx(0.025)
    else:
        assert high == 1


@pytest.mark.parametrize(("gain", "loss"), [(0.1, 0.1), (0.3, 0.05), (0.0, 0.5), (0.02, 0.0)])
def test_the_interval_of_a_difference_holds_in_95_of_100_cases_at_least(gain, loss):
    n, missed = 20, 0.0
    for up, down in product(range(n + 1), repeat=2):
        if up + down > n:
            continue
        rest = n - up - down
        ways = math.comb(n, up) * math.comb(n - up, down)
        probability = ways * gain**up * loss**down * (1 - gain - loss) ** rest
        low, high = comparison(up, down, n).accuracy_interval
        missed += probability * (not low <= gain - loss <= high)
    assert missed <= 0.05


def comparison(gained, lost, n, above=(0.5, 0.5), error=0.1, random=(0, 0, 0)):
    before = n // 2
    return Comparison(
        (CountedShare(before, n), CountedShare(before + gained - lost, n)),
        gained,
        lost,
        above,
        error,
        100,
        (CountedShare(random[0], random[2]), CountedShare(random[1], random[2])),
    )


def test_a_difference_is_claimed_only_where_chance_would_hardly_give_it():
    def first(*counts):
        return comparison(*counts).sentences()[0]

    assert first(5, 0, 40).endswith("can be chance.")  # 2 / 32
    assert first(6, 0, 40).endswith("better, and hardly by chance.")  # 2 / 64
    assert first(0, 6, 40).endswith("worse, and hardly by chance.")
    assert first(0, 0, 40).endswith("no difference.")
    twin = 2 * sum(math.comb(11, k) for k in range(3)) / 2**11
    assert comparison(2, 9, 40).accuracy_chance == pytest.approx(twin)
    told = comparison(0, 0, 40, above=(0.5, 0.6), error=0.04)
    assert "told apart better" in told.sentences()[1]
    assert "told apart worse" in comparison(0, 0, 40, (0.6, 0.5), 0.04).sentences()[1]
    assert "can be chance" in comparison(0, 0, 40, (0.5, 0.6), 0.06).sentences()[1]
    few = comparison(0, 0, 19, (0.5, 0.9), 0.01)
    assert "can be chance" in few.sentences()[1], "of so few labels nothing is claimed"
    assert comparison(0, 0, 0).sentences() == [
        "There is no label by which before and after can be compared."
    ]
    assert "5 of 9 (21 % to 86 %)" in comparison(0, 0, 9, random=(5, 8, 9)).sentences()[2]


def verdicts(right, scores, pool):
    n, size = len(right), len(pool)
    found = FoldVerdicts(
        np.array(right),
        np.array(scores, float),
        np.zeros(n, int),
        np.array(pool, float),
        np.zeros(size, int),
        np.arange(size),
    )
    return HeldOutVerdicts(np.array(right), found, np.array(scores) > 0.5)


def test_two_fits_are_compared_label_by_label():
    before = verdicts([True, True, False, False], [1, 1, 0, 0.4], [0.2, 0.6])
    after = verdicts([True, False, True, True], [1, 1, 1, 0.7], [0.2, 0.6])
    found = compare_fits(before, after, np.array([False, False, True, True]), 0)
    assert (found.gained, found.lost) == (2, 1)
    assert [share.count for share in found.right] == [2, 3]
    assert found.above == pytest.approx(((2 + 2 + 0 + 1) / 8, 8 / 8))
    assert [(share.count, share.total) for share in found.random] == [(0, 2), (2, 2)]
    same = compare_fits(before, before, np.zeros(4, bool), 0)
    assert same.above_error == 0
    assert same.facts(0)["kept"] is None


def test_a_held_out_label_is_accepted_as_the_core_defines_it():
    """The ID score of a label, by an ensemble, is that of `FoldScores.label_id_scores`."""
    random = np.random.default_rng(0)
    n, models = 40, 3
    folds = np.arange(n) % models
    table, pool = random.normal(size=(n, models)), random.normal(size=(50, models))
    logits = random.normal(size=(n, models, 2))
    ranked = fold_scores(table[np.arange(n), folds], folds, pool)

    class Fake(FoldEnsemble):
        def __init__(self):
            torch.nn.Module.__init__(self)
            self.fold_sizes = tuple(np.bincount(folds).tolist())
            self.centers = torch.from_numpy(ranked.centers)
            self.scales = torch.from_numpy(ranked.scales)
            parts = [np.sort(ranked.scores[folds == k]) for k in range(models)]
            self.label_scores = torch.from_numpy(np.concatenate(parts))
            self.threshold = torch.tensor(cross_guarantee(folds, 0.8).threshold)

        def by_model(self, rows):
            source = (logits, table) if len(rows) == n else (np.zeros((50, models, 2)), pool)
            return tuple(map(torch.from_numpy, source))

    rows, others = np.zeros((n, 1), np.float32), np.zeros((50, 1), np.float32)
    classes = np.array([7, 4])
    labels = np.where(random.random(n) < 0.5, 7, 4)
    found = judge_held_out(Fake(), rows, labels, classes, folds, others, np.ones(n, bool))
    wanted = ranked.label_id_scores() >= cross_guarantee(folds, 0.8).threshold
    assert found.accepted.tolist() == wanted.tolist()
    assert 0.7 < found.accepted.mean() < 0.9
    likeliest = logits[np.arange(n), folds].argmax(1)
    assert found.right.tolist() == (classes[likeliest] == labels).tolist()
    assert found.verdicts.pool.reshape(50, models) == pytest.approx(pool)
    assert found.verdicts.parts.tolist() == [0, 1, 2] * 50
