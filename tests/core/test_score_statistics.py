"""Temperature, threshold and drift against grids, counts and many draws."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofission.core.conformal import Guarantee, guarantee
from protofission.core.errors import InputError
from protofission.core.score_drift import Drift, drift_test, visible_gap
from protofission.core.temperature import best_temperature, expected_calibration_error
from reference import calibration as scalar

close = pytest.approx
SEEDS = range(4)
KEEPS = ("0.5", "0.8", "0.9", "0.95", "0.99")


def conformal_threshold(scores: object, keep: float) -> float:
    return guarantee(scores, keep).threshold


def drawn_logits(
    seed: int, n: int = 80, classes: int = 4, scale: float = 3.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits `scale` times too large for the labels that they are drawn with."""
    random = np.random.default_rng(seed)
    true = random.normal(size=(n, classes)) * 1.5
    labels = (true + random.gumbel(size=true.shape)).argmax(1)
    return true * scale, labels


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_temperature_is_the_best_of_a_grid(seed, scale):
    logits, labels = drawn_logits(seed, scale=scale)
    found = best_temperature(logits, labels)
    lists = logits.tolist(), labels.tolist()
    assert found == close(scalar.best_temperature(*lists, steps=300), rel=0.021)
    assert scalar.log_loss(*lists, found) <= scalar.log_loss(
        *lists, scalar.best_temperature(*lists, steps=300)
    )


def test_the_temperature_of_two_logits_has_a_closed_form():
    """Three of four right at a margin of 1: sigmoid(1 / T) = 3 / 4."""
    logits = [[1.0, 0.0]] * 4
    assert best_temperature(logits, [0, 0, 0, 1]) == close(1 / math.log(3))


def test_the_temperature_finds_what_the_logits_were_multiplied_with():
    logits, labels = drawn_logits(0, n=20_000, scale=4.0)
    assert best_temperature(logits, labels) == close(4, rel=0.05)


@given(st.integers(0, 99), st.floats(0.5, 2))
def test_the_temperature_goes_with_the_scale_of_logits_and_not_with_their_offset(seed, factor):
    logits, labels = drawn_logits(seed, n=30, scale=2.0)
    found = best_temperature(logits, labels)
    if 1.01 < found < 9:
        offsets = np.arange(len(labels))[:, None]
        assert best_temperature(factor * logits + offsets, labels) == close(factor * found)


def test_the_temperature_depends_on_no_order_of_images_or_classes():
    logits, labels = drawn_logits(1)
    order, classes = np.random.default_rng(0).permutation(len(labels)), np.array([2, 0, 3, 1])
    moved = logits[order][:, np.argsort(classes)]
    assert best_temperature(moved, classes[labels[order]]) == close(
        best_temperature(logits, labels), rel=1e-8
    )


@pytest.mark.parametrize(
    ("logits", "labels"),
    [(np.zeros((0, 3)), []), ([[5.0], [2.0]], [0, 0]), ([[2.0, 2.0], [1.0, 1.0]], [0, 1])],
)
def test_the_temperature_is_one_where_nothing_depends_on_it(logits, labels):
    assert best_temperature(logits, labels) == 1.0


def test_the_temperature_stays_within_its_bounds():
    """All right, all wrong; by so much too that every loss but the slope has run out of digits."""
    for margin in (1.0, 1e3, 1e30):
        logits = [[margin, 0.0], [0.0, margin]]
        assert best_temperature(logits, [0, 1]) == 0.5
        assert best_temperature(logits, [1, 0]) == 20.0


@pytest.mark.parametrize("bins", [1, 2, 10, 15])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_calibration_error_is_that_of_counted_bins(seed, bins):
    logits, labels = drawn_logits(seed)
    probs = softmax(logits)
    assert expected_calibration_error(probs, labels, bins) == close(
        scalar.expected_calibration_error(probs.tolist(), labels.tolist(), bins)
    )


def test_the_calibration_error_by_hand():
    """Two bins: (0.6, 0.6) with one right is 0.1 off, (0.9, 0.8) with both right is 0.15 off."""
    probs = [[0.6, 0.4], [0.4, 0.6], [0.9, 0.1], [0.2, 0.8]]
    assert expected_calibration_error(probs, [0, 0, 0, 1], bins=4) == close(0.125)
    assert expected_calibration_error(probs, [0, 0, 0, 1], bins=1) == close(0.025)


def test_a_probability_on_an_edge_belongs_to_the_bin_below():
    """At 0.75 of (0.5, 0.75], apart from 1.0: both errors count in full."""
    probs = [[0.75, 0.25], [1.0, 0.0]]
    assert expected_calibration_error(probs, [1, 0], bins=4) == close(0.375)
    assert expected_calibration_error(probs, [0, 1], bins=4) == close(0.625)


def test_sure_and_right_is_no_error_and_sure_and_wrong_is_all():
    assert expected_calibration_error(np.eye(3), [0, 1, 2]) == 0.0
    assert expected_calibration_error(np.eye(3), [1, 2, 0]) == 1.0


def test_the_best_temperature_mends_the_calibration_error():
    logits, labels = drawn_logits(0, n=20_000, scale=4.0)
    before = expected_calibration_error(softmax(logits), labels)
    after = expected_calibration_error(softmax(logits / best_temperature(logits, labels)), labels)
    assert before > 0.1
    assert after < 0.02


def test_no_image_has_no_calibration_error():
    assert math.isnan(expected_calibration_error(np.zeros((0, 4)), []))


@pytest.mark.parametrize(
    ("n", "keep", "rank"),
    [(9, 0.9, 1), (8, 0.9, 0), (19, 0.95, 1), (18, 0.95, 0), (99, 0.99, 1), (49, 0.9, 5)],
)
def test_the_rank_is_not_lost_to_rounding(n, keep, rank):
    scores = np.arange(n)[::-1]
    assert guarantee(scores, keep).rank == rank
    assert conformal_threshold(scores, keep) == (rank - 1 if rank else -math.inf)


@given(st.integers(0, 400), st.integers(1, 999))
def test_the_rank_is_that_of_fractions(n, thousandths):
    found = guarantee(np.zeros(n), thousandths / 1000)
    assert found.rank == scalar.rank(n, f"0.{thousandths:03}")
    assert found.expected >= found.keep - 1e-12


@given(st.integers(1, 999))
def test_as_many_images_as_needed_are_needed(thousandths):
    keep = thousandths / 1000
    needed = guarantee([], keep).fewest_images
    assert guarantee(np.zeros(needed), keep).rank >= 1
    assert needed == 0 or guarantee(np.zeros(needed - 1), keep).rank == 0


def test_a_threshold_by_hand():
    scores = [3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0, 5.5]
    assert conformal_threshold(scores, 0.9) == 1.0
    assert conformal_threshold(scores, 0.8) == 1.5
    assert conformal_threshold(scores, 0.5) == 4.0
    assert conformal_threshold(scores, 0.91) == -math.inf


def draws(kind: str, count: int, n: int, random: np.random.Generator) -> np.ndarray:
    """(count, n) scores; the tied ones have four values, one of them half of the time."""
    if kind == "ties":
        return random.choice([0.0, 1.0, 2.0, 3.0], size=(count, n), p=[0.1, 0.15, 0.25, 0.5])
    return random.random((count, n))


def accepted(kind: str, thresholds: np.ndarray) -> np.ndarray:
    """The true chance of a new score to reach each threshold."""
    if kind == "ties":
        return np.select([thresholds <= 0, thresholds <= 1, thresholds <= 2], [1, 0.9, 0.75], 0.5)
    return 1 - np.maximum(thresholds, 0)


@pytest.mark.parametrize("kind", ["uniform", "ties"])
@pytest.mark.parametrize("keep", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("n", [5, 19, 60, 200])
def test_a_threshold_keeps_the_share_it_promises(n, keep, kind):
    random = np.random.default_rng(n)
    promised = [guarantee(row, keep) for row in draws(kind, 800, n, random)]
    kept = accepted(kind, np.array([one.threshold for one in promised]))
    error = kept.std() / math.sqrt(len(kept))
    assert kept.mean() >= keep - 4 * error
    reached = (kept >= promised[0].at_least - 1e-12).mean()
    assert reached >= 0.975 - 4 * math.sqrt(0.975 * 0.025 / len(kept))
    if kind == "uniform":
        assert kept.mean() == close(promised[0].expected, abs=4 * error + 1e-12)
        within = reached - (kept > promised[0].at_most).mean()
        if promised[0].rank:
            assert within == close(0.95, abs=4 * math.sqrt(0.95 * 0.05 / len(kept)))


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("n", [1, 9, 20, 100])
def test_the_range_that_is_kept_is_a_sum_of_binomials(n, keep, confidence):
    found = guarantee(np.arange(n), float(keep), confidence)
    if found.rank:
        assert found.at_least == close(scalar.at_least(n, found.rank, (1 + confidence) / 2))
        assert found.at_most == close(scalar.at_least(n, found.rank, (1 - confidence) / 2))
    else:
        assert found.at_least == found.at_most == 1.0


def test_the_share_that_is_kept_for_sure_has_a_closed_form_at_rank_one():
    assert guarantee(range(9), 0.9).at_least == close(0.025 ** (1 / 9))
    assert guarantee(range(9), 0.9).at_most == close(0.975 ** (1 / 9))


@given(st.lists(st.integers(-50, 50), min_size=20, max_size=60), st.sampled_from(KEEPS))
def test_a_threshold_goes_along_with_any_rising_change_of_scores(values, keep):
    scores = np.array(values, float)
    before = guarantee(scores, float(keep))
    after = guarantee(np.exp(scores / 10)[::-1], float(keep))
    if before.rank:
        assert after.threshold == np.exp(np.array([before.threshold]) / 10)[0]
    assert (before.rank, before.at_least) == (after.rank, after.at_least)


def test_acceptance_of_tied_scores_is_by_reaching_the_threshold():
    """All tied: the threshold is their score, and nobody is refused."""
    scores = np.full(30, np.float32(0.1))
    assert (scores >= np.float32(conformal_threshold(scores, 0.9))).all()


def test_infinite_scores_have_their_rank():
    assert conformal_threshold([-math.inf, 1.0, math.inf], 0.5) == 1.0


def test_the_promise_in_words():
    assert guarantee(np.arange(49) / 7, 0.9).sentence() == (
        "Of new images of a known class, if drawn like the 49 held out, about 90 % are accepted: "
        "between 80.3 % and 96.7 % with 95 % confidence for so many (proved: at least 90 % on "
        "average)."
    )
    assert guarantee([0.3], 0.95).sentence() == (
        "1 image held out cannot set a threshold that keeps 95 % of known images, so every image "
        "is accepted: label more, so that 19 can be held out, or lower keep to 0.5."
    )
    assert "keeps 99.99 % of known images" in guarantee(range(1200), 0.9999).sentence()
    assert "so that 9,999 can be held out" in guarantee(range(1200), 0.9999).sentence()


def test_what_is_said_to_be_kept_is_rounded_outwards():
    words = Guarantee(0.5, 100, 0.0, 50, 0.5, 0.89999, at_most=0.92301, proved=0.49999).sentence()
    assert "between 89.9 % and 92.4 % with" in words
    assert "at least 49.9 % on average" in words


@pytest.mark.parametrize("seed", SEEDS)
def test_drift_is_that_of_counted_images(seed):
    random = np.random.default_rng(seed)
    known, new = random.normal(size=6), random.normal(size=5) - seed / 2
    found = drift_test(known, new, -0.5)
    assert (found.known, found.images) == (6, 5)
    assert found.expected == close(sum(score < -0.5 for score in known) / 6)
    assert found.found == close(sum(score < -0.5 for score in new) / 5)
    assert found.statistic == close(scalar.gap(known.tolist(), new.tolist()))
    assert found.p_value == close(scalar.gap_p_value(known.tolist(), new.tolist()))


@pytest.mark.parametrize(("rejected", "total"), [(0, 1), (1, 1), (0, 30), (7, 30), (30, 30)])
def test_the_interval_of_rejections_is_by_binomial_sums(rejected, total):
    new = np.where(np.arange(total) < rejected, -1.0, 1.0)
    found = drift_test([0.0, 1.0], new, 0.0)
    assert (found.low, found.high) == close(scalar.clopper_pearson(rejected, total))


def test_a_score_on_the_threshold_is_not_rejected():
    found = drift_test([0.0, 1.0], [1.0, 0.5], 1.0)
    assert (found.expected, found.found) == (0.5, 0.5)


def test_drift_is_seen_seldom_where_there_is_none_and_mostly_where_there_is():
    random, names = np.random.default_rng(0), ("no drift seen", "drift")
    same, moved = (
        [
            drift_test(random.normal(size=200), random.normal(size=150) - by, -1.6).verdict
            for _ in range(200)
        ]
        for by in (0.0, 0.7)
    )
    assert set(same + moved) == set(names)
    assert same.count("drift") / 200 <= 0.01 + 4 * math.sqrt(0.01 * 0.99 / 200)
    assert moved.count("drift") / 200 > 0.95


def test_the_verdict_changes_at_a_hundredth():
    """Five against five, wholly apart: p = 2 / 252, below 0.01; five against four: 2 / 126."""
    apart = drift_test(range(5), range(10, 15), 0)
    assert (apart.p_value, apart.verdict) == (close(2 / 252), "drift")
    nearly = drift_test(range(5), range(10, 14), 0)
    assert (nearly.p_value, nearly.verdict) == (close(2 / 126), "too few to tell")


@pytest.mark.parametrize("keep", [0.9, 0.95, 0.999])
@pytest.mark.parametrize("images", [1, 2, 6, 8])
def test_the_lower_keep_that_is_named_can_be_promised_and_hardly_more(keep, images):
    refused = guarantee(range(images), keep)
    assert refused.rank == 0
    named = float(refused.remedy.rpartition(" ")[2])
    assert guarantee(range(images), named).rank == 1
    assert guarantee(range(images), named + 0.001).rank == 0
    assert "lower keep" not in guarantee([], keep).sentence()


@pytest.mark.parametrize(
    ("known", "new", "verdict"),
    [
        (20, 1, "too few to tell"),
        (20, 3, "too few to tell"),
        (20, 4, "no drift seen"),
        (2, 10_000, "too few to tell"),
        (3, 22, "too few to tell"),
        (3, 23, "no drift seen"),
    ],
)
def test_so_few_that_they_cannot_show_drift_are_said_to_be(known, new, verdict):
    found = drift_test(np.arange(known), np.linspace(0, known - 1, new), -math.inf)
    assert found.verdict == verdict
    if verdict == "too few to tell":
        remedy = "give more images" if new < known else "fit with more labels"
        assert found.sentence().endswith(f"cannot show drift; {remedy}.")
    assert found.rejections().startswith("The model accepts every image")


def test_the_share_of_strangers_that_may_not_show_is_about_half_seen():
    random, known, new = np.random.default_rng(0), 40, 60
    gap = visible_gap(known, new)

    def seen(share: float) -> float:
        verdicts = []
        for _ in range(300):
            strangers = random.random(new) < share
            scores = random.normal(size=new) - 99 * strangers
            verdicts.append(drift_test(random.normal(size=known), scores, 0).verdict)
        return verdicts.count("drift") / len(verdicts)

    assert seen(gap - 0.15) < 0.35 < seen(gap) < 0.8 < seen(gap + 0.15)


@pytest.mark.parametrize(("n", "m"), [(12_000, 7), (3_000, 3_500), (20_000, 20_000)])
def test_large_samples_wholly_apart_or_all_tied_raise_no_warning(n, m):
    assert drift_test(np.ones(n), np.zeros(m), 0.5).verdict == "drift"
    tied = drift_test(np.ones(n), np.ones(m), 0.5)
    assert (tied.p_value, tied.verdict) == (close(1), "no drift seen")


def test_drift_does_not_depend_on_the_scale_of_scores():
    random = np.random.default_rng(3)
    known, new = random.normal(size=90), random.normal(size=40) - 0.4
    assert drift_test(np.exp(known), np.exp(new), math.exp(-1)) == drift_test(known, new, -1.0)


def test_drift_in_words_and_as_json():
    found = Drift(500, 200, 0.05, 0.32, 0.256, 0.3894, 0.307, 1.24e-12, "drift")
    assert found.sentence() == (
        "Drift: the scores of 200 new images differ from those of 500 held-out images of known "
        "classes by more than chance explains (Kolmogorov-Smirnov 0.31, p = 1.2e-12); strangers "
        "among them are drift too."
    )
    assert found.rejections() == (
        "Not accepted: 64 of 200 new images (32 %; 25.6 % to 38.9 % with 95 % confidence) and 25 "
        "of 500 held-out images."
    )
    none = drift_test(range(10), range(10), 1.0)
    assert none.sentence() == (
        "No drift seen: the scores of 10 new images differ from those of 10 held-out images of "
        "known classes by no more than chance explains (Kolmogorov-Smirnov 0.00, p = 1); a share "
        "of strangers below about 73 % may not show."
    )
    one = drift_test([1.0, 2.0], [1.5], 0.0)
    assert one.rejections().startswith("Not accepted: 0 of 1 new image (0 %; 0 % to 97.5 % with")
    assert one.sentence() == (
        "Too few to tell: 1 new image beside 2 held-out images cannot show drift; give more images."
    )
    for value in (none, guarantee(range(9), 0.9)):
        assert json.loads(json.dumps(asdict(value))) == asdict(value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: conformal_threshold([1.0], 0.0), r"keep = 0\.0 must be above 0 and below 1"),
        (lambda: conformal_threshold([1.0], 1), "keep = 1 must be above 0 and below 1"),
        (lambda: conformal_threshold([1.0], math.nan), "keep = nan must be above 0"),
        (lambda: guarantee([1.0], 0.9, 1.5), r"confidence = 1\.5 must be above 0"),
        (lambda: conformal_threshold([1.0, math.nan], 0.9), "1 of 2 held-out scores are NaN"),
        (lambda: conformal_threshold([[1.0]], 0.9), r"held-out scores are of shape \(1, 1\)"),
        (lambda: drift_test([], [1.0], 0.0), "There are no held-out scores"),
        (lambda: drift_test([1.0], [], 0.0), "There are no new scores"),
        (lambda: drift_test([1.0], [math.nan], 0.0), "1 of 1 new scores are NaN"),
        (lambda: drift_test([1.0], [1.0], math.nan), "threshold = nan"),
        (lambda: best_temperature([1.0, 2.0], [0, 1]), r"logits are of shape \(2,\)"),
        (lambda: best_temperature([[1.0, 2.0]], [0, 1]), r"shape \(2,\) for 1 images"),
        (lambda: best_temperature([[1.0, math.inf]], [0]), "logits are NaN or infinite"),
        (lambda: best_temperature([[1.0, 2.0]], [0.5]), "whole number, not float64"),
        (lambda: best_temperature([[1.0, 2.0]], [2]), r"2 \.\.\. 2 lie outside 0 \.\.\. 1"),
        (lambda: best_temperature([[1.0, 2.0]], [-1]), r"-1 \.\.\. -1 lie outside"),
        (lambda: expected_calibration_error([[0.5, 0.5]], [0], bins=0), "bins = 0 must be"),
        (lambda: expected_calibration_error([[2.0, 1.0]], [0]), "do not add up to 1"),
        (lambda: expected_calibration_error([[1.5, -0.5]], [0]), "do not add up to 1"),
        (lambda: expected_calibration_error([[math.nan, 1.0]], [0]), "probabilities are NaN"),
    ],
)
def test_bad_input_is_one_sentence(call, words):
    with pytest.raises(InputError, match=words) as refused:
        call()
    text = str(refused.value)
    assert text.endswith(".")
    assert "\n" not in text
