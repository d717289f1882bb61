"""Estimate the number of novel classes in a pool, or of parts of a class, by clusters that recur.

K-means clusters of one half of the rows are matched with those of the other half, and a cluster
that recurs (Jaccard index of RECURS and more) counts.
Labels help twice. Features are whitened by the known classes' own scatter, so that what differs
within a class weighs less; and clusters into which held-out labeled rows fall as often as pool rows
belong to a known class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protofission.core.array_types import Floats, Ints
from protofission.core.errors import require
from protofission.core.incremental_kmeans import (
    Anchors,
    Clustering,
    grow_clusters,
    nearest_centers,
)
from protofission.core.progress import Progress
from protofission.core.rng import step_rng

ROWS = 4000
"""Most rows of the pool, or of a class; of more, a sample is taken."""
DIRECTIONS = 32
"""Most principal directions that are kept."""
RESAMPLES = 8
"""Number of random pairs of halves."""
RECURS = 2 / 3
"""The Jaccard index from which on a cluster is the same one in both halves."""
FEWEST = 5
"""Fewest rows of a cluster that counts."""
LABELS = 6
"""Fewest labeled rows of a class: with fewer held out, no cluster would pass for new."""


@dataclass(frozen=True)
class Candidate:
    """A candidate number of clusters, with its score and stability."""

    number: int
    score: float
    """Mean Jaccard index of the cluster that recurs worst, if there are so many."""
    stability: float
    """The share of the resamples that find this number."""


@dataclass(frozen=True)
class Count:
    """The number that half of the resamples reach."""

    number: int
    stability: float
    """The share of the resamples that find this number."""
    candidates: tuple[Candidate, ...]


def count_novel(
    labeled: ArrayLike,
    labels: ArrayLike,
    pool: ArrayLike,
    most: int | None = None,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Count:
    """Estimate the number of classes in the pool that no label names; 0 if nothing is new.

    Args:
        labeled: (L, D) features, LABELS of each known class at least.
        labels: (L,): their classes, any whole numbers.
        pool: (U, D) features, of known classes and others; of more than ROWS, a sample is used.
        most: the largest answer; by default twice the known classes, from 10 to 40.
        progress: called with the number of resamples done, and of all.
    """
    known, rows = _check_rows("labeled features", labeled), _check_rows("pool features", pool)
    require(
        known.shape[1] == rows.shape[1],
        f"Labeled rows have {known.shape[1]} features, pool rows {rows.shape[1]}: give the same.",
    )
    given = np.asarray(labels)
    require(
        given.shape == (len(known),),
        f"{given.size} labels for {len(known)} labeled rows: give one each.",
    )
    names, classes, sizes = np.unique(given, return_inverse=True, return_counts=True)
    rarest = int(sizes.argmin())
    require(
        sizes[rarest] >= LABELS,
        f"Class {names[rarest]} has {sizes[rarest]} labeled rows: counting wants {LABELS} or more.",
    )
    most = _check_most(min(max(10, 2 * len(names)), 40) if most is None else most)
    center = np.concatenate([known, rows]).mean(0, dtype=np.float64)
    order, sample = _order_by_distance(known, center), _sample(rows, center, seed)
    classes = classes[order].astype(np.int64)
    points = _directions(np.concatenate([known[order] - center, rows[sample] - center]))
    some, others = points[: len(known)], points[len(known) :]
    found = np.empty((RESAMPLES, most))
    for turn in range(RESAMPLES):
        progress(turn, RESAMPLES)
        found[turn] = _new_clusters(some, classes, others, most, _resample_rng(seed, turn))
    progress(RESAMPLES, RESAMPLES)
    return _count(found, base=0)


def count_parts(features: ArrayLike, most: int = 10, seed: int = 0) -> Count:
    """Estimate the number of clusters that a class falls into; 1 if it is of one piece.

    Clusters must recur and be tighter than those that one Gaussian of the same covariance is
    cut into: a long class is cut at the same place again and again, and yet is one.

    Args:
        features: (N, D), of one class; of more than ROWS, a sample is used.
        most: the largest answer.
    """
    rows, most = _check_rows("features", features), _check_most(most)
    center = rows.mean(0, dtype=np.float64)
    points = _directions(rows[_sample(rows, center, seed)] - center)
    found, gains = np.empty((RESAMPLES, most)), np.empty((RESAMPLES, most))
    for turn in range(RESAMPLES):
        found[turn], gains[turn] = _parts(points, most, _resample_rng(seed, turn))
    tighter = gains.mean(0) > 2 * gains.std(0)
    return _count(np.where(tighter, found, 0)[:, 1:], base=1)


def _check_rows(what: str, values: ArrayLike) -> NDArray[np.float32]:
    rows = np.asarray(values, np.float32)
    require(
        rows.ndim == 2 and len(rows) >= 2 and rows.shape[1] >= 1,
        f"The {what} have the shape {rows.shape}: counting wants 2 or more rows of features.",
    )
    bad = int((~np.isfinite(rows)).any(1).sum())
    require(bad == 0, f"{bad} of {len(rows)} rows of {what} hold NaN or infinity: leave them out.")
    return rows


def _check_most(most: int) -> int:
    require(most >= 1, f"most = {most} must be 1 or more.")
    return most


def _resample_rng(seed: int, turn: int) -> np.random.Generator:
    return np.random.default_rng(step_rng(seed, turn, "counting").initial_seed())


def _order_by_distance(rows: NDArray[np.float32], center: Floats) -> Ints:
    """Indices of the rows from the center outwards, so that draws do not depend on their order."""
    offsets = rows - center.astype(np.float32)
    return np.argsort(np.einsum("nd,nd->n", offsets, offsets), kind="stable")


def _sample(rows: NDArray[np.float32], center: Floats, seed: int) -> Ints:
    order = _order_by_distance(rows, center)
    return order[_resample_rng(seed, -1).permutation(len(order))[:ROWS]]


def _directions(rows: Floats) -> Floats:
    """(N, d): centered rows in their first principal directions, without those of no variance."""
    from scipy.linalg import eigh

    dimensions = rows.shape[1]
    kept = [max(0, dimensions - DIRECTIONS), dimensions - 1]
    variances, axes = eigh(rows.T @ rows, subset_by_index=kept)
    carry = variances > 1e-9 * max(variances[-1], np.finfo(float).tiny)
    return np.asarray(rows @ axes[:, carry]) if carry.any() else np.zeros((len(rows), 1))


def _whiten(points: Floats, residuals: Floats) -> Floats:
    """Whiten points by the scatter of residuals within known classes."""
    from sklearn.covariance import ledoit_wolf

    scatter, _ = ledoit_wolf(residuals, assume_centered=True)
    variances, axes = np.linalg.eigh(scatter)
    # a class of equal rows has no scatter: let the points' own be the smallest unit
    floor = max(1e-6 * points.var(0).mean(), np.finfo(float).tiny)
    return np.asarray(points @ (axes / np.sqrt(np.maximum(variances, floor))))


def _recurrence(own: Clustering, points: Floats, other: Floats, known: int) -> Floats:
    """(K - S,): the Jaccard index of each free cluster and its best match by other centers."""
    size = len(own.centers)
    there = nearest_centers(points, other)
    both = np.bincount(own.members * size + there, minlength=size * size).reshape(size, size)
    either = both.sum(1)[:, None] + both.sum(0) - both
    best = (both / np.maximum(either, 1))[known:, known:].max(1)
    return np.where(both.sum(1)[known:] >= FEWEST, best, 0.0)


def _known_share(own: Clustering, probes: Floats, classes: Ints, known: int) -> Floats:
    """(K - S,): the expected share of rows of known classes in each free cluster.

    The probes of a known class give the ratio of its rows in a free cluster to its rows in a known
    one; the latter are counted, and multiplied by the ratio. Few probes may miss a corner of a
    class, so the class nearest to a cluster counts as having one more probe in it.
    """
    size = len(own.centers)
    fallen = nearest_centers(probes, own.centers)
    counts = np.zeros((known, size))
    np.add.at(counts, (classes, fallen), 1.0)
    rows = np.bincount(own.members, minlength=size)
    stay = np.maximum(counts[:, :known].sum(1), 1.0)
    nearest = nearest_centers(own.centers[known:], own.centers[:known])
    counts[nearest, np.arange(known, size)] += 1
    expected = (rows[:known] / stay) @ counts[:, known:]
    return np.asarray(expected / np.maximum(rows[known:], 1))


def _new_clusters(
    labeled: Floats, classes: Ints, pool: Floats, most: int, random: np.random.Generator
) -> Floats:
    """(most,): the Jaccard index with which the first, second ... new cluster recurs."""
    known = int(classes.max()) + 1
    anchor = np.zeros(len(classes), bool)
    for name in range(known):
        places = random.permutation(np.flatnonzero(classes == name))
        anchor[places[: round(2 / 3 * len(places))]] = True
    own, sizes = classes[anchor], np.bincount(classes[anchor])
    residuals = labeled[anchor] - Anchors.of(labeled[anchor], own, known).means[own]
    residuals *= np.sqrt(sizes / (sizes - 1))[own, None]
    points = _whiten(np.concatenate([labeled, pool]), residuals)
    labeled, pool = points[: len(classes)], points[len(classes) :]
    anchors = Anchors.of(labeled[anchor], own, known)
    halves = _halves(pool, random)
    grown = [grow_clusters(half, anchors, most, random) for half in halves]
    found = np.zeros(most)
    for pair in zip(*grown, strict=False):
        ranked = []
        for clusters, half, other in zip(pair, halves, pair[::-1], strict=True):
            back = _recurrence(clusters, half, other.centers, known)
            new = _known_share(clusters, labeled[~anchor], classes[~anchor], known) <= 0.5
            ranked.append(np.sort(np.where(new, back, 0.0))[::-1])
        found[: len(ranked[0])] = np.maximum(found[: len(ranked[0])], np.mean(ranked, 0))
    return found


def _parts(points: Floats, most: int, random: np.random.Generator) -> tuple[Floats, Floats]:
    """(most,) twice: Jaccard indices of recurring clusters, and their gains over a Gaussian's.

    A gain is a difference of the log share of the scatter that is left by 1, 2 ... clusters.
    """
    nothing = Anchors(np.empty((0, points.shape[1])), np.empty(0))
    halves = _halves(points, random)
    gaussian = random.normal(size=halves[0].shape) * points.std(0)
    *grown, plain = (grow_clusters(rows, nothing, most, random) for rows in (*halves, gaussian))
    found, gains = np.zeros(most), np.zeros(most)
    for place, pair in enumerate(zip(*grown, strict=False)):
        back = [
            np.sort(_recurrence(clusters, half, other.centers, 0))[::-1]
            for clusters, half, other in zip(pair, halves, pair[::-1], strict=True)
        ]
        found[: place + 1] = np.maximum(found[: place + 1], np.mean(back, 0))
        if place < len(plain):
            gains[place] = _log_scatter_left(plain, place) - np.mean(
                [_log_scatter_left(own, place) for own in grown]
            )
    return found, gains


def _log_scatter_left(grown: Sequence[Clustering], place: int) -> float:
    """The log of the share of the scatter that is left within clusters."""
    tiny = np.finfo(float).tiny
    return float(np.log(max(grown[place].inertia, tiny) / max(grown[0].inertia, tiny)))


def _halves(points: Floats, random: np.random.Generator) -> tuple[Floats, Floats]:
    order = random.permutation(len(points))
    middle = len(points) // 2
    return points[order[:middle]], points[order[middle:]]


def _count(found: Floats, base: int) -> Count:
    """The count from (resamples, numbers above `base`) Jaccard indices of so many clusters."""
    above = np.arange(1, found.shape[1] + 1)
    answers = base + (above * (found >= RECURS)).max(1, initial=0)
    scores = [1.0, *found.mean(0).tolist()]
    candidates = tuple(
        Candidate(base + place, score, float((answers == base + place).mean()))
        for place, score in enumerate(scores)
    )
    number = int(np.sort(answers)[len(answers) // 2])
    return Count(number, candidates[number - base].stability, candidates)
