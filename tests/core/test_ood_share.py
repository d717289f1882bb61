"""The share of strangers against a slow likelihood, closed forms, invariances and many draws."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from protofission.core import ood_share as module
from protofission.core.errors import InputError
from protofission.core.ood_share import (
    DISTANCES,
    LEVELS,
    SHARES,
    WIDTHS,
    ShareEstimate,
    least_share,
    ood_share,
    pool_places,
    share_log_likelihoods,
)
from reference import calibration as scalar

close = pytest.approx


def mixed(
    random: np.random.Generator, n: int, m: int, part: float, apart: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Known scores, a pool's, and the share of the pool that is OOD."""
    strange = random.random(m) < part
    return random.normal(size=n), random.normal(size=m) - apart * strange, float(strange.mean())


@pytest.mark.parametrize("images", [60, 3000])
def test_the_likelihood_is_that_of_counted_labels_and_solved_levels(images):
    """Differences between shares and shapes, as the likelihood leaves out a constant."""
    places = np.random.default_rng(0).beta(1, 4, size=25)
    found = share_log_likelihoods(places, images)
    cells = [(0, 0, 0), (20, 3, 1), (100, 12, 3), (100, 5, 2), (180, 0, 0), (199, 9, 1)]
    slow = [
        scalar.share_log_likelihood(
            places.tolist(),
            images,
            LEVELS.tolist(),
            (float(SHARES[share]), DISTANCES[distance], WIDTHS[width]),
        )
        for share, distance, width in cells
    ]
    fast = [found[share, distance * len(WIDTHS) + width] for share, distance, width in cells]
    assert np.array(fast) - fast[0] == close(np.array(slow) - slow[0], abs=1e-5)


def test_places_are_counted_in_the_pool_by_the_model_of_each_label():
    pool = np.array([[1.0, 10.0], [2.0, 30.0], [3.0, 20.0], [3.0, 20.0]])
    places = pool_places(np.array([2.5, 3.0, 20.0, 99.0]), np.array([0, 0, 1, 1]), pool)
    assert places == close(np.array([2.5, 1.5, 2.5, 0.5]) / 5)  # ties count half


@pytest.mark.parametrize("apart", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_the_interval_holds_the_share_wherever_scores_lie(part, apart):
    random, held, off, sure = np.random.default_rng(5), [], [], []
    for draw in range(40):
        known, pool, true = mixed(random, (30, 100, 400)[draw % 3], 600, part, apart)
        found = ood_share(known, pool)
        assert 0 <= found.low <= found.share <= found.high <= 1
        held.append(found.low <= true <= found.high)
        sure.append(found.at_least <= true)
        off.append(found.share - true)
    assert np.mean(held) >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 40)
    assert np.mean(sure) >= 0.95
    if apart == 3.0:
        assert abs(np.mean(off)) < 0.1


def test_folds_of_models_on_their_own_scales_are_one_model():
    known, pool, _ = mixed(np.random.default_rng(0), 60, 300, 0.4, 3.0)
    folds, scales = np.arange(60) % 3, np.array([1.0, 5.0, 0.1])
    found = ood_share(known * scales[folds], pool[:, None] * scales, folds)
    assert found == ood_share(known, pool)
    assert ood_share(np.exp(known[::-1]), np.exp(pool[::-1])) == found


def test_labels_are_compared_with_the_part_of_the_pool_that_their_model_did_not_learn_from():
    pool = np.array([[1.0, 9.0], [2.0, 9.0], [9.0, 10.0], [9.0, 30.0], [9.0, 20.0]])
    parts, folds = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1])
    places = pool_places(np.array([1.5, 20.0, 99.0]), folds, pool, parts)
    assert places == close([1.5 / 3, 2 / 4, 0.5 / 4])
    known, others, _ = mixed(np.random.default_rng(0), 60, 300, 0.4, 3.0)
    two = np.stack([others, 5 * others], 1)
    own, part = np.arange(60) % 2, np.arange(300) % 2
    scores = known * np.array([1.0, 5.0])[own]
    found = ood_share(scores, two, own, pool_folds=part)
    spoiled = two.copy()
    spoiled[np.arange(300), 1 - part] = 77.0  # by the model that learned from the image
    assert ood_share(scores, spoiled, own, pool_folds=part) == found
    assert abs(found.share - ood_share(scores, two, own).share) < 0.1


def test_more_images_make_a_narrower_interval_and_more_confidence_a_wider_one():
    known, pool, _ = mixed(np.random.default_rng(0), 4000, 8000, 0.4, 4.0)
    many, few = ood_share(known, pool), ood_share(known[:50], pool[:200])
    assert many.high - many.low < (few.high - few.low) / 2
    sure = ood_share(known, pool, confidence=0.999)
    assert sure.low < many.low < many.high < sure.high
    assert sure.at_least < many.at_least


def test_scores_that_overlap_more_make_a_wider_interval():
    widths = []
    for apart in (1.0, 2.0, 4.0):
        found = ood_share(*mixed(np.random.default_rng(1), 200, 2000, 0.6, apart)[:2])
        widths.append(found.high - found.low)
    assert widths[0] > widths[1] > 2 * widths[2]


def test_a_pool_of_strangers_alone_and_one_of_none():
    known = np.arange(50) / 50
    alone = ood_share(known, np.full(200, -1.0))
    assert alone.low > 0.95
    assert alone.high > 0.99
    none = ood_share(known, np.linspace(0, 1, 1000))
    assert none.low < 0.01
    assert none.share < 0.15
    assert none.at_least == 0.0


def test_the_bound_by_hand():
    """All 100 labels above 98 % of 10,000 images: F at least e^(1/100), r hardly above 0.02."""
    error = 0.05 / 12
    found = least_share(np.full(100, 0.001), 10_000, 0.95)
    low, high = 1 - 0.025 / error ** (1 / 100), 1 - 0.02 / error ** (1 / 100)
    assert low < found < high
    assert least_share(np.full(100, 0.99), 10_000, 0.95) == 0.0


@pytest.mark.parametrize(("known", "pool"), [([], [1.0]), ([1.0] * 9, []), ([1.0] * 4, [2.0])])
def test_nothing_is_said_of_a_share_without_enough_images(known, pool):
    found = ood_share(known, pool)
    assert math.isnan(found.share)
    assert (found.low, found.high) == (0.0, 1.0)
    assert "cannot be told" in found.sentence()


def test_the_share_of_a_handful_of_images_is_hardly_known():
    found = ood_share([0.0, 0.1, 0.2, 0.3, 0.4], [0.0, 0.3])
    assert found.high - found.low > 0.5


def test_the_share_in_words():
    assert ShareEstimate(0.3123, 0.25, 0.4, at_least=0.199).sentence() == (
        "About 31 % of the pool is of no known class (25 % to 40 % with 95 % confidence; at least "
        "19 % whatever these look like)."
    )
    assert ShareEstimate(0.3, 0.2, 0.4).sentence().endswith("with 95 % confidence).")
    found = ood_share([1.0] * 5, [2.0])
    assert json.loads(json.dumps(asdict(found))) == asdict(found)


def test_the_table_of_shapes_is_computed_once():
    assert module._known_reaching() is module._known_reaching()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ood_share([1.0], [math.nan]), "1 of 1 pool scores are NaN"),
        (lambda: ood_share([1.0], [1.0], confidence=1.0), r"confidence = 1\.0 must be"),
        (lambda: ood_share([1.0] * 5, [[1.0, 2.0]], [0, 1, 2, 0, 1]), r"Folds 0 \.\.\. 2 lie"),
        (lambda: ood_share([1.0] * 5, [[1.0, 2.0]]), "Fold 1 has no labels"),
        (lambda: ood_share([1.0] * 5, np.zeros((2, 2, 2))), r"shape \(2, 2, 2\)"),
    ],
)
def test_bad_input_is_one_sentence(call, words):
    with pytest.raises(InputError, match=words) as refused:
        call()
    assert str(refused.value).endswith(".")
