"""A fit on features: what is held out, who is chosen, what is promised."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from protofission.core.errors import InputError
from protofission.core.records import Output, Prototypes
from protofission.data.augment.feature_views import FeatureViews
from protofission.triage.calibrated_model import ACCEPT, NOVEL, REJECT, slot_use
from protofission.triage.fit_model import (
    METHOD,
    FitOptions,
    fit_rows,
    prototype_sentences,
)
from protofission.triage.model_choice import Choice, choose


def blobs(counts, spread=0.5, seed=0, width=8):
    """Rows around one centre for each count, and which centre."""
    centres = 3 * np.eye(width, dtype=np.float32)
    drawn = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    noise = drawn.standard_normal((len(labels), width)).astype(np.float32)
    return torch.from_numpy(centres[labels] + spread * noise), labels


OPTIONS = FitOptions(steps=60, width=8, prototypes=2)


@cache
def usual():
    """The fit that most tests look at; nobody changes it."""
    return fitted()


def fitted(options=OPTIONS, pool_counts=(60, 60, 60, 60, 0), **more):
    rows, labels = blobs((40, 40, 40))
    pool, truth = blobs(pool_counts, seed=1)
    found = fit_rows(FeatureViews.of(rows, pool), rows, labels, pool, 8, options, **more)
    return found, truth


def test_strangers_are_rejected_and_known_images_named():
    found, truth = usual()
    known = truth < 3
    assert found.method == METHOD
    decisions, classes = found.pool.decisions.numpy(), found.pool.classes.numpy()
    assert (decisions[known] == ACCEPT).mean() > 0.85
    assert (decisions[~known] == REJECT).mean() > 0.85
    assert (classes[known] == truth[known]).mean() > 0.95
    assert set(found.pool.clusters.tolist()) == {-1}
    assert found.strangers.low <= 0.25 + 1e-9
    assert found.strangers.high >= 0.2


def test_novel_classes_are_told_apart_where_that_is_asked_for():
    options = FitOptions(steps=60, width=8, prototypes=2, discover=2)
    found, truth = fitted(options, (60, 60, 60, 60, 60))
    assert set(found.pool.decisions.tolist()) == {ACCEPT, NOVEL}
    clusters = found.pool.clusters.numpy()
    own = [np.bincount(clusters[(truth == c) & (clusters >= 0)], minlength=2) for c in (3, 4)]
    assert {int(counts.argmax()) for counts in own} == {0, 1}
    assert all(counts.max() > 0.85 * counts.sum() for counts in own)


class Answering(torch.nn.Module):
    """A model that gives fixed answers."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers

    def forward(self, features):
        logits, nothing = one_hot(self.answers, 3).float(), torch.zeros(3, 1, 1)
        prototypes = Prototypes(nothing, nothing, nothing[..., 0])
        return Output(features, logits[..., None], logits, prototypes)


def test_the_control_is_kept_where_the_model_errs_more_often_by_over_a_standard_error():
    rows = torch.zeros(20, 8)
    views = FeatureViews.of(rows)

    def chosen(lost, won):
        control, model = torch.zeros(20, dtype=torch.long), torch.zeros(20, dtype=torch.long)
        model[:lost] = 1
        control[lost : lost + won] = 1
        return choose(views, Answering(control), Answering(model), rows, np.zeros(20, int), 3)

    assert chosen(4, 0) == Choice(20, 1.0, 0.8, True)
    assert "the pool hurts" in chosen(4, 0).sentence()
    assert "too little to tell" in chosen(1, 0).sentence()
    assert "does not hurt" in chosen(0, 5).sentence()
    for lost, won in ((1, 0), (4, 3), (0, 5), (0, 0)):
        assert not chosen(lost, won).pool_hurts
    assert "Too few labels" in Choice(0, math.nan, math.nan, False).sentence()


def test_nothing_is_learned_from_images_of_the_pool_that_are_labeled_too():
    rows, labels = blobs((40, 40, 40))
    pool, _ = blobs((60, 60, 60, 60), seed=1)
    views = FeatureViews.of(rows, pool)
    keep = np.ones(len(pool), bool)
    keep[:100] = False
    one = fit_rows(views, rows, labels, pool, 8, OPTIONS, learn_from=keep)
    other = pool.clone()
    other[:100] = 99.0
    two = fit_rows(views, rows, labels, other, 8, OPTIONS, learn_from=keep)
    for name, value in one.calibrated_model.state_dict().items():
        assert torch.equal(value, two.calibrated_model.state_dict()[name]), name
    with pytest.raises(InputError, match="labeled one too"):
        fit_rows(views, rows, labels, pool, 8, OPTIONS, learn_from=np.zeros(len(pool), bool))


def test_the_threshold_is_set_by_images_that_neither_trained_nor_chose():
    found, _ = usual()
    held = found.held
    assert len(found.calibration_scores) == len(held.calibrating)
    assert found.guarantee.threshold in found.calibration_scores
    assert not set(held.calibrating) & (set(held.training) | set(held.choosing))


def test_a_fit_repeats_bit_for_bit_and_another_seed_differs():
    one, two = usual()[0], fitted()[0]
    other = fitted(FitOptions(steps=60, width=8, prototypes=2, seed=1))[0]
    assert torch.equal(one.pool.id_scores, two.pool.id_scores)
    assert not torch.equal(one.pool.id_scores, other.pool.id_scores)


def test_slots_in_use_are_counted_over_accepted_images():
    found, _ = usual()
    use = slot_use(found.calibrated_model, found.pool)
    assert use.shape == (3, 2)
    assert use.sum() == int((found.pool.decisions == ACCEPT).sum())
    assert prototype_sentences(np.array([[50, 50], [99, 1], [0, 0]]), ["a", "b", "c"]) == [
        "a: 2 kinds, the largest with 50%.",
        "b: all of one kind.",
        "c: no image of the pool was accepted.",
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"keep": 1.0}, "keep = 1.0"),
        ({"keep": 0}, "keep = 0"),
        ({"held_out": 1}, "held_out = 1"),
        ({"discover": -1}, "discover = -1"),
        ({"prototypes": 0}, "prototypes = 0"),
        ({"steps": 0}, "steps = 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        FitOptions(**options)


def test_counting_and_training_show_how_far_they_are():
    marks: dict[str, list[tuple[int, int]]] = {}
    rows, labels = blobs((40, 40, 40))
    pool, _ = blobs((40, 40, 40, 40), seed=1)
    options = FitOptions(steps=2, width=8, prototypes="auto", discover="auto")
    fit_rows(
        FeatureViews.of(rows, pool),
        rows,
        labels,
        pool,
        8,
        options,
        progress=lambda what, *mark: marks.setdefault(what, []).append(mark),
    )
    assert list(marks) == [
        "counting sub-classes",
        "counting novel classes",
        "training the control",
        "training the model",
    ]
    assert marks["counting sub-classes"] == [(done, 3) for done in range(4)]
    for own in marks.values():
        assert own == sorted(own)
        assert own[-1][0] == own[-1][1]


def test_one_image_is_no_pool_to_count_in():
    rows, labels = blobs((40, 40, 40))
    options = FitOptions(steps=2, width=8, discover="auto")
    with pytest.raises(InputError, match="A pool of one image"):
        fit_rows(FeatureViews.of(rows), rows, labels, rows[:1], 8, options)


def test_where_nothing_can_be_promised_novel_is_what_is_nearer_to_a_cluster():
    rows, labels = blobs((4, 4, 4))
    pool, truth = blobs((60, 60, 60, 60), seed=1)
    views = FeatureViews.of(rows, pool)
    for discover, threshold in ((1, 0.0), (0, -math.inf)):
        options = FitOptions(steps=60, width=8, prototypes=2, discover=discover)
        found = fit_rows(views, rows, labels, pool, 8, options)
        assert float(found.calibrated_model.threshold) == threshold
        novel = found.pool.decisions.numpy() == NOVEL
        assert (novel[truth == 3].mean() > 0.8) == (discover > 0)
        assert ("nearer to a novel cluster" in found.promise()) == (discover > 0)
        assert found.promise().startswith(
            "4 images held out cannot set a threshold that keeps 95 %"
        )
        assert found.promise().endswith("that 19 can be held out, or lower keep to 0.8.")
