"""Measures of a method's verdicts on the test images of a cell."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from practice_parts.cells import Floats, Ints, Scene
from protofission.core.metrics import auroc, contingency, count_matches, fpr_at_tpr
from protofission.core.temperature import expected_calibration_error

KEEP = 0.95


class Judged(NamedTuple):
    """Verdicts of a method on test and pool images."""

    scores: Floats
    """(T,): higher is more like a known class."""
    classes: Ints
    """(T,)."""
    probs: Floats | None
    """(T, S)."""
    pool_scores: Floats
    """(U,)."""


def measure(scene: Scene, judged: Judged) -> dict[str, Any]:
    """Accuracy, AUC, FPR95, strangers rejected where 95 % of known images are kept, and ECE."""
    known = scene.is_known
    inside, outside = -judged.scores[known], -judged.scores[~known]  # as OOD scores
    fpr = fpr_at_tpr(inside, outside, KEEP)
    found = {
        "auc": auroc(inside, outside),
        "accuracy": float((judged.classes[known] == scene.truth[known]).mean()),
        "fpr95": fpr,
        "rejected95": 1 - fpr,
    }
    if judged.probs is not None:
        found["ece"] = expected_calibration_error(judged.probs[known], scene.truth[known])
    return found


def measure_clusters(
    scene: Scene, rejected: NDArray[np.bool_], clusters: Ints, number: int
) -> dict[str, float]:
    """Clustering accuracy of the rejected test strangers, and of all, accepted ones being wrong.

    Classes and clusters are matched one to one. Rejected known images are left out of it.
    """
    mine = rejected & ~scene.is_known
    counts = contingency(
        scene.truth[mine] - scene.known, clusters[mine].astype(int), scene.strange, number
    )
    right = count_matches(counts)
    return {
        "clusters": right / max(int(mine.sum()), 1),
        "named": right / max(int((~scene.is_known).sum()), 1),
    }


def cluster_by_k_means(scene: Scene, judged: Judged) -> dict[str, float]:
    """Clusters of a baseline: k-means, with the true number, on the rejected images of the pool.

    The threshold keeps 95 % of the known test images: a baseline is given it.
    """
    threshold = np.quantile(judged.scores[scene.is_known], 1 - KEEP)
    rejected = scene.pool[judged.pool_scores < threshold]
    if len(rejected) < scene.strange:
        return {}
    scaler = StandardScaler().fit(np.concatenate([scene.labeled, scene.pool]))
    reduced = PCA(min(64, *rejected.shape), random_state=0).fit(scaler.transform(rejected))

    def rows(features: Floats) -> Floats:
        found: Floats = reduced.transform(scaler.transform(features))
        return found

    k_means = KMeans(scene.strange, n_init=10, random_state=0).fit(rows(rejected))
    found = k_means.predict(rows(scene.test))
    return measure_clusters(scene, judged.scores < threshold, found, scene.strange)
