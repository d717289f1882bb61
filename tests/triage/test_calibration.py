"""Labels that are held out, and what they set: in a fit and in the estimator by one function."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protofission import PrototypeFissionClassifier
from protofission.core.conformal import guarantee
from protofission.core.temperature import best_temperature
from protofission.data.augment.feature_views import FeatureViews
from protofission.triage import estimator, fit_model
from protofission.triage.calibration import _held_out_mask, calibrate, hold_out
from protofission.triage.fit_model import FitOptions, fit_rows
from protofission.triage.model_choice import judge_rows
from small_bundles import calibrated_model_of


@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    wanted=st.integers(1, 120),
    seed=st.integers(0, 99),
)
def test_as_many_are_held_out_as_can_be_of_each_class_its_share(counts, wanted, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    held, total = _held_out_mask(labels, wanted, seed), len(labels)
    assert held.sum() == min(wanted, total // 2, total - len(counts))
    assert set(labels[~held]) == set(range(len(counts)))
    shares = [held[labels == own].mean() - held.mean() for own in range(len(counts))]
    sizes = np.array(counts)
    if sizes.min() > 2:
        assert (np.abs(shares) <= 1 / sizes + 0.05).all()


@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=8).filter(lambda c: max(c) > 1),
    st.floats(0.05, 0.9),
    st.sampled_from([0.5, 0.9, 0.95]),
    st.integers(0, 5),
)
def test_what_is_held_out_is_apart_and_every_class_stays_in_training(counts, share, keep, seed):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    held = hold_out(labels, share, keep, seed)
    together = np.concatenate(held)
    assert sorted(together.tolist()) == list(range(len(labels)))
    assert set(labels[held.training].tolist()) == set(range(len(counts)))
    out = len(held.choosing) + len(held.calibrating)
    wanted = max(math.ceil(share * len(labels)), {0.5: 2, 0.9: 14, 0.95: 29}[keep])
    assert out == min(wanted, len(labels) // 2, len(labels) - len(counts))
    assert len(held.choosing) == out // 3
    again = hold_out(labels, share, keep, seed)
    assert all(np.array_equal(*pair) for pair in zip(held, again, strict=True))


@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=8).filter(lambda c: max(c) > 1),
    st.sampled_from([0.5, 0.9, 0.95]),
    st.integers(0, 5),
)
def test_where_they_are_not_apart_all_choose_and_calibrate(counts, keep, seed):
    labels = np.repeat(np.arange(len(counts)), counts)
    held = hold_out(labels, 0.2, keep, seed, apart=False)
    assert np.array_equal(held.choosing, held.calibrating)
    assert sorted([*held.training, *held.choosing]) == list(range(len(labels)))
    wanted = max(math.ceil(0.2 * len(labels)), {0.5: 1, 0.9: 9, 0.95: 19}[keep])
    assert len(held.choosing) == min(wanted, len(labels) // 2, len(labels) - len(counts))


@pytest.mark.parametrize("double", [False, True])
def test_temperature_and_threshold_are_those_of_core_each_by_its_own_images(double):
    rng = np.random.default_rng(0)
    logits, labels = 4 * rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
    scores = rng.normal(size=30)
    model = calibrated_model_of()
    model = model.double() if double else model
    promised = calibrate(model, logits, labels, scores, 0.9)
    kind = np.float64 if double else np.float32
    assert promised == guarantee(scores, 0.9)
    assert float(model.temperature) == float(kind(best_temperature(logits, labels)))
    assert float(model.threshold) == float(kind(promised.threshold)) == kind(np.sort(scores)[2])


@pytest.mark.parametrize(("clusters", "threshold"), [(False, -math.inf), (True, 0.0)])
def test_without_a_promise_nearest_is_accepted(clusters, threshold):
    model = calibrated_model_of(novel=2, clusters=clusters)
    promised = calibrate(model, np.zeros((0, 3)), np.zeros(0, np.int64), np.zeros(3), 0.9)
    assert promised.rank == 0
    assert (float(model.temperature), float(model.threshold)) == (1.0, threshold)


def rows_and_labels():
    labels = np.arange(120) % 3
    noise = np.random.default_rng(0).normal(size=(120, 8))
    return 2 * np.eye(8)[labels] + noise, labels


def uncalibrated(calibrated_model):
    bare = copy.deepcopy(calibrated_model)
    bare.temperature.fill_(1)
    bare.threshold.fill_(-math.inf)
    return bare


def test_a_fit_and_the_estimator_calibrate_alike(monkeypatch):
    """Both call one function, with what their models say of the labels held out, and no others."""
    calls = []

    def noting(calibrated_model, *arguments):
        calls.append((uncalibrated(calibrated_model), *arguments))
        return calibrate(calibrated_model, *arguments)

    for user in (fit_model, estimator):
        monkeypatch.setattr(user, "calibrate", noting)
    rows, labels = rows_and_labels()
    tensor = torch.from_numpy(rows).float()
    options = FitOptions(steps=20, width=8, prototypes=2, keep=0.9, seed=4)
    fitted = fit_rows(FeatureViews.of(tensor), tensor, labels, tensor, 8, options)
    known = PrototypeFissionClassifier(steps=20, width=8, prototypes=2, keep=0.9, random_state=4)
    known.fit(rows, labels)
    (bare, logits, own, scores, keep), (other, *given_) = calls

    held = hold_out(labels, options.held_out, 0.9, 4)
    views = FeatureViews.of(tensor)
    assert np.array_equal(own, labels[held.choosing])
    wanted = judge_rows(bare, views, tensor[held.calibrating]).id_scores.numpy()
    assert np.array_equal(scores, wanted)
    probs = judge_rows(bare, views, tensor[held.choosing]).probs.double().log().numpy()
    assert np.array_equal(logits, probs)
    assert len(given_[0]) == len(given_[1]) == len(given_[2]) == known.n_held_out_ == 24

    # the same numbers give the same temperature and threshold in either
    for calibrated_model in (bare, other):
        calibrate(calibrated_model, logits, own, scores, keep)
        assert float(calibrated_model.temperature.float()) == float(
            fitted.calibrated_model.temperature
        )
        assert float(calibrated_model.threshold.float()) == float(fitted.calibrated_model.threshold)
    calibrate(other, *given_)
    assert float(other.temperature) == known.temperature_
    assert float(other.threshold) == known.threshold_
