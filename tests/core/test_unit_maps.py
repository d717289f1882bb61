"""Maps to unit vectors: against scikit-learn step by step, what they must not see, odd input."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize, scale

from protofission.core.errors import InputError
from protofission.core.unit_maps import (
    SHRINKAGE,
    class_residuals,
    principal_axes,
    reduce_rows,
    whitening_map,
)


def scene(seed: int = 0, width: int = 7):
    random = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], [5, 9, 6])
    labeled = random.normal(size=(20, width)) + 2 * random.normal(size=(3, width))[labels]
    return labeled, labels, random.normal(size=(50, width)) * 2 + 1


def slow_units(labeled, labels, pool):
    """The steps one by one, with scikit-learn and a matrix square root."""
    from scipy.linalg import fractional_matrix_power

    rows = normalize(scale(np.concatenate([labeled, pool]).astype(np.float32).astype(float)))
    residuals = []
    for name in np.unique(labels):
        own = rows[: len(labels)][labels == name]
        residuals += [(row - own.mean(0)) * np.sqrt(len(own) / (len(own) - 1)) for row in own]
    scatter = sum(np.outer(r, r) for r in residuals) / len(residuals)
    size = len(scatter)
    shrunk = (1 - SHRINKAGE) * scatter + SHRINKAGE * np.trace(scatter) / size * np.eye(size)
    white = rows @ fractional_matrix_power(shrunk, -0.5)
    return normalize(PCA().fit_transform(white))


def test_the_map_equals_its_steps():
    """Cosines are compared, since principal directions may point either way."""
    labeled, labels, pool = scene()
    found = whitening_map(labeled, labels, pool).apply(np.concatenate([labeled, pool]))
    wanted = slow_units(labeled, labels, pool)
    assert np.allclose(found @ found.T, wanted @ wanted.T, atol=1e-5)


def test_fewer_directions_are_those_of_most_variance(monkeypatch):
    monkeypatch.setattr("protofission.core.unit_maps.WIDTH", 3)
    labeled, labels, pool = scene()
    found = whitening_map(labeled, labels, pool).apply(pool)
    wanted = slow_units(labeled, labels, pool)  # all directions, largest first, but for the length
    cut = normalize(wanted[:, :3])[len(labels) :]
    assert np.allclose(found @ found.T, cut @ cut.T, atol=1e-5)


def test_unit_and_names_do_not_matter():
    labeled, labels, pool = scene()
    once = whitening_map(labeled, labels, pool).apply(pool)
    units, shifts = np.array([1e-3, 1, 10, 5, 1, 1, 1e3]), np.arange(7.0)
    other = whitening_map(labeled * units + shifts, 9 - 4 * labels, pool * units + shifts)
    again = other.apply(pool * units + shifts)
    assert np.allclose(once @ once.T, again @ again.T, atol=1e-3)


@pytest.mark.parametrize("shape", [(9, 4), (4, 9)])
def test_principal_axes_are_those_of_scikit_learn(shape):
    rows = np.random.default_rng(1).normal(size=shape)
    axes = principal_axes(rows, 2)
    assert np.allclose(np.abs(PCA(2).fit(rows).components_ @ axes), np.eye(2), atol=1e-8)


def test_residuals_have_the_unbiased_variance():
    rows = np.array([[1.0], [3.0], [10.0], [11.0], [12.0], [7.0]])
    found = class_residuals(rows, np.array([0, 0, 1, 1, 1, 2]))
    assert found.ravel() == pytest.approx([-(2**0.5), 2**0.5, -(1.5**0.5), 0, 1.5**0.5, 0])


def test_without_residuals_a_map_only_reduces():
    rows = scene()[2].astype(np.float32)
    reduced = reduce_rows(rows)
    found = reduced.whiten(np.zeros_like(reduced.rows)).apply(rows)
    wanted = normalize(PCA().fit_transform(normalize(scale(rows.astype(float)))))
    assert np.allclose(found @ found.T, wanted @ wanted.T, atol=1e-5)


def test_odd_input_gives_finite_rows():
    same = np.ones((6, 3))
    assert not whitening_map(same, [0, 0, 0, 1, 1, 1], same).apply(same).any()
    few, pool = np.eye(2, 40), np.random.default_rng(0).normal(size=(3, 40))
    found = whitening_map(few, [0, 1], pool).apply(pool)
    assert np.allclose(np.linalg.norm(found, axis=1), 1)
    twins = np.repeat(pool, 4, axis=0)
    assert np.isfinite(whitening_map(twins, np.repeat([0, 1, 2], 4), twins[:0]).apply(twins)).all()


@pytest.mark.parametrize(
    ("labeled", "labels", "pool", "words"),
    [
        (np.ones((2, 3)), [0, 1], np.ones((2, 4)), "Labeled rows have 3 features, pool rows 4"),
        (np.ones((2, 3)), [0], np.ones((2, 3)), "1 labels for 2 labeled rows"),
        (np.ones(3), [0], np.ones((2, 3)), "The labeled features have the shape (3,)"),
        (np.ones((1, 3)), [0], np.full((2, 3), np.nan), "2 of 2 rows of pool features hold NaN"),
        (np.ones((0, 3)), [], np.ones((0, 3)), "There are neither labeled nor pool features"),
    ],
)
def test_bad_input_is_one_sentence(labeled, labels, pool, words):
    with pytest.raises(InputError, match=r"\.$") as caught:
        whitening_map(labeled, labels, pool)
    assert words in str(caught.value)
