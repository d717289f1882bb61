"""Incremental k-means: anchors by hand, and without them as scikit-learn has it."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from protofission.core.incremental_kmeans import Anchors, anchored_k_means, grow_clusters

NOTHING = Anchors(np.empty((0, 2)), np.empty(0))


def test_anchors_stay_with_their_class():
    """k-means without anchors would put each of the two groups around its own mean."""
    points = np.array([[10.0], [12.0]])
    anchors = Anchors.of(np.array([[0.0], [0.0]]), np.array([0, 0]), 1)
    found = anchored_k_means(points, anchors.means, anchors, 10)
    assert found.centers.tolist() == [[5.5]]
    assert found.inertia == pytest.approx(4.5**2 + 6.5**2)


@pytest.mark.parametrize("seed", range(4))
def test_without_anchors_it_is_lloyd_s_k_means(seed):
    points = np.random.default_rng(seed).normal(size=(60, 2))
    found = anchored_k_means(points, points[:4], NOTHING, 300)
    other = KMeans(4, init=points[:4], n_init=1, tol=0, algorithm="lloyd").fit(points)
    assert found.members.tolist() == other.labels_.tolist()
    assert found.centers == pytest.approx(other.cluster_centers_)
    assert found.inertia == pytest.approx(other.inertia_)


def test_each_clustering_has_a_cluster_more_and_fits_better():
    random = np.random.default_rng(0)
    points = random.normal(size=(60, 2))
    grown = grow_clusters(points, NOTHING, 5, random)
    assert [len(found.centers) for found in grown] == [1, 2, 3, 4, 5]
    inertias = [found.inertia for found in grown]
    assert inertias == sorted(inertias, reverse=True)
    same = grow_clusters(np.ones((9, 2)), NOTHING, 5, random)
    assert len(same) == 1
