"""OOD scores by distance against their twins, their invariances, and degenerate features."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from builders import normal
from protofission.core import distance_scores
from protofission.core.distance_scores import (
    DISTANCE_SCORES,
    KEEP,
    NEIGHBORS,
    RIDGE,
    RowScore,
    fit_background,
    fit_gaussians,
    fit_logistic,
    fit_pool_filter,
    fit_relative_mahalanobis,
    fit_unit_space,
    held_out_scores,
    mahalanobis,
    neighbor_distances,
    relative_mahalanobis,
)
from protofission.core.errors import InputError
from reference import distance_scores as scalar

close = pytest.approx
LABELS = torch.tensor([0, 1, 3] * 6)
"""Class 2 has no rows."""
WIDTH = 4


def scene(width: int = WIDTH) -> tuple[Tensor, Tensor, Tensor]:
    """Labeled rows of `LABELS` around their class means, pool rows with strangers, and new rows."""
    means = 2 * normal(4, width, seed=1)
    scales = torch.linspace(0.3, 1.2, width, dtype=torch.float64)
    labeled = means[LABELS] + scales * normal(len(LABELS), width, seed=2)
    known = means[LABELS] + scales * normal(len(LABELS), width, seed=3)
    strangers = 3 * normal(12, width, seed=4) + 2
    return labeled, torch.cat([known, strangers]), 2 * normal(7, width, seed=5)


def test_mahalanobis_distances_equal_their_twin():
    labeled, _, rows = scene()
    found = mahalanobis(rows, fit_gaussians(labeled, LABELS, 4, 0.2))
    means, precision = scalar.gaussians(labeled.tolist(), LABELS.tolist(), 0.2)
    for row, distances in zip(rows.tolist(), found, strict=True):
        expected = [scalar.mahalanobis(row, means[c], precision) for c in (0, 1, 3)]
        assert distances[[0, 1, 3]].tolist() == close(expected)
    assert found[:, 2].isinf().all()


def test_relative_mahalanobis_equals_its_twin():
    labeled, pool, rows = scene()
    classes, background = fit_gaussians(labeled, LABELS, 4, 0.3), fit_background(pool, 0.1)
    expected = [
        scalar.relative_mahalanobis(
            row, labeled.tolist(), LABELS.tolist(), pool.tolist(), (0.3, 0.1)
        )
        for row in rows.tolist()
    ]
    assert relative_mahalanobis(rows, classes, background).tolist() == close(expected)


@pytest.mark.parametrize("at_once", [1, 2**20])
@pytest.mark.parametrize("number", [3, 18])
def test_neighbor_distances_equal_their_twin(number, at_once, monkeypatch):
    """Also where there are fewer rows than neighbors, and row by row."""
    monkeypatch.setattr(distance_scores, "CHUNK_COSINES", at_once)
    labeled, _, rows = scene()
    expected = [
        scalar.neighbor_distance(row, labeled[:number].tolist(), NEIGHBORS) for row in rows.tolist()
    ]
    assert neighbor_distances(rows, labeled[:number]).tolist() == close(expected)


def test_the_logistic_regression_is_at_its_minimum():
    zeros, ones, _ = scene()
    weights = fit_logistic(zeros, ones, 0.01)
    slopes = scalar.logistic_gradient(weights.tolist(), zeros.tolist(), ones.tolist(), 0.01)
    assert slopes == close([0.0] * (WIDTH + 1), abs=1e-9)


def test_the_logistic_regression_of_parted_rows_is_finite():
    zeros = torch.tensor([[-1.0], [-2.0], [-30.0]])
    weights = fit_logistic(zeros, -zeros, RIDGE)
    slopes = scalar.logistic_gradient(weights.tolist(), zeros.tolist(), (-zeros).tolist(), RIDGE)
    assert slopes == close([0.0, 0.0], abs=1e-9)
    assert weights[0] > 0


def test_the_pool_filter_tells_labels_from_what_lies_beyond_them():
    labeled, pool, rows = scene()
    shrinkage = distance_scores.CLASS_SHRINKAGE, distance_scores.BACKGROUND_SHRINKAGE
    places = scalar.candidates(
        labeled.tolist(), LABELS.tolist(), pool.tolist(), shrinkage, distance_scores.FOLDS, KEEP
    )
    assert 0 < len(places) < len(pool)
    weights = fit_logistic(labeled, pool[places], RIDGE).tolist()
    expected = [scalar.dot(weights, [*row, 1.0]) for row in rows.tolist()]
    assert fit_pool_filter(labeled, LABELS, pool, 4)(rows).tolist() == close(expected)


def test_unit_vectors_keep_their_products_where_no_direction_is_left_out():
    labeled, pool, rows = scene()
    projected = fit_unit_space(labeled, pool).project(rows)
    units = scalar.unit_rows(rows.tolist(), [*labeled.tolist(), *pool.tolist()])
    products = [[scalar.dot(one, other) for other in units] for one in units]
    assert (projected @ projected.T).tolist() == [close(line) for line in products]


def test_the_main_directions_are_those_of_most_variance():
    """A row with one more copy of itself changes no variance, but the matrix they come from."""
    rows = normal(8, 10) * torch.linspace(0.2, 2, 10)
    few, many = fit_unit_space(rows, rows[:0], 3), fit_unit_space(rows, rows, 3)
    units = distance_scores.unit_rows(rows, few.middle, few.scale)
    kept = torch.linalg.svdvals(units - units.mean(0))[:3]
    for space in (few, many):
        projected = space.project(rows)
        found = torch.linalg.svdvals(projected - projected.mean(0))
        assert found.tolist() == close(kept.tolist())
    assert few.axes.abs().tolist() == [close(line) for line in many.axes.abs().tolist()]


def test_distances_do_not_change_where_all_rows_are_turned_moved_or_scaled():
    labeled, pool, rows = scene()
    usual = fit_relative_mahalanobis(labeled, LABELS, pool, 4)(rows)
    turn = torch.linalg.qr(normal(WIDTH, WIDTH, seed=9)).Q
    labeled, pool, rows = (5 * each @ turn + 3 for each in (labeled, pool, rows))
    assert fit_relative_mahalanobis(labeled, LABELS, pool, 4)(rows).tolist() == close(
        usual.tolist()
    )


@pytest.mark.parametrize("name", DISTANCE_SCORES)
def test_units_of_features_and_names_of_classes_mean_nothing(name):
    labeled, pool, rows = scene()
    usual = DISTANCE_SCORES[name](labeled, LABELS, pool, 4)(rows)
    units, move = normal(WIDTH, seed=7).exp(), normal(WIDTH, seed=8)
    labeled, pool, rows = (each * units + move for each in (labeled, pool, rows))
    # Names in the same order: the folds are the same then.
    other = DISTANCE_SCORES[name](labeled, 2 * LABELS, pool.flip(0), 9)(rows)
    assert other.tolist() == close(usual.tolist(), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("name", DISTANCE_SCORES)
def test_strangers_score_above_new_images_of_known_classes(name):
    means, labels = 4 * normal(5, 12, seed=1), torch.arange(60) % 3

    def draw(classes: Tensor, seed: int) -> Tensor:
        return means[classes] + normal(len(classes), 12, seed=seed)

    mixed = torch.arange(100) % 5
    score = DISTANCE_SCORES[name](draw(labels, 2), labels, draw(mixed, 3), 3)
    found = score(draw(mixed, 4))
    known, strangers = found[mixed < 3], found[mixed >= 3]
    assert (strangers[:, None] > known).double().mean() > 0.95
    assert found.dtype == torch.float64


def test_a_label_that_is_held_out_does_not_speak_for_itself():
    """All but one row of a class are equal; that one is far from its class unless it is in it."""
    labeled = torch.eye(3, dtype=torch.float64)[[0, 0, 0, 0, 0, 1]]
    labels = torch.zeros(6, dtype=torch.long)
    fit = distance_scores.fit_nearest_neighbors
    scores = held_out_scores(
        lambda *parts: lambda rows: neighbor_distances(rows, parts[0], 1),
        labeled,
        labels,
        labeled,
        1,
    )
    assert scores.tolist() == close([0, 0, 0, 0, 0, 1])
    assert len(held_out_scores(fit, labeled[:1], labels[:1], labeled, 1)) == 1


def test_every_fold_has_its_share_of_every_class():
    labels, counts = torch.tensor([0] * 10 + [2] * 5), []

    def count(labeled: Tensor, labels: Tensor, pool: Tensor, num_classes: int) -> RowScore:
        counts.append(torch.bincount(labels, minlength=num_classes).tolist())
        return lambda rows: rows[:, 0]

    rows = normal(15, 2)
    assert torch.equal(held_out_scores(count, rows, labels, rows, 3), rows[:, 0])
    assert counts == [[8, 0, 4]] * 5


@pytest.mark.parametrize("name", DISTANCE_SCORES)
@pytest.mark.parametrize(
    ("labeled", "labels", "pool"),
    [
        (normal(3, 5), [0, 1, 2], normal(9, 5, seed=1)),  # one row a class
        (normal(1, 5), [1], normal(2, 5, seed=1)),
        (normal(6, 5), [0, 0, 2] * 2, normal(0, 5)),  # no pool
        (normal(6, 40), [0, 1, 2] * 2, normal(8, 40, seed=1)),  # more features than rows
        (torch.ones(6, 5), [0, 1, 2] * 2, torch.ones(4, 5)),  # nothing varies
        (torch.ones(6, 5), [0, 1, 2] * 2, normal(4, 5)),
        (1e-30 * normal(6, 5), [0, 1, 2] * 2, 1e-30 * normal(4, 5, seed=1)),
    ],
)
def test_scores_of_degenerate_features_are_finite(name, labeled, labels, pool):
    labels, rows = torch.tensor(labels), torch.cat([labeled, normal(4, labeled.shape[1], seed=2)])
    found = DISTANCE_SCORES[name](labeled, labels, pool, 3)(rows.float())
    assert found.shape == (len(rows),)
    assert found.isfinite().all()
    assert found.abs().max() < 1e30  # predictions are single precision


def test_distances_without_labels_are_refused():
    nothing = torch.empty(0, 3)
    with pytest.raises(InputError, match="there are none"):
        DISTANCE_SCORES["mahalanobis"](nothing, torch.empty(0, dtype=torch.long), nothing, 2)
