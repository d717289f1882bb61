"""Nearest points join the score where labels, as if their class were unknown, say that it helps."""

import numpy as np
import pytest
import torch

from protofission.triage import nearest_points
from protofission.triage.fold_models import FoldData, train_models
from protofission.triage.fold_training import FoldTraining
from protofission.triage.nearest_points import join_points, pseudo_strangers

SETTINGS = FoldTraining(prototypes=2, width=6, steps=3, seed=0)
SHARE = 0.2


def fold_data(known=3):
    """Five labels of each class around an axis of its own, and a pool with some around others."""
    random, labels = np.random.default_rng(0), np.arange(5 * known) % known
    folds = np.arange(len(labels)) // known % 3
    names = np.append(labels, random.integers(0, known + 2, 40))
    rows = (3 * np.eye(10)[names] + random.normal(size=(len(names), 10))).astype(np.float32)
    pool = rows[len(labels) :]
    return FoldData(rows[: len(labels)], labels, folds, pool, np.arange(40) % 3)


def trained(data):
    return train_models(data, SETTINGS, with_pool=True)


def scales_of(models):
    return torch.stack([model.score_scales for model in models])


def test_pseudo_strangers_are_labels_without_their_class_by_the_model_that_did_not_learn_them():
    data = fold_data()
    models = trained(data)
    known, strange = pseudo_strangers(models, data)
    for place, (fold, label) in enumerate(zip(data.folds, data.labels, strict=True)):
        row = torch.from_numpy(data.labeled[place : place + 1])
        own = models[fold].standard_scores(row)[0]
        others = models[fold].standard_scores(row, torch.tensor([label]))[0]
        assert known[place].numpy() == pytest.approx(own.numpy(), rel=1e-4, abs=1e-4)
        assert strange[place].numpy() == pytest.approx(others.numpy(), rel=1e-4, abs=1e-4)
    assert (known >= strange).all()


@pytest.mark.parametrize(
    ("points", "helps"), [((6, 4, 1, 0), True), ((0, 1, 2, 3), False), ((1, 1, 1, 1), False)]
)
def test_points_join_where_they_tell_labels_from_pseudo_strangers_better(
    monkeypatch, points, helps
):
    """Fission's part has three of four pairs in order; with points it is four, two or three."""
    scores = torch.zeros(4, 5).double()
    scores[:, 0] = torch.tensor([2.0, 0, 1, -1])
    scores[:, 4] = 1e-3 * torch.tensor(points)  # a thousand times that if they join
    told = lambda models, data: (scores[:2], scores[2:])  # noqa: E731
    monkeypatch.setattr(nearest_points, "pseudo_strangers", told)
    data = fold_data()
    models = trained(data)
    before = scales_of(models)
    assert join_points(models, data, SHARE) == helps
    growth = torch.tensor([1, 1, 1, 1, (1 - SHARE) ** 2 / 1e-3 if helps else 1])
    assert torch.allclose(scales_of(models), before / growth)


def test_points_stay_out_without_labels_to_judge_them():
    data = fold_data()
    nobody = FoldData(data.labeled, data.labels, np.full(15, -1), data.pool, np.full(40, -1))
    models = trained(nobody)
    before = scales_of(models)
    assert not join_points(models, nobody, SHARE)
    assert torch.equal(scales_of(models), before)
