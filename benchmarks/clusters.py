"""Clusters of strangers, their number, and parts of classes, on features whose truth is known.

    python benchmarks/clusters.py FEATURES.npz ... [--parts FEATURES.npz GROUPS] [--draws 2]
        [--novel 20]
    python benchmarks/clusters.py --simulated

FEATURES.npz has `features` (N, D) and `labels` (N,). GROUPS is a .npy file with the coarse class
of each row, or the coarse classes of the labels as 0,1,0,2.

1. Strangers. Half of the classes are known (20 at most), by 20 or 50 labels each; of the others, as
   many or `--novel` are in the pool, with as many images as the known ones. Relative Mahalanobis
   rejects what scores below 5 % of the known images. What is rejected is clustered with the true
   number of novel classes, and the number is estimated; accuracy is that of strangers that are
   rejected, clusters and classes matched. k-means of standardized features and of unit vectors in
   64 principal directions stand beside it, by scikit-learn.
2. Parts. Classes are groups, by 50 labels each; other images belong to the class whose labeled mean
   is nearest in the whitened space. NMI is that of fine classes within a coarse class, a mean over
   classes that have several. The last column is the least error that any price of parts would have
   had, found by the truth and without the test against a Gaussian, and that price.
3. Simulated Gaussian clusters in 32 dimensions, two random means so many standard deviations apart
   on average, 40 rows a cluster and 400 at least: estimates of three draws.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.preprocessing import normalize, scale

from protofission.core.class_parts import MOST_PARTS, split_classes
from protofission.core.cluster_numbers import (
    candidate_numbers,
    cheapest_number,
    count_clusters,
    held_out_losses,
)
from protofission.core.rejected_clusters import cluster_rejected
from protofission.core.unit_maps import class_residuals, reduce_rows, unit_rows, whitening_map

POOL = 3000
Array = np.ndarray[Any, Any]


def draw(labels: Array, each: int, seed: int, novel: int) -> tuple[Array, Array, int]:
    """Rows that are labeled, rows of the pool, and how many classes are known; labels renamed."""
    random = np.random.default_rng(seed)
    order = random.permutation(labels.max() + 1)
    known = min(len(order) // 2, 20)
    labels[:] = np.argsort(order)[labels]
    given = np.concatenate(
        [random.permutation(np.flatnonzero(labels == c))[:each] for c in range(known)]
    )
    free = np.setdiff1d(np.flatnonzero(labels < known + min(novel, known)), given)
    old, new = (
        random.permutation(free[side]) for side in (labels[free] < known, labels[free] >= known)
    )
    half = min(len(old), len(new), POOL // 2)
    return given, np.sort(np.concatenate([old[:half], new[:half]])), known


def relative_mahalanobis(labeled: Array, labels: Array, pool: Array) -> Array:
    """Higher is more like a known class."""
    rows = unit_rows(scale(np.concatenate([labeled, pool]).astype(float)))
    rows = PCA(min(96, len(rows) - 1), random_state=0).fit_transform(rows)
    known, others = rows[: len(labeled)], rows[len(labeled) :]
    means = np.stack([known[labels == c].mean(0) for c in range(labels.max() + 1)])

    def inverse(residuals: Array) -> Array:
        scatter, size = residuals.T @ residuals / len(residuals), residuals.shape[1]
        return np.linalg.inv(0.8 * scatter + 0.2 * np.trace(scatter) / size * np.eye(size))

    def squared(offsets: Array, matrix: Array) -> Array:
        return np.einsum("nd,de,ne->n", offsets, matrix, offsets)

    within, center = inverse(class_residuals(known, labels)), others.mean(0)
    near = np.min([squared(others - mean, within) for mean in means], 0)
    return squared(others - center, inverse(others - center)) - near


def matched(members: Array, truth: Array) -> float:
    """Accuracy of clusters, each matched with one class."""
    counts = np.zeros((members.max(initial=0) + 1, truth.max() + 1))
    np.add.at(counts, (members, truth), 1)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(truth))


def strangers(path: Path, each: int, seed: int, most: int) -> tuple[str, float, bool]:
    """A line of the table, the error of the number's log, and whether the range has the truth."""
    file = np.load(path)
    features, labels = file["features"], file["labels"].copy()
    given, some, known = draw(labels, each, seed, most)
    pool, truth = features[some], labels[some]
    scores = relative_mahalanobis(features[given], labels[given], pool)
    rejected = scores < np.quantile(scores[truth < known], 0.05)
    novel, new = len(np.unique(truth[truth >= known])), truth[rejected] >= known
    own = truth[rejected][new] - known
    plain = scale(np.concatenate([features[given], pool]).astype(float))[len(given) :]
    units = normalize(PCA(64, random_state=0).fit_transform(normalize(plain)))
    accuracies = [
        matched(KMeans(novel, n_init=5, random_state=0).fit_predict(rows[rejected])[new], own)
        for rows in (plain, units)
    ]
    begin = time.process_time()
    expected = 0.05 * (truth < known).sum()
    found = cluster_rejected(
        features[given], labels[given], pool, rejected, known=expected, seed=seed
    )
    seconds, count = time.process_time() - begin, found.counted
    again = cluster_rejected(features[given], labels[given], pool, rejected, novel, seed=seed)
    accuracies.append(matched(again.members[new], own))
    assert count is not None
    share = new.sum() / (truth >= known).sum()
    line = (
        f"{path.stem:36} {each:6} {rejected.sum():8} {100 * share:6.0f} %"
        + "".join(f"{100 * accuracy:9.1f}" for accuracy in accuracies)
        + f" {novel:6} {count.number:9} {f'{count.low} to {count.high}':>10} {seconds:6.1f} s"
    )
    return line, abs(np.log(max(count.number, 0.5) / novel)), count.low <= novel <= count.high


def parts(path: Path, groups: str) -> str:
    file = np.load(path)
    features, fine = file["features"], file["labels"]
    is_file = groups.endswith(".npy")
    coarse = np.load(groups) if is_file else np.array([int(g) for g in groups.split(",")])[fine]
    random = np.random.default_rng(0)
    some = random.permutation(len(fine))[:POOL]
    features, fine, coarse = features[some], fine[some], coarse[some]
    number = int(coarse.max()) + 1
    given = np.concatenate([np.flatnonzero(coarse == c)[:50] for c in range(number)])
    units = whitening_map(features[given], coarse[given], features).apply(features)
    means = unit_rows(np.stack([units[given][coarse[given] == c].mean(0) for c in range(number)]))
    own = (units @ means.T).argmax(1)
    own[given] = coarse[given]
    truth = [len(np.unique(fine[coarse == c])) for c in range(number)]
    members = split_classes(features, own, truth).members
    plain = normalize(scale(features.astype(float)))
    nmi = {"plain": [], "ours": []}
    for c in np.flatnonzero(np.array(truth) > 1):
        right = coarse[own == c] == c
        flat = KMeans(truth[c], n_init=5, random_state=0).fit_predict(plain[own == c])
        for name, of in (("plain", flat), ("ours", members[own == c])):
            nmi[name].append(normalized_mutual_info_score(fine[own == c][right], of[right]))
    counted = split_classes(features, own).counted or ()
    numbers = [count.number for count in counted]
    error = np.mean(np.abs(np.array(numbers) - truth))
    scores = "".join(f"{np.mean(nmi[name]) if nmi[name] else np.nan:9.3f}" for name in nmi)
    least, price = best_price(features, own, np.array(truth))
    best = f"{least:.2f} at {price:.2f}"
    return f"{path.stem:36}{scores} {error:8.2f} {best:>14}  {numbers} for {truth}"


def best_price(features: Array, own: Array, truth: Array) -> tuple[float, float]:
    """The least error of the number of parts over all prices, and that price."""
    reduced = reduce_rows(features)
    units = reduced.whiten(np.zeros_like(reduced.rows)).apply(features)
    curves = []
    for c in range(len(truth)):
        rows = units[own == c][:400]
        tried = candidate_numbers(min(MOST_PARTS, len(rows) // 8))
        curves.append((tried, held_out_losses(rows, tried, 0).mean(0)))
    return min(
        (float(np.mean(np.abs([cheapest_number(*each, p) for each in curves] - truth))), p)
        for p in np.arange(0.02, 0.3, 0.01)
    )


def simulated(number: int, distance: float) -> str:
    found = []
    for seed in range(3):
        random, rows = np.random.default_rng(seed), max(40 * number, 400)
        means = distance / 8 * random.normal(size=(number, 32))
        points = means[random.integers(number, size=rows)] + random.normal(size=(rows, 32))
        count = count_clusters(unit_rows(points - points.mean(0)), seed=seed)
        found.append(f"{count.number} ({count.low} to {count.high})")
    return f"{number:8} {distance:8}  " + ", ".join(found)


def print_strangers(paths: list[Path], draws: int, novel: int) -> None:
    print(f"{'strangers':36} labels rejected    found k-means    units whitened  truth  estimate")
    results = []
    for path in paths:
        for each in (20, 50):
            for seed in range(draws):
                line, *result = strangers(path, each, seed, novel)
                results.append(result)
                print(line, flush=True)
    error, held = np.mean(results, 0)
    print(f"mean |log(estimate / truth)| {error:.2f}, truth in {100 * held:.0f} % of the ranges")


def main() -> None:
    parser = argparse.ArgumentParser(description="Clusters of strangers and parts of classes.")
    parser.add_argument("features", nargs="*", type=Path)
    parser.add_argument("--parts", nargs=2, action="append", default=[], metavar=("FILE", "GROUPS"))
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--novel", type=int, default=20, help="most novel classes")
    parser.add_argument("--simulated", action="store_true")
    given = parser.parse_args()
    if given.features:
        print_strangers(given.features, given.draws, given.novel)
    if given.parts:
        print(f"\n{'parts: NMI':36}  k-means     ours    error   at best price  estimates")
    for path, groups in given.parts:
        print(parts(Path(path), groups), flush=True)
    if given.simulated:
        print("clusters distance  estimates")
        for number in (1, 2, 5, 10, 25):
            for distance in (4, 5, 8) if number > 1 else (0,):
                print(simulated(number, distance), flush=True)


if __name__ == "__main__":
    main()
