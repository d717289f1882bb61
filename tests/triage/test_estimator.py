"""The scikit-learn classifier: scikit-learn's own checks, and what it promises beyond them."""

from __future__ import annotations

import pickle
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from protofission import InputError, PrototypeFissionClassifier
from protofission.triage.calibrated_model import ACCEPT
from protofission.triage.fit_model import fit_features
from protofission.triage.fit_options import FitOptions

FEW = "ignore:.*too few to promise:UserWarning"
SMALL: dict[str, Any] = {
    "steps": 10,
    "width": 16,
    "prototypes": 2,
    "folds": 2,
    "random_state": 0,
}
CENTRES = np.eye(6)[:, :5] * 8 - (np.arange(6) == 5)[:, None] * 8
"""Five axes, and a sixth blob opposite to all of them."""


def blobs(seed: int, each: int, classes: tuple[int, ...] = (0, 1, 2)) -> tuple[Any, Any]:
    """Rows about some of the centres, and their classes, in a random order."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(classes, each))
    return CENTRES[labels] + random.normal(size=(len(labels), 5)), labels


def open_pool(seed: int, labeled: int = 20) -> tuple[Any, Any]:
    """Blobs 0-2 known, with so many labels each; 3 and 4 strangers; -1 for rows without a label."""
    rows, labels = blobs(seed, 60, (0, 1, 2, 3, 4))
    rank = np.array([(labels[:place] == own).sum() for place, own in enumerate(labels)])
    return rows, np.where((labels < 3) & (rank < labeled), labels, -1)


def small(**options: Any) -> PrototypeFissionClassifier:
    return PrototypeFissionClassifier(**{**SMALL, **options})


@pytest.fixture(scope="module")
def fitted() -> PrototypeFissionClassifier:
    return small().fit(*open_pool(0))


@pytest.fixture(scope="module")
def discovering() -> PrototypeFissionClassifier:
    return small(n_novel=2).fit(*open_pool(0))


AGAINST = {
    "check_classifiers_train": "it wants a class for every row, and a row may be of none",
    "check_classifiers_classes": "it has a class -1; scikit-learn exempts its own by their names",
}
"""The checks that contradict the options as they are, and why."""


@pytest.mark.filterwarnings(FEW)
@parametrize_with_checks([small(steps=2)], expected_failed_checks=lambda _: AGAINST)
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)


CLOSED = [
    (estimator, check)
    for estimator, check in estimator_checks_generator(
        small(steps=2, reject=False, unlabeled=-99), mark=None
    )
    if check.func.__name__ in AGAINST
]


@pytest.mark.parametrize(("estimator", "check"), CLOSED)
def test_with_other_options_it_passes_these_checks_too(estimator, check):
    check(estimator)


def test_no_check_is_named_that_does_not_exist():
    assert {check.func.__name__ for _, check in CLOSED} == set(AGAINST)


@pytest.mark.parametrize("pool", [True, False])
def test_arrays_give_what_folders_give_from_the_same_features(pool):
    """As a fit of folders calls it, on single precision, without the estimator's exact sums."""
    rows, marked = open_pool(3)
    rows, marked = (rows, marked) if pool else (rows[marked != -1], marked[marked != -1])
    rows, free = rows.astype(np.float32), marked == -1
    model = small(folds=3, random_state=7).fit(rows, marked)
    others = rows[free]
    options = FitOptions(steps=10, width=16, prototypes=2, folds=3, seed=7)
    found = fit_features(
        rows[~free], marked[~free], lambda some: others[some], len(others), options
    )
    fresh = blobs(4, 100, (0, 1, 2, 3, 4))[0].astype(np.float32)
    with torch.no_grad():
        verdicts = found.calibrated_model.float()(torch.from_numpy(fresh))
    scores = verdicts.id_scores.numpy()
    # A score that is as high as a label's, but for rounding, is one rank lower or higher.
    apart = np.abs(model.score_samples(fresh) - scores) > 1e-5
    assert apart.mean() < 0.02
    accepted = verdicts.decisions.numpy() == ACCEPT
    expected = np.where(accepted, verdicts.classes.numpy(), -1)
    assert 0.1 < accepted.mean() < 0.9
    assert np.array_equal(model.predict(fresh)[~apart], expected[~apart])
    np.testing.assert_allclose(model.predict_proba(fresh), verdicts.probs.numpy(), atol=1e-5)
    assert (model.predict_cluster(fresh) == verdicts.clusters.numpy())[~apart].all()
    assert (model.predict_subclass(fresh) == verdicts.subclasses.numpy()).all()
    assert (model.threshold_, model.method_) == (found.guarantee.threshold, found.method)
    assert (model.strangers_ == found.strangers) or not pool
    assert model.guarantee_ == found.guarantee


def test_known_rows_are_named_and_strangers_are_not(fitted):
    rows, labels = blobs(1, 200, (0, 1, 2, 3, 4))
    known, guesses = labels < 3, fitted.predict(rows)
    assert fitted.method_ == "orca+pf"
    assert (guesses[known] == labels[known]).mean() > 0.85
    assert (guesses[~known] == -1).mean() > 0.85


def test_rows_far_away_from_all_classes_are_rejected(fitted):
    """Opposite to the classes, at any distance that a double holds."""
    away = np.array([[1e2], [1e6], [1e90], [1e300]]) * -CENTRES[:3].sum(0)
    assert (fitted.predict(away) == -1).all()


def test_novel_rows_are_found_and_told_apart(discovering):
    rows, labels = blobs(1, 100, (0, 1, 2, 3, 4))
    clusters, novel = discovering.predict_cluster(rows), labels >= 3
    assert discovering.method_ == "orca+pf"
    assert (clusters[~novel] == -1).mean() > 0.85
    same = clusters[novel] == labels[novel] - 3
    assert max(same.mean(), (clusters[novel] == 4 - labels[novel]).mean()) > 0.85
    assert np.array_equal(discovering.predict(rows) == -1, clusters >= 0)


@pytest.mark.parametrize(("keep", "strangers"), [(0.8, 0), (0.95, 20)])
def test_keep_promises_its_share_of_fresh_known_rows(keep, strangers):
    """On average over fits, without a pool and with one; each has 1002 fresh rows."""
    shares = []
    for seed in range(5):
        rows, labels = blobs(seed, 40)
        pool, _ = blobs(50 + seed, strangers, (0, 1, 2, 3, 4))
        marked = np.append(labels, np.full(len(pool), -1))
        model = small(n_novel=min(strangers, 2), steps=2, keep=keep, random_state=seed).fit(
            np.vstack([rows, pool]), marked
        )
        fresh, _ = blobs(100 + seed, 334)
        shares.append((model.predict(fresh) != -1).mean())
    assert model.n_held_out_ == 120
    spread = (keep * (1 - keep) / 122 / len(shares)) ** 0.5  # of a Beta, over the fits
    # The mean of ranks by two models varies less than one rank, so rather more are kept.
    assert keep - 3 * spread < np.mean(shares) < (1 + keep) / 2 + 3 * spread


def test_without_unlabeled_rows_it_is_supervised_and_still_rejects():
    model = small().fit(*blobs(0, 40))
    assert model.method_ == "supervised+pf"
    rows, labels = blobs(1, 100)
    assert (model.predict(rows) == labels).mean() > 0.85
    assert (model.predict(-rows - 8) == -1).mean() > 0.85


def test_decisions_follow_score_and_threshold(fitted, discovering):
    rows, _ = blobs(2, 50, (0, 1, 2, 3, 4))
    for model in (fitted, discovering):
        accepted = model.score_samples(rows) >= model.threshold_
        assert 0 < accepted.mean() < 1
        assert np.array_equal(model.predict(rows) != -1, accepted)
        likeliest = model.classes_[model.predict_proba(rows).argmax(1)]
        assert np.array_equal(model.predict(rows)[accepted], likeliest[accepted])


def test_reject_can_be_switched_off_after_the_fit(fitted):
    rows, _ = blobs(2, 50, (3, 4))
    closed = pickle.loads(pickle.dumps(fitted)).set_params(reject=False)
    assert np.array_equal(closed.predict(rows), fitted.predict_proba(rows).argmax(1))


def test_log_probabilities_are_those_of_the_probabilities(fitted):
    rows, _ = blobs(2, 50, (0, 1, 2, 3, 4))
    probs = fitted.predict_proba(rows)
    np.testing.assert_allclose(probs.sum(1), 1)
    np.testing.assert_allclose(np.exp(fitted.decision_function(rows)), probs, atol=1e-12)
    rows, labels = blobs(0, 40, (0, 1))
    model = small(steps=5).fit(rows, labels)
    odds = model.predict_proba(rows)
    np.testing.assert_allclose(model.decision_function(rows), np.log(odds[:, 1] / odds[:, 0]))


def test_prototypes_share_the_rows_of_their_class(fitted):
    rows, _ = open_pool(0)
    assert fitted.subclass_usage_.shape == (3, 2)
    np.testing.assert_allclose(fitted.subclass_usage_.sum(1), 1)
    guesses, slots = fitted.predict(rows), fitted.predict_subclass(rows)
    for own in range(3):
        counts = np.bincount(slots[guesses == own], minlength=2)
        np.testing.assert_allclose(fitted.subclass_usage_[own], counts / counts.sum())


def test_transform_gives_the_unit_vectors_that_tell_sub_classes_apart(fitted):
    rows, _ = open_pool(0)
    units = fitted.transform(rows)
    assert units.shape == (len(rows), len(fitted.get_feature_names_out()))
    np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1)
    centers = fitted.calibrated_model_.parts.centers.numpy().reshape(3, 2, -1)
    likeliest = fitted.predict_proba(rows).argmax(1)
    cosines = np.einsum("nd,nvd->nv", units, centers[likeliest])
    assert np.array_equal(cosines.argmax(1), fitted.predict_subclass(rows))


def said_of(model: PrototypeFissionClassifier, rows: Any) -> dict[str, Any]:
    """All that a model says of rows."""
    names = ["predict", "predict_proba", "decision_function", "score_samples", "transform"]
    names += ["predict_subclass", "predict_cluster"]
    return {name: getattr(model, name)(rows) for name in names}


def everything(model: PrototypeFissionClassifier, rows: Any) -> bytes:
    """All that a model says of rows, bit for bit."""
    return b"".join(values.tobytes() for values in said_of(model, rows).values())


def near_the_threshold(model: PrototypeFissionClassifier, rows: Any) -> Any:
    """The rows, those whose score is nearest to the threshold first."""
    gaps = np.abs(model.score_samples(rows) - model.threshold_)
    return rows[np.argsort(gaps, kind="stable")]


@pytest.mark.parametrize(("seed", "columns"), [(0, 1), (1, 5), (2, 33)])
def test_what_is_said_of_a_row_depends_on_that_row_alone(seed, columns):
    random = np.random.default_rng(seed)
    rows, marked = open_pool(seed)
    rows = np.hstack([rows, random.normal(size=(len(rows), 40))])[:, :columns].astype(np.float32)
    model = small(n_novel=2, steps=2, random_state=seed).fit(rows, marked)
    near = near_the_threshold(model, rows)[:80]
    whole = [near, np.asfortranarray(near), near[::-1].copy()[::-1], near.astype(np.float64)]
    wide = np.zeros((len(near), 2 * columns))
    wide[:, ::2] = near
    whole += [wide[:, ::2], np.ascontiguousarray(near[:, ::-1])[:, ::-1], near.tolist()]
    expected = everything(model, near)
    for place, rows_ in enumerate(whole):
        assert everything(model, rows_) == expected, place
    said = said_of(model, near)
    order = random.permutation(len(near))
    for places in [order, *np.split(order, [1, 3, 8, 24, 57]), *np.arange(len(near))[:5, None]]:
        for name, values in said_of(model, near[places]).items():
            assert values.tobytes() == values_at(said[name], places), name
    again = clone(model).fit(np.asfortranarray(rows), marked)
    assert everything(again, near) == expected


def values_at(values: Any, places: Any) -> bytes:
    return np.ascontiguousarray(values[places]).tobytes()


def test_a_seed_repeats_bit_for_bit_and_another_differs(discovering):
    rows, marked = open_pool(0)
    again = clone(discovering).fit(rows, marked)
    assert everything(again, rows) == everything(discovering, rows)
    other = clone(discovering).set_params(random_state=1).fit(rows, marked)
    assert everything(other, rows) != everything(discovering, rows)


def test_a_copy_by_pickle_or_joblib_says_the_same(fitted, tmp_path):
    rows, _ = blobs(3, 30)
    joblib.dump(fitted, tmp_path / "model.joblib")
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        assert everything(copy, rows) == everything(fitted, rows)


def test_training_leaves_torch_as_it_was():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    try:
        torch.set_num_threads(2)
        small(n_novel=2, steps=2).fit(*open_pool(0))
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.is_grad_enabled()
    finally:
        torch.set_num_threads(threads)


def test_the_true_classes_of_unlabeled_rows_cannot_matter():
    """They never get in: the marker is all there is, whatever it looks like."""
    rows, marked = open_pool(0)
    model = small(n_novel=2, steps=2).fit(rows, marked)
    other = small(n_novel=2, steps=2, unlabeled=7).fit(rows, np.where(marked == -1, 7, marked))
    assert model.predict_proba(rows).tobytes() == other.predict_proba(rows).tobytes()
    assert np.array_equal(
        np.where(model.predict(rows) == -1, 7, model.predict(rows)), other.predict(rows)
    )


def test_names_of_classes_that_keep_their_order_do_not_matter():
    rows, marked = open_pool(0)
    model = small(n_novel=2, steps=2).fit(rows, marked)
    names = np.array(["ape", "bee", "cat"])
    text = np.where(marked == -1, "-1", names[marked])
    for targets in (text, text.astype(object), np.where(marked == -1, -1, text.astype(object))):
        named = small(n_novel=2, steps=2).fit(rows, targets)
        assert named.predict_proba(rows).tobytes() == model.predict_proba(rows).tobytes()
        guesses = model.predict(rows)
        assert (
            named.predict(rows).tolist() == np.where(guesses == -1, "-1", names[guesses]).tolist()
        )


def test_a_permutation_of_class_labels_permutes_predictions():
    rows, labels = blobs(0, 40)
    order = np.array([2, 0, 1])
    fresh, _ = blobs(1, 100)
    plain = small(reject=False).fit(rows, labels).predict(fresh)
    permuted = small(reject=False).fit(rows, order[labels]).predict(fresh)
    assert (order[plain] == permuted).mean() > 0.98


def test_small_unsigned_labels_leave_room_for_the_marker():
    rows, labels = blobs(0, 40)
    model = small(steps=5).fit(rows, labels.astype(np.uint8))
    assert set(model.predict(-rows - 8).tolist()) == {-1}


def test_offset_and_scale_of_features_do_not_matter():
    """A large offset would swallow the digits of single precision; training magnifies rounding."""
    rows, marked = open_pool(0)
    options = {"n_novel": 2, "steps": 2}
    plain = small(**options).fit(rows, marked).predict_proba(rows)
    for scale, offset in ((1e3, 1e9), (1e-60, 0)):
        moved = rows * scale + offset
        found = small(**options).fit(moved, marked).predict_proba(moved)
        np.testing.assert_allclose(plain, found, atol=0.02)


def test_pipelines_searches_and_cross_validation_take_it():
    rows, marked = open_pool(0, labeled=30)
    pipe = make_pipeline(StandardScaler(), small(n_novel=2, steps=2, keep=0.9))
    name = "prototypefissionclassifier__prototypes"
    search = GridSearchCV(pipe, {name: [1, 3]}, cv=2, error_score="raise").fit(rows, marked)
    assert search.best_estimator_[-1].subclass_usage_.shape == (3, search.best_params_[name])
    assert cross_val_score(pipe, rows, marked, cv=2, error_score="raise").min() > 0.6


def test_score_leaves_unlabeled_rows_out(fitted):
    rows, marked = open_pool(1)
    known = marked != -1
    right = (fitted.predict(rows) == marked)[known].mean()
    assert fitted.score(rows, marked) == pytest.approx(right)
    assert fitted.score(rows[known], marked[known]) == pytest.approx(right)
    with pytest.raises(InputError, match="score wants some"):
        fitted.score(rows, np.full(len(rows), -1))


def test_too_few_labels_are_told_and_reject_nothing():
    rows, marked = open_pool(0, labeled=4)
    with pytest.warns(UserWarning, match=r"12 labels could set .*too few.*none is rejected"):
        model = small(steps=2).fit(rows, marked)
    assert model.threshold_ == -np.inf
    assert (model.predict(rows) != -1).all()
    assert "cannot set a threshold" in model.guarantee_.sentence()


def tiny(name: str) -> tuple[Any, Any]:
    """Rows of which there is hardly anything to learn, and their labels."""
    random = np.random.default_rng(0)
    shapes = {
        "two rows": (2, 5),
        "two rows and one free": (3, 5),
        "one a class": (24, 5),
        "more features than rows": (16, 300),
        "one feature": (20, 1),
        "constant": (20, 3),
        "equal rows": (40, 3),
    }
    number, columns = shapes[name]
    rows, labels = random.normal(size=(number, columns)), np.arange(number) % 2
    if name == "two rows and one free":
        labels[2] = -1
    if name == "one a class":
        labels = np.where(np.arange(number) < 4, np.arange(number), -1)
    if name == "more features than rows":
        labels[8:] = -1
    if name == "constant":
        rows[:] = 0.1
    if name == "equal rows":
        rows = rows[labels]
    return rows, labels


@pytest.mark.filterwarnings("error", FEW)
@pytest.mark.parametrize(
    "name",
    [
        "two rows",
        "two rows and one free",
        "one a class",
        "more features than rows",
        "one feature",
        "constant",
        "equal rows",
    ],
)
def test_hardly_any_rows_are_no_trouble(name):
    rows, labels = tiny(name)
    model = small(steps=2, prototypes=3, folds=3).fit(rows, labels)
    for values in said_of(model, np.vstack([rows, 1 + rows])).values():
        assert len(values) == 2 * len(rows)
        assert np.isfinite(values).all()


def test_equal_rows_have_equal_ranks():
    """Half of the rows of a class are one row: rounding must not tell it from itself."""
    rows, labels = blobs(0, 60)
    for own in range(3):
        places = np.flatnonzero(labels == own)
        rows[places[:30]] = rows[places[0]]
    model = small(folds=5, keep=0.9).fit(rows, labels)
    assert (model.predict(rows) != -1).mean() >= 0.9


@pytest.mark.parametrize("folds", [1, 4])
def test_folds_say_how_many_labels_set_the_threshold(folds):
    rows, marked = open_pool(0)
    model = small(n_novel=2, steps=2, folds=folds).fit(rows, marked)
    assert len(model.calibrated_model_.models) == folds
    assert (model.n_held_out_ == 60) if folds > 1 else (19 <= model.n_held_out_ <= 30)
    least = int((model.n_held_out_ + 1) / 20) / (model.n_held_out_ + 1)
    assert model.threshold_ == least if folds == 1 else model.threshold_ >= least


def test_numbers_are_counted_if_asked_for():
    rows, marked = open_pool(0)
    model = small(n_novel="auto", prototypes="auto").fit(rows, marked)
    assert model.n_novel_ == 2
    assert model.subclass_usage_.shape == (3, max(model.calibrated_model_.subclass_counts))
    assert 0.3 < model.strangers_.low < model.strangers_.high < 0.9


BAD = [
    ({}, "one class only, 0", lambda rows, y: (rows, np.where(y == 0, 0, -1))),
    ({}, "holds no label", lambda rows, y: (rows, np.full(len(y), -1))),
    ({}, "NaN", lambda rows, y: (np.where(rows > 5, np.nan, rows), y)),
    ({}, "infinity", lambda rows, y: (np.where(rows > 5, np.inf, rows), y)),
    ({}, "Unknown label type", lambda rows, y: (rows, y + 0.5)),
    ({}, "inconsistent", lambda rows, y: (rows, y[1:])),
    ({"n_novel": 2}, "wants unlabeled rows", lambda rows, y: (rows[y != -1], y[y != -1])),
    ({"n_novel": -1}, "n_novel = -1 must be", lambda rows, y: (rows, y)),
    ({"steps": 0}, "steps = 0 must be", lambda rows, y: (rows, y)),
    ({"prototypes": 2.5}, "prototypes = 2.5 must be", lambda rows, y: (rows, y)),
    ({"folds": "auto"}, "folds = 'auto' must be a whole number from 1 to 50", lambda *data: data),
    ({"width": "8"}, "width = '8' must be", lambda rows, y: (rows, y)),
    ({"steps": 10**12}, "steps = 1000000000000 must be.*to 1,000,000,000", lambda *data: data),
    ({"prototypes": 101}, "prototypes = 101 must be .* 1 to 100, or auto", lambda *data: data),
    ({"width": 10**9}, "1,000,000,000 features.*GB are free: lower one", lambda *data: data),
    ({"n_novel": 1001}, "n_novel = 1001 must be .* 0 to 1,000, or auto", lambda *data: data),
    ({"unlabeled": np.nan}, "unlabeled = nan can mark no row: give a number", lambda *data: data),
    ({"unlabeled": np.inf}, "unlabeled = inf can mark no row", lambda *data: data),
    ({"unlabeled": [-1]}, r"unlabeled = \[-1\] can mark no row", lambda *data: data),
    ({"keep": 1.0}, "keep = 1.0 must lie", lambda rows, y: (rows, y)),
    ({"keep": None}, "keep = None must lie", lambda rows, y: (rows, y)),
]


@pytest.mark.parametrize(("options", "sentence", "spoilt"), BAD)
def test_what_cannot_be_learned_from_is_refused_in_a_sentence(options, sentence, spoilt):
    with pytest.raises(ValueError, match=sentence):
        small(**options).fit(*spoilt(*open_pool(0)))


def test_sparse_rows_are_refused_clearly(fitted):
    rows, marked = open_pool(0)
    with pytest.raises(TypeError, match=r"[Ss]parse data was passed"):
        small().fit(csr_array(rows), marked)
    with pytest.raises(TypeError, match=r"[Ss]parse data was passed"):
        fitted.predict(csr_array(rows))
