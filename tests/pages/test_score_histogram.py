"""The histogram of scores: shares by a twin, an edge at the threshold, and words."""

from __future__ import annotations

import numpy as np
import pytest

from protofission.pages.score_histogram import (
    BINS,
    CUT,
    HEIGHT,
    WIDTH,
    bin_edges,
    bin_shares,
    round_values,
    score_histogram,
)


@pytest.mark.parametrize(
    ("low", "high", "threshold"), [(0.01, 0.99, 0.05), (-9, 12, -3.3), (2, 2, 2)]
)
def test_the_threshold_is_an_edge_and_every_score_is_in_its_bin(low, high, threshold):
    scores = np.concatenate([np.random.default_rng(0).uniform(low, high, 500), [low, high]])
    edges = bin_edges(scores, threshold, BINS)
    assert np.isclose(edges, threshold).any()
    assert len(edges) - 1 in (BINS, BINS + 1)
    assert edges[0] <= low
    assert edges[-1] >= high
    shares = bin_shares(scores, edges)
    for k, share in enumerate(shares):
        last = k == len(shares) - 1
        own = sum(1 for s in scores if edges[k] <= s < edges[k + 1] or (last and s == edges[-1]))
        assert share == pytest.approx(own / 502)


def test_scores_between_0_and_1_have_round_edges():
    edges = bin_edges(np.array([0.3, 0.6]), 0.05, BINS)
    assert edges == pytest.approx(np.arange(41) / 40)


def test_bars_below_the_threshold_are_rejected_and_high_ones_are_cut():
    known = np.linspace(0.001, 0.999, 1000)
    pool = np.concatenate([np.full(900, 0.01), np.full(100, 0.51), [np.nan, np.inf]])
    found = score_histogram(known, pool, 0.05)
    low, high = found.pool
    assert (low.above, low.height, low.cut) == (False, HEIGHT, "90 %")
    assert (high.above, high.cut) == (True, "")
    assert high.height == pytest.approx(HEIGHT * 0.1 / (CUT * 0.025), rel=0.1)
    assert found.threshold_x == 0.05 * WIDTH
    assert found.description == (
        "Histogram of the ID scores of 1,000 held-out known images and of 1,000 images of the "
        "pool. At or above the threshold of 0.05 are 95 % of the known images and 10 % of the pool."
    )


def test_without_a_threshold_or_known_images_there_is_neither():
    found = score_histogram(np.zeros(0), np.array([0.2, 0.4]), -np.inf)
    assert (found.threshold_x, found.known) == (None, "")
    assert all(bar.above for bar in found.pool)


def test_ticks_are_round():
    assert round_values(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert round_values(-9.6, 8.95) == pytest.approx([-8, -6, -4, -2, 0, 2, 4, 6, 8])
