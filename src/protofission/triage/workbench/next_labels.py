"""Choose the images that a person should label next: uncertain, representative and diverse ones.

The choice is the greedy maximum of one sum over the images without a label (weighted facility
location). Image i has the weight

    w_i = (LEAST_WEIGHT + P_i) (1 + u_i),

P_i the probability that it is of a known class at all and u_i = 1 - (the largest less the second
largest class probability) its uncertainty; and the sum is that of w_i times the cosine to the
nearest image that was asked about or is chosen. So an image is worth the more, the more images
without a label are like it, the less these are covered by labels and by the rest of the batch, the
more uncertain they are, and the less they look like strangers, whose labels teach less.

Nothing is drawn at random: equal images give equal choices, in whatever order they are given.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Floats, Ints
from protofission.core.errors import require
from protofission.triage.workbench.actions import NONE

LEAST_WEIGHT = 0.3
"""The weight of an image that is surely a stranger, beside 1 of a known one."""
LEVEL = 0.3
"""Images with ID scores above it tell how many of the pool are of known classes."""
LEAST_KNOWN = 0.02
"""The least share of known images in the pool that is assumed."""
MOST_COVERED = 4096
"""Most images whose cosines are summed; of more, evenly spaced ones by their ID scores."""
MOST_CANDIDATES = 4096
"""Most images of which some are chosen, unless four times as many as are asked for are more."""
AT_ONCE = 2048
"""Rows of cosines in memory at once."""
THRESHOLD, UNCERTAIN, TYPICAL, UNLIKE = (
    "near the threshold",
    "uncertain between classes",
    "typical of a cluster",
    "unlike any label",
)
UNSURE = 0.5
"""The margin between two probabilities below which an image is called uncertain."""
FAR = 0.5
"""The cosine to the nearest label below which an image is called unlike any."""
PLAINNESS = 0.8
"""By how much less it says that an image is typical: all that are chosen are."""


@dataclass(frozen=True, eq=False)
class Prospects:
    """The images of a model, labeled or not, as it sees them: what is chosen from."""

    units: NDArray[np.floating]
    """(N, d): unit vectors of their whitened features."""
    probs: NDArray[np.floating]
    """(N, S): probabilities of the known classes, if the image is of one."""
    id_scores: NDArray[np.floating]
    """(N,) in 0 to 1: about the share of known images that look no more like a known class."""
    threshold: float
    """The ID score from which on images are accepted."""
    clusters: Ints
    """(N,): the cluster of an image that is not accepted, or NO_CLASS."""
    decided: NDArray[np.bool_]
    """(N,): images that have a label, are of no class, or were skipped: never chosen."""
    groups: Ints
    """(N,): numbers that near-duplicates share."""

    def __post_init__(self) -> None:
        size = len(self.units)
        for name in ("probs", "id_scores", "clusters", "decided", "groups"):
            number = len(getattr(self, name))
            require(number == size, f"{name} has {number} rows for {size} images: give one each.")
        for name in ("units", "probs", "id_scores"):
            bad = int((~np.isfinite(getattr(self, name))).sum())
            require(bad == 0, f"{name} holds {bad} values that are no numbers: leave these out.")


@dataclass(frozen=True)
class NextImage:
    """An image to label next."""

    row: int
    suggestion: int
    """The class that it probably is of, or NONE."""
    probability: float
    """The probability of the suggestion."""
    id_score: float
    reason: str
    """THRESHOLD, UNCERTAIN, TYPICAL or UNLIKE."""
    likeliest: tuple[int, ...]
    """The likeliest class and, if there is one, the second."""
    cluster: int
    """The cluster of an image that is not accepted, or NO_CLASS."""

    def words(self, class_names: Sequence[str]) -> str:
        """The reason in words."""
        if self.reason != UNCERTAIN:
            return self.reason
        first, second = (class_names[number] for number in self.likeliest)
        return f"uncertain between {first} and {second}"


def choose_next(prospects: Prospects, number: int) -> list[NextImage]:
    """Choose images to label, the most useful first; fewer where fewer are left.

    Of near-duplicates at most one is chosen, and none if one of them is decided.
    """
    require(number >= 0, f"n = {number} images to label must be 0 or more.")
    order = _order(prospects)  # all that follows is in it, so that the order given does not matter
    decided, groups = prospects.decided[order], prospects.groups[order]
    open_rows = np.flatnonzero(~decided)
    if number == 0 or len(open_rows) == 0:
        return []
    units = np.asarray(prospects.units, np.float32)[order]
    margins, likeliest = class_margins(prospects.probs[order])
    known = np.zeros(len(order))
    known[open_rows] = known_probabilities(prospects.id_scores[order][open_rows])
    weights = (LEAST_WEIGHT + known) * (2 - margins)
    candidates = open_rows[~np.isin(groups[open_rows], groups[decided])]
    candidates = _evenly(candidates, max(MOST_CANDIDATES, 4 * number))
    covered = _evenly(open_rows, MOST_COVERED)
    cover = nearest_cosines(units[covered], units[decided])
    search = _Search(units[covered], weights[covered], cover, units[candidates])
    chosen = candidates[search.choose(groups[candidates], number)]
    if not len(chosen):
        return []
    scores = prospects.id_scores[order]
    nearest = nearest_cosines(units[candidates], units[decided])
    places = np.searchsorted(candidates, chosen)
    reasons = _reasons(
        places,
        threshold=-np.abs(scores[candidates] - prospects.threshold),
        uncertain=np.where(margins < UNSURE, (1 - margins) * known, -1)[candidates],
        typical=search.first_gains,
        unlike=np.where(nearest < FAR, 1 - nearest, -1),
    )
    found = []
    for row, reason in zip(chosen.tolist(), reasons, strict=True):
        best = int(likeliest[row, 0])
        chance = float(known[row] * prospects.probs[order[row], best])
        is_known = known[row] >= 0.5
        found.append(
            NextImage(
                row=int(order[row]),
                suggestion=best if is_known else NONE,
                probability=chance if is_known else float(1 - known[row]),
                id_score=float(scores[row]),
                reason=reason,
                likeliest=tuple(likeliest[row].tolist()),
                cluster=int(prospects.clusters[order[row]]),
            )
        )
    return found


def known_probabilities(id_scores: NDArray[np.floating]) -> Floats:
    """(N,): the probability of each image of a pool to be of a known class, by its ID score.

    ID scores of known images are evenly spread over 0 to 1: so they were made. Where the pool has
    a density f, the probability is (the share of known images) / f; the share is told by what
    scores above LEVEL, and f is the decreasing density of the largest likelihood (Grenander's).
    """
    from scipy.optimize import isotonic_regression

    if not len(id_scores):
        return np.zeros(0)
    scores = np.clip(np.asarray(id_scores, np.float64), 0, 1)
    share = min(1.0, max(float((scores > LEVEL).mean()) / (1 - LEVEL), LEAST_KNOWN))
    ends, places = np.unique(np.concatenate([scores, [0.0, 1.0]]), return_inverse=True)
    counts = np.bincount(places[: len(scores)], minlength=len(ends)).astype(float)
    counts[1] += counts[0]  # those at 0 are in the first step
    steps = np.diff(ends)
    heights = counts[1:] / steps / len(scores)
    density = isotonic_regression(heights, weights=steps, increasing=False).x
    own = density[np.maximum(places[: len(scores)] - 1, 0)]
    return np.asarray(np.minimum(share / np.maximum(own, share), 1.0))


def class_margins(probs: NDArray[np.floating]) -> tuple[Floats, Ints]:
    """(N,): the largest less the second largest probability; (N, 2): the classes of these.

    With one class, margins are 1, and there is no second.
    """
    if probs.shape[1] == 1:
        return np.ones(len(probs)), np.zeros((len(probs), 1), np.int64)
    classes = np.argsort(-probs, axis=1, kind="stable")[:, :2]
    best = np.take_along_axis(probs, classes, 1).astype(np.float64)
    return best[:, 0] - best[:, 1], classes.astype(np.int64)


def nearest_cosines(rows: NDArray[np.float32], others: NDArray[np.float32]) -> Floats:
    """(N,): the largest cosine of each of (N, d) unit vectors to others; 0 at least."""
    found = np.zeros(len(rows))
    for part in _parts(len(others)):
        found = np.maximum(found, (rows @ others[part].T).max(1))
    return found


class _Search:
    """The greedy search for images that cover others best, lazily: most gains are never updated.

    A gain only falls while others are chosen; so the one at the top of the heap that is up to date
    is the largest.
    """

    def __init__(
        self,
        covered: NDArray[np.float32],
        weights: Floats,
        cover: Floats,
        candidates: NDArray[np.float32],
    ) -> None:
        self.covered, self.weights, self.cover = covered, weights, cover
        self.candidates = candidates
        parts = [self._gains(candidates[part]) for part in _parts(len(candidates))]
        self.first_gains: Floats = np.concatenate([np.zeros(0), *parts])

    def choose(self, groups: Ints, number: int) -> Ints:
        """Places of so many candidates, of each group one at most; the earlier of equal ones."""
        heap = [(-gain, place, 0) for place, gain in enumerate(self.first_gains.tolist())]
        heapq.heapify(heap)
        chosen: list[int] = []
        taken: set[int] = set()
        while heap and len(chosen) < number:
            _, place, turn = heapq.heappop(heap)
            if int(groups[place]) in taken:
                continue
            if turn < len(chosen):
                gain = float(self._gains(self.candidates[place : place + 1])[0])
                heapq.heappush(heap, (-gain, place, len(chosen)))
                continue
            chosen.append(place)
            taken.add(int(groups[place]))
            self.cover = np.maximum(self.cover, self.covered @ self.candidates[place])
        return np.array(chosen, np.int64)

    def _gains(self, candidates: NDArray[np.float32]) -> Floats:
        """(n,): by how much the weighted sum of cosines would grow."""
        cosines = candidates @ self.covered.T  # (n, covered)
        return np.asarray(np.maximum(cosines - self.cover, 0) @ self.weights)


def _order(prospects: Prospects) -> Ints:
    """(N,): images by ID score; those of equal ones by what else is known of them."""
    first = np.asarray(prospects.units[:, :2], np.float64).T
    keys = (*first, prospects.probs.max(1, initial=0), prospects.id_scores)
    return np.lexsort(keys)


def _evenly(rows: Ints, most: int) -> Ints:
    """At most so many of the rows, evenly spaced."""
    if len(rows) <= most:
        return rows
    return rows[((np.arange(most) + 0.5) * len(rows) / most).astype(np.int64)]


def _parts(number: int) -> Iterator[slice]:
    return (slice(start, start + AT_ONCE) for start in range(0, number, AT_ONCE))


def _reasons(
    places: Ints, *, threshold: Floats, uncertain: Floats, typical: Floats, unlike: Floats
) -> list[str]:
    """For each place the reason in which it is farthest ahead of other candidates.

    Args:
        threshold, uncertain, typical, unlike: of all candidates; a negative one of the second and
            the last does not count.
    """
    ranks = []
    for values in (uncertain, threshold, unlike, typical):
        below = np.searchsorted(np.sort(values), values[places]) / len(values)
        ranks.append(np.where((values[places] < 0) & (values is not threshold), -1, below))
    ranks[-1] *= PLAINNESS
    names = (UNCERTAIN, THRESHOLD, UNLIKE, TYPICAL)
    return [names[best] for best in np.argmax(ranks, 0).tolist()]
