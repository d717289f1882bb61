"""Samples over seeds against closed forms and tables of Student's t."""

from __future__ import annotations

from math import isnan, nan, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofission.experiments.report.statistics import Sample, paired_differences

NUMBERS = st.floats(-100, 100).map(lambda value: round(value, 3))
SAMPLES = st.lists(NUMBERS, min_size=2, max_size=8).map(tuple)


def test_mean_and_sample_deviation() -> None:
    sample = Sample((2.0, 4.0, 9.0))
    assert (sample.n, sample.mean) == (3, 5.0)
    assert sample.sd == pytest.approx(sqrt((9 + 1 + 16) / 2))


@pytest.mark.parametrize(
    ("n", "quantile"), [(2, 12.706), (3, 4.303), (5, 2.776), (10, 2.262), (31, 2.042)]
)
def test_the_interval_has_students_quantile(n: int, quantile: float) -> None:
    sample = Sample(tuple(float(value) for value in range(n)))
    assert sample.interval == pytest.approx(quantile * sample.sd / sqrt(n), rel=3e-4)


def test_the_interval_of_two_is_its_closed_form() -> None:
    # With one degree of freedom t is Cauchy: the quantile of 0.975 is tan(0.475 pi).
    assert Sample((0.0, 2.0)).interval == pytest.approx(12.7062047364)
    low, high = Sample((0.0, 2.0)).ends
    assert (low + high, high - low) == pytest.approx((2.0, 2 * 12.7062047364))


def test_one_seed_has_a_mean_and_no_spread() -> None:
    sample = Sample((3.0,))
    assert sample.mean == 3.0
    assert isnan(sample.sd)
    assert isnan(sample.interval)
    assert sample.against_zero == "not told apart"


def test_no_seed_has_nothing() -> None:
    sample = Sample(())
    assert sample.n == 0
    assert all(map(isnan, (sample.mean, sample.sd, sample.interval)))


def test_a_value_that_is_not_there_leaves_no_mean() -> None:
    sample = Sample((1.0, nan, 3.0))
    assert all(map(isnan, (sample.mean, sample.sd, sample.interval)))
    assert sample.against_zero == "not told apart"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ((1.0, 1.1, 0.9), "above"),
        ((-1.0, -1.1, -0.9), "below"),
        ((-1.0, 2.0, 0.5), "not told apart"),
        ((0.0, 0.0, 0.0), "not told apart"),
        ((1.0, 1.2), "not told apart"),  # 1.1, give or take 12.706 * 0.1 = 1.27
        ((1.0, 1.16), "above"),  # 1.08, give or take 12.706 * 0.08 = 1.016
    ],
)
def test_words_say_where_the_interval_lies(values: tuple[float, ...], word: str) -> None:
    assert Sample(values).against_zero == word


def test_pairs_are_of_the_seeds_that_both_have() -> None:
    first, second = {0: 5.0, 1: 7.0, 3: 1.0}, {3: 4.0, 1: 1.0, 2: 9.0}
    assert paired_differences(first, second) == Sample((6.0, -3.0))
    assert paired_differences(first, {}) == Sample(())


@given(st.dictionaries(st.integers(0, 9), st.tuples(NUMBERS, NUMBERS), min_size=1))
def test_pairs_are_a_plain_sample_of_differences(both: dict[int, tuple[float, float]]) -> None:
    first = {seed: values[0] for seed, values in both.items()}
    second = {seed: both[seed][1] for seed in reversed(both)}
    assert paired_differences(first, second) == Sample(tuple(a - b for a, b in both.values()))
    assert paired_differences(second, first).mean == pytest.approx(
        -paired_differences(first, second).mean
    )


@given(SAMPLES, NUMBERS)
def test_a_shift_moves_the_mean_alone(values: tuple[float, ...], shift: float) -> None:
    before, after = Sample(values), Sample(tuple(value + shift for value in values))
    assert after.mean == pytest.approx(before.mean + shift, abs=1e-9)
    assert after.sd == pytest.approx(before.sd, abs=1e-9)
    assert after.interval == pytest.approx(before.interval, abs=1e-8)


@given(SAMPLES, NUMBERS)
def test_a_scale_goes_through(values: tuple[float, ...], factor: float) -> None:
    before, after = Sample(values), Sample(values).times(factor)
    assert after.mean == pytest.approx(factor * before.mean, abs=1e-8)
    assert after.sd == pytest.approx(abs(factor) * before.sd, abs=1e-8)
    assert after.interval == pytest.approx(abs(factor) * before.interval, abs=1e-6)


@given(SAMPLES)
def test_the_order_of_seeds_does_not_matter(values: tuple[float, ...]) -> None:
    turned = Sample(values[::-1])
    assert turned.mean == pytest.approx(Sample(values).mean, abs=1e-9)
    assert turned.interval == pytest.approx(Sample(values).interval, abs=1e-8)
