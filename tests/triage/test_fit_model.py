"""A fit on features: what learns from what, what is promised, and inputs that are hardly any."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch

from protofission.core.center_mixture import log_priors
from protofission.core.conformal import guarantee
from protofission.core.errors import InputError
from protofission.core.metrics import auroc
from protofission.core.temperature import best_temperature
from protofission.core.threads import all_threads
from protofission.system.launch.in_order import run_in_order
from protofission.triage import fold_models, nearest_points
from protofission.triage.calibrated_model import ACCEPT, NOVEL, REJECT
from protofission.triage.fit_model import fit_features
from protofission.triage.fit_options import FitOptions
from protofission.triage.fold_models import (
    FoldData,
    fold_verdicts,
    held_out_outputs,
    pool_parts,
    pool_scores,
    train_models,
)
from protofission.triage.fold_training import CONTROL, METHOD, FoldTraining
from protofission.triage.folds import NO_FOLD

OPTIONS = FitOptions(steps=15, width=8, prototypes=2, keep=0.9, folds=3)
WIDTH = 16


def blobs(counts, seed, apart=4.0):
    """(N, 16) normal rows around one axis for each count, and their axes."""
    names = np.repeat(np.arange(len(counts)), counts)
    noise = np.random.default_rng(seed).normal(size=(len(names), WIDTH))
    return (apart * np.eye(WIDTH)[names] + noise).astype(np.float32), names


def fitted(options=OPTIONS, labeled=(12, 12, 12), pool=(30, 30, 30, 60), seed=0, **more):
    rows, labels = blobs(labeled, 2 * seed)
    others, truth = blobs(pool, 2 * seed + 1)
    return fit_features(rows, labels, others.__getitem__, len(others), options, **more), truth


@cache
def usual():
    """The fit that several tests look at; nobody changes it."""
    return fitted()


def bits(found):
    """All numbers of a fitted model."""
    return {name: value.clone() for name, value in found.state_dict().items()}


def assert_same(one, two):
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert torch.equal(value, two[name]), name


def test_models_hold_the_share_of_strangers_that_they_estimate_together():
    found, _ = usual()
    for model in found.calibrated_model.models:
        wanted = log_priors(3, model.sizes.free, found.strangers.share)
        assert torch.allclose(model.center_offsets.double(), wanted, atol=1e-5)


def test_nearest_points_join_a_fit_where_pseudo_strangers_say_so(monkeypatch):
    """Those of the usual fit do not; here they are told apart by points alone."""
    without, _ = usual()
    told = torch.zeros(6, 5).double(), torch.zeros(6, 5).double()
    told[0][:, 4] = 1
    told[0][:3, 0] = -2
    monkeypatch.setattr(nearest_points, "pseudo_strangers", lambda models, data: told)
    found, _ = fitted()
    growth = [1, 1, 1, 1, (1 - found.strangers.share) ** 2 / 1e-3]
    models = zip(without.calibrated_model.models, found.calibrated_model.models, strict=True)
    for before, after in models:
        assert (before.score_scales / after.score_scales).tolist() == pytest.approx(growth)


def test_strangers_are_rejected_and_known_images_named():
    found, truth = usual()
    known = truth < 3
    assert found.method == METHOD
    right = found.pool.classes.numpy()[known] == truth[known]
    assert right.mean() > 0.9
    assert found.accuracy > 0.8
    new, names = blobs((100, 100, 100, 100), 9)
    ids = found.calibrated_model(torch.from_numpy(new)).id_scores.numpy()
    assert auroc(-ids[names < 3], -ids[names >= 3]) > 0.85
    decisions = found.pool.decisions.numpy()
    assert (decisions[known] == ACCEPT).mean() > 0.8
    assert (decisions[~known] == REJECT).mean() > 0.4
    assert found.strangers.low <= 0.4 <= found.strangers.high
    assert found.typicality.shape == found.pool.id_scores.shape == (150,)


@pytest.mark.parametrize(("folds", "seeds"), [(1, 6), (3, 2)])
def test_the_share_that_is_kept_is_as_promised_over_seeds(folds, seeds):
    """By one model near the mean that is proved; by folds within the range, rather above."""
    kept = []
    for seed in range(seeds):
        options = FitOptions(steps=2, width=4, prototypes=1, keep=0.8, folds=folds, seed=seed)
        found = fitted(options, pool=(8, 8, 8, 8), seed=seed)[0]
        new = torch.from_numpy(blobs((150, 150, 150), 99 + seed)[0])
        kept.append(float((found.calibrated_model(new).decisions == ACCEPT).float().mean()))
        low, high = found.guarantee.at_least, found.guarantee.at_most
        assert low - 0.03 <= kept[-1] <= high + 0.03  # the range is for all images, these are 450
    if folds == 1:
        assert np.mean(kept) == pytest.approx(found.guarantee.expected, abs=0.08)
    else:
        assert np.mean(kept) > found.guarantee.expected - 0.05


def test_calibration_is_that_of_labels_by_models_that_did_not_learn_from_them():
    """Temperature, probabilities and accuracy, from the models of the folds and core alone."""
    found, _ = usual()
    rows, labels = blobs((12, 12, 12), 0)
    assert sorted(set(found.folds.tolist())) == [0, 1, 2]
    logits = np.zeros((36, 3))
    scores = np.zeros(36)
    for number, model in enumerate(found.calibrated_model.models):
        own = found.folds == number
        with torch.no_grad():
            outputs = model(torch.from_numpy(rows[own]))
        logits[own], scores[own] = (each.double().numpy() for each in outputs)
    temperature = best_temperature(logits, labels)
    assert float(found.calibrated_model.temperature) == pytest.approx(temperature, rel=1e-6)
    probs = torch.from_numpy(logits / temperature).softmax(1).numpy()
    assert found.held_probs == pytest.approx(probs, abs=1e-9)
    assert found.accuracy == (logits.argmax(1) == labels).mean()
    assert found.guard.images == found.guarantee.images == len(found.calibration_scores) == 36
    assert found.guarantee.folds == 3
    ranked = np.concatenate([np.sort(scores[found.folds == k]) for k in range(3)])
    assert found.calibrated_model.label_scores.numpy() == pytest.approx(ranked, rel=1e-6)


def test_one_fold_is_split_conformal_and_says_so():
    found, _ = fitted(replace(OPTIONS, folds=1, held_out=0.4))
    held = found.folds == 0
    assert held.sum() == 15
    assert len(found.calibrated_model.models) == 1
    scores = found.calibrated_model.label_scores.double().numpy()
    split = guarantee(scores, 0.9)
    assert (split.rank, split.expected) == (found.guarantee.rank, found.guarantee.expected)
    new = torch.from_numpy(blobs((50, 50, 50, 50), 9)[0])
    accepted = found.calibrated_model(new).decisions == ACCEPT
    raw = found.calibrated_model.by_model(new)[1][:, 0]
    assert torch.equal(accepted, raw.double() >= split.threshold)
    assert "15 held out" in found.promise()
    assert (found.held_probs[~held] == 0).all()
    assert found.held_probs[held].sum(1) == pytest.approx(1)


def test_a_fit_repeats_bit_for_bit_and_another_seed_differs():
    options = FitOptions(steps=2, width=4, prototypes=1, folds=2)
    one, two, other = (
        fitted(replace(options, seed=seed), (5, 5), (10, 10, 10))[0] for seed in (0, 0, 1)
    )
    assert_same(bits(one.calibrated_model), bits(two.calibrated_model))
    assert torch.equal(one.pool.id_scores, two.pool.id_scores)
    assert not torch.equal(one.pool.id_scores, other.pool.id_scores)


def test_strangers_are_called_novel_in_as_many_clusters_as_are_asked_for():
    options = replace(OPTIONS, discover=2, keep=0.8)
    found, truth = fitted(options, pool=(20, 20, 20, 40, 40))
    assert found.calibrated_model.num_clusters == 2
    assert found.novel is None
    assert set(found.pool.decisions.tolist()) == {ACCEPT, NOVEL}
    clusters = found.pool.clusters.numpy()
    own = [np.bincount(clusters[(truth == c) & (clusters >= 0)], minlength=2) for c in (3, 4)]
    assert {int(counts.argmax()) for counts in own} == {0, 1}


def fold_data(pool=45):
    rows, labels = blobs((6, 6), 0)
    others, _ = blobs((pool // 3,) * 3, 1)
    return FoldData(rows, labels, np.arange(12) % 3, others, pool_parts(len(others), 3, 0))


SETTINGS = FoldTraining(prototypes=2, width=4, steps=3, seed=0)


@pytest.mark.parametrize("with_pool", [False, True])
def test_no_model_learns_from_its_own_fold_or_part(with_pool):
    data = fold_data()
    models = train_models(data, SETTINGS, with_pool=with_pool)
    own, part = data.folds == 1, data.parts == 1
    labeled, labels, pool = data.labeled.copy(), data.labels.copy(), data.pool.copy()
    labeled[own] = -5 * labeled[own] + 1
    labels[own] = 1 - labels[own]
    pool[part] = 3 * pool[part] - 2
    changed = replace(data, labeled=labeled, labels=labels, pool=pool)
    others = train_models(changed, SETTINGS, with_pool=with_pool)
    assert_same(bits(models[1]), bits(others[1]))
    for number in (0, 2):
        assert not torch.equal(models[number].regression, others[number].regression)
    learned = [replace(data, pool=pool), replace(data, labeled=labeled, labels=labels)]
    for each, used in zip(learned, (with_pool, True), strict=True):
        again = train_models(each, SETTINGS, with_pool=with_pool)
        assert torch.equal(models[0].regression, again[0].regression) != used


@pytest.mark.slow
def test_the_number_of_processes_does_not_matter(monkeypatch):
    data = replace(fold_data(), folds=np.arange(12) % 2, parts=pool_parts(45, 2, 0))
    monkeypatch.setattr(fold_models, "run_in_order", partial(run_in_order, short=-1))
    marks = []
    one, two = (
        train_models(
            data, SETTINGS, with_pool=True, processes=n, progress=lambda *m: marks.append(m)
        )
        for n in (1, 2)
    )
    assert marks == 2 * [(0, 2), (1, 2), (2, 2)]
    for here, there in zip(one, two, strict=True):
        assert_same(bits(here), bits(there))


def test_training_has_one_thread_wherever_it_runs(monkeypatch):
    seen, before = [], torch.get_num_threads()

    def note(*_, **__):
        with all_threads():
            seen.append(torch.get_num_threads())

    monkeypatch.setattr(fold_models, "train_fold", note)
    torch.set_num_threads(2)
    try:
        train_models(fold_data(), SETTINGS, with_pool=True)
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1, 1]


def test_every_model_has_a_seed_of_its_own():
    seeds = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            fold_models, "train_fold", lambda settings, *_, **__: seeds.append(settings.seed)
        )
        train_models(fold_data(), replace(SETTINGS, seed=2**63 - 1), with_pool=False)
    assert seeds == [2**63 - 1, 0, 1]


def test_parts_of_the_pool_are_even_and_none_where_it_is_small():
    parts = pool_parts(50, 4, 0)
    assert sorted(np.bincount(parts).tolist()) == [12, 12, 13, 13]
    assert not np.array_equal(parts, np.sort(parts))
    assert not np.array_equal(parts, pool_parts(50, 4, 1))
    for size, models in ((15, 4), (0, 4), (50, 1)):
        assert (pool_parts(size, models, 0) == NO_FOLD).all()
        assert len(pool_parts(size, models, 0)) == size


@pytest.mark.parametrize("size", [45, 6])
def test_verdicts_of_folds_are_by_the_models_that_did_not_learn(size):
    data = replace(fold_data(size), folds=np.append(np.arange(9) % 3, [NO_FOLD] * 3))
    models = train_models(data, SETTINGS, with_pool=True)
    by_pool = pool_scores(models, data.pool)
    found = fold_verdicts(models, data, by_pool)
    logits, scores = held_out_outputs(models, data)
    with torch.no_grad():
        for place in range(9):
            out = models[place % 3](torch.from_numpy(data.labeled[place : place + 1]))
            assert found.scores[place] == pytest.approx(float(out.scores), rel=1e-4, abs=1e-4)
            assert float(scores[place]) == found.scores[place]
            assert torch.allclose(logits[place], out.logits[0], atol=1e-4)
            assert found.right[place] == (int(out.logits.argmax()) == data.labels[place])
    assert found.folds.tolist() == [0, 1, 2] * 3
    if size == 45:
        assert np.array_equal(found.parts, data.parts)
        assert np.array_equal(found.images, np.arange(45))
    else:  # all models learned from all of it, and all judge it
        assert sorted(zip(found.parts, found.images, strict=True)) == [
            (k, i) for k in range(3) for i in range(6)
        ]
    for score, part, image in zip(found.pool, found.parts, found.images, strict=True):
        assert score == float(by_pool[image, part])


def test_nothing_is_learned_from_images_of_the_pool_that_are_left_out():
    rows, labels = blobs((5, 5), 0)
    pool, _ = blobs((20, 20, 20), 1)
    options = FitOptions(steps=3, width=4, prototypes=1, folds=2)
    learn = np.arange(60) % 3 > 0
    asked = []

    def given(values, numbers):
        asked.append(numbers)
        return values[numbers]

    # without a search for near-duplicates, which may look at all of them
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("protofission.triage.fit_model.MOST_DUPLICATES", 0)
        one = fit_features(rows, labels, partial(given, pool), 60, options, learn_from=learn)
        changed = np.where(learn[:, None], pool, 99).astype(np.float32)
        two = fit_features(rows, labels, partial(given, changed), 60, options, learn_from=learn)
        nothing = fit_features(
            rows, labels, partial(given, pool), 60, options, learn_from=np.zeros(60, bool)
        )
    assert np.array_equal(asked[0], np.flatnonzero(learn))
    assert_same(bits(one.calibrated_model), bits(two.calibrated_model))
    assert torch.equal(one.pool.id_scores[learn], two.pool.id_scores[learn])
    assert len(one.duplicates) == 10
    assert (nothing.method, len(nothing.pool.classes)) == (CONTROL, 60)
    assert "no pool" in nothing.guard.sentence()


def tiny(rows, labels, pool, **options):
    given = FitOptions(**{"steps": 2, "width": 4, "prototypes": 2, **options})
    others = np.asarray(pool, np.float32)
    rows = np.asarray(rows, np.float32)
    return fit_features(rows, np.asarray(labels), others.__getitem__, len(others), given)


def noise(*shape):
    return np.random.default_rng(0).normal(size=shape)


SIX = noise(6, 4) + 4 * np.eye(4)[[0, 0, 0, 1, 1, 1]]
HARDLY_ANY = {
    "two images": (SIX[[0, 3]], [0, 1], noise(9, 4)),
    "two images and no pool": (SIX[[0, 3]], [0, 1], noise(0, 4)),
    "three images": (SIX[[0, 1, 3]], [0, 0, 1], noise(9, 4)),
    "no pool": (SIX, [0, 0, 0, 1, 1, 1], noise(0, 4)),
    "a pool of one": (SIX, [0, 0, 0, 1, 1, 1], noise(1, 4)),
    "a pool of two": (SIX, [0, 0, 0, 1, 1, 1], noise(2, 4)),
    "a pool of three": (SIX, [0, 0, 0, 1, 1, 1], noise(3, 4)),
    "constant features": (np.ones((6, 4)), [0, 0, 0, 1, 1, 1], np.ones((9, 4))),
    "constant features, no pool": (np.ones((6, 4)), [0, 0, 0, 1, 1, 1], noise(0, 4)),
    "near-duplicates": (
        np.repeat(SIX[[0, 3]], 3, 0) + 1e-6 * noise(6, 4),
        [0, 0, 0, 1, 1, 1],
        noise(9, 4),
    ),
    "one feature": (SIX[:, :1], [0, 0, 0, 1, 1, 1], noise(9, 1)),
}


@pytest.mark.parametrize(
    ("case", "folds"), [*((case, 2) for case in HARDLY_ANY), ("no pool", 1), ("two images", 1)]
)
def test_hardly_any_images_give_a_finite_model_that_accepts_all(case, folds):
    rows, labels, pool = HARDLY_ANY[case]
    found = tiny(rows, labels, pool, folds=folds, discover="auto" if folds == 1 else 2)
    for name, value in found.calibrated_model.state_dict().items():
        assert value.isfinite().all() or name == "threshold", name
    assert float(found.calibrated_model.threshold) == -np.inf
    assert found.pool.decisions.tolist() == [ACCEPT] * len(pool)
    assert found.pool.probs.isfinite().all()
    assert ((found.pool.id_scores > 0) & (found.pool.id_scores < 1)).all()
    assert (found.method == CONTROL) == (found.guard.pool_hurts or not len(pool))
    assert min(found.calibrated_model.subclass_counts) >= 1
    assert "helps" not in found.guard.sentence()
    assert "nan" not in found.guard.sentence() + found.promise()
    assert "cannot set a threshold" in found.promise()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"keep": 1.0}, "keep = 1.0"),
        ({"keep": 0}, "keep = 0"),
        ({"held_out": 1}, "held_out = 1"),
        ({"discover": -1}, "discover = -1"),
        ({"prototypes": 0}, "prototypes = 0"),
        ({"folds": 0}, "folds = 0"),
        ({"folds": 51}, "folds = 51"),
        ({"steps": 0}, "steps = 0"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_options_that_cannot_be_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        FitOptions(**options)


def test_every_stage_shows_how_far_it_is_and_numbers_are_counted_where_asked():
    marks: dict[str, list[tuple[int, int]]] = {}
    options = replace(OPTIONS, steps=2, prototypes="auto", discover="auto")
    found, _ = fitted(options, progress=lambda what, *mark: marks.setdefault(what, []).append(mark))
    assert list(marks) == [
        "looking for near-duplicates",
        "training controls on the labels alone",
        "training models on labels and pool",
        "judging the pool",
    ]
    for own in marks.values():
        assert own == [(done, own[-1][1]) for done in range(own[-1][1] + 1)]
    assert len(found.parts) == 3
    assert found.novel is not None
    assert found.novel.number == found.calibrated_model.num_clusters
    assert found.calibrated_model.subclass_counts == tuple(each.number for each in found.parts)
