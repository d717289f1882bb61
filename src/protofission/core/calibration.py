"""What held-out images say of a model: temperature, threshold with its promise, strangers, drift.

ID scores are higher for images more like a known class, and an image is accepted from the
threshold on, as in `recognizer.py`. Arrays in, numbers out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import beta, ks_2samp

from protofission.core.errors import require
from protofission.core.rng import step_rng

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Verdict = Literal["no drift seen", "drift", "too few to tell"]

COLDEST, HOTTEST = 0.5, 20.0
SIGNIFICANT = 0.01
"""Scores as different as these come by chance more seldom than this: drift."""
EXACTNESS = 1e-9
"""(n + 1)(1 - keep) is whole if it is so up to this: 10 (1 - 0.9) is 0.9999999999999998."""
UPPER_SHARES = (0.5, 0.25)
"""Strangers are looked for above the median of known scores, and above their upper quartile."""
FEWEST_KNOWN = 5
"""Held-out images without which the share of strangers cannot be told."""


def best_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """The T in 0.5 ... 20 with the least negative log likelihood of softmax(logits / T).

    It is 1 where nothing depends on it: without images, with one class, with equal logits. Where
    every image is right the likelihood has no best T, and 0.5 is given.

    Args:
        logits: (N, S), of images that nothing was fitted to.
        labels: (N,), their classes.
    """
    values, true = _rows(logits, labels, "logits")
    above = values - values[np.arange(len(values)), true, None]
    if not above.any():
        return 1.0

    # The loss is convex in 1 / T, so its slope has one root; where the loss itself is flat to
    # the last digit, the slope still has a sign.
    def slope(log_t: float) -> float:
        return float((softmax(above / math.exp(log_t), axis=1) * above).sum(1).mean())

    coldest, hottest = math.log(COLDEST), math.log(HOTTEST)
    if slope(coldest) <= 0:
        return COLDEST
    if slope(hottest) >= 0:
        return HOTTEST
    return math.exp(brentq(slope, coldest, hottest, xtol=1e-10))


def expected_calibration_error(probs: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """How far the highest probability is from the share that is right: the mean over images.

    Images are put into equal bins (a, b] of their highest probability, and each bin is judged as
    a whole. NaN where there is no image.

    Args:
        probs: (N, S), rows that add up to 1.
        labels: (N,), the true classes.
    """
    values, true = _rows(probs, labels, "probabilities")
    require(bins >= 1, f"bins = {bins} must be at least 1.")
    sums = values.sum(1)
    require(
        not ((values < 0).any() or (abs(sums - 1) > 1e-3).any()),
        "The probabilities of an image do not add up to 1: give those after the softmax.",
    )
    if not len(values):
        return math.nan
    top, right = values.max(1), values.argmax(1) == true
    places = np.searchsorted(np.arange(1, bins) / bins, top)
    return float(abs(np.bincount(places, right - top)).sum() / len(values))


def conformal_threshold(scores: ArrayLike, keep: float) -> float:
    """The threshold that accepts a new known image with a probability of at least `keep`.

    Split conformal prediction: the floor((n + 1)(1 - keep))-th lowest score; -inf, which accepts
    everything, where that is 0 because n images are too few. It holds for any model and any scores
    if the new image is drawn like the held-out ones.

    Args:
        scores: (n,), the ID scores of known images that nothing was fitted to.
    """
    return guarantee(scores, keep).threshold


def images_needed(keep: float) -> int:
    """The fewest held-out images that can set a threshold: (n + 1)(1 - keep) is at least 1."""
    return math.ceil((1 - EXACTNESS) / (1 - keep)) - 1


@dataclass(frozen=True)
class Guarantee:
    """A threshold and what it promises of new images that are drawn like the held-out ones."""

    keep: float
    """The share of known images that was to be accepted."""
    images: int
    """Held-out known images that it rests on: n."""
    threshold: float
    rank: int
    """The threshold is the rank-th lowest of their scores: k; 0 where it is -inf."""
    expected: float
    """The share accepted on average over held-out sets: (n + 1 - k) / (n + 1), more with ties."""
    at_least: float
    """The share accepted that is reached with a probability of `confidence` over such sets."""
    confidence: float = 0.95

    @property
    def needed(self) -> int:
        """The fewest images for which such a promise can be kept by a threshold."""
        return images_needed(self.keep)

    @property
    def remedy(self) -> str:
        """What to do where nothing can be promised: n images can promise n / (n + 1) at most."""
        most = math.floor(1000 * self.images / (self.images + 1)) / 1000
        lower = f", or lower keep to {most:g}" if self.images else ""
        return f"label more, so that {self.needed:,} can be held out{lower}"

    def sentence(self) -> str:
        """The promise in plain words."""
        keep = percent(self.keep, 6)
        if not self.rank:
            return (
                f"{images(self.images)} held out cannot set a threshold that keeps {keep} of "
                f"known images, so every image is accepted: {self.remedy}."
            )
        sure = percent(math.floor(1000 * self.at_least) / 1000)
        return (
            f"A new image of a known class, if drawn like the {images(self.images)} held out, is "
            f"accepted with a probability of at least {keep}: the threshold is "
            f"{self.threshold:.4g}, and with {percent(self.confidence, 6)} confidence it accepts "
            f"{sure} of them or more."
        )


def guarantee(scores: ArrayLike, keep: float, confidence: float = 0.95) -> Guarantee:
    """The conformal threshold on the scores of held-out known images, with what it promises."""
    found = np.sort(_scores(scores, "held-out"))
    _within(keep=keep, confidence=confidence)
    n = len(found)
    rank = min(math.floor((n + 1) * (1 - keep) + EXACTNESS), n)
    return Guarantee(
        keep=keep,
        images=n,
        threshold=float(found[rank - 1]) if rank else -math.inf,
        rank=rank,
        expected=(n + 1 - rank) / (n + 1),
        at_least=float(beta.ppf(1 - confidence, n + 1 - rank, rank)) if rank else 1.0,
        confidence=confidence,
    )


@dataclass(frozen=True)
class ShareEstimate:
    """The share of a pool that is OOD, with an interval; NaN in 0 ... 1 if it cannot be told."""

    share: float
    low: float
    high: float
    confidence: float = 0.95

    def sentence(self) -> str:
        """The estimate in plain words."""
        if math.isnan(self.share):
            return (
                "How much of the pool is of no known class cannot be told without a pool and "
                f"{FEWEST_KNOWN} held-out known images."
            )
        return (
            f"About {percent(self.share)} of the pool is of no known class "
            f"({percent(self.low)} to {percent(self.high)} with {percent(self.confidence, 6)} "
            "confidence), more if such images look like known ones."
        )


def ood_share(
    known_scores: ArrayLike,
    pool_scores: ArrayLike,
    confidence: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
) -> ShareEstimate:
    """The share of a pool that is OOD, if its known images are drawn like the held-out ones.

    With F(t) and G(t) the shares of known and of pool images that score t or more, the known part
    of the pool is at most G(t) / F(t) for every t, and just that where no OOD image reaches t. The
    share is read at the median of known scores. So is the lower end of the interval; the upper end
    is the higher of those read there and at the upper quartile, as some OOD images may lie above
    the median. Resamples are Bayesian bootstraps (Rubin 1981) of both samples.

    Where a model learned from the pool and not from the held-out images, known images of the pool
    tend to score higher than held-out ones, and the estimate is then too low.

    In simulations with normal scores (n = 50 ... 2000, m = 200 ... 5000, shares of 0 ... 0.99, 100
    draws each) the interval held the pool's share in 97 % of all draws where OOD scores lie 3
    deviations below (AUC 0.98), in 95 % at 2.5 and in 86 % at 2 (AUC 0.92), most misses there
    at a share of 0.99; n = 5 and 20 gave 95, 92 and 87 %. Where scores overlap more it is an
    under-estimate: at 1 deviation (AUC 0.76) by up to a third. The interval's lower end held in
    94 ... 99 % at each distance. The least of G(t) / F(t) over all t is no remedy: with its
    bootstrap it held in 28 ... 59 %, as it finds the lowest point of the noise.
    """
    known, pool = _scores(known_scores, "held-out"), _scores(pool_scores, "pool")
    _within(confidence=confidence)
    require(resamples >= 1, f"resamples = {resamples} must be at least 1.")
    n, m = len(known), len(pool)
    if n < FEWEST_KNOWN or not m:
        return ShareEstimate(math.nan, 0.0, 1.0, confidence)
    levels = np.sort(known)[[n - math.ceil(share * n) for share in UPPER_SHARES]]
    reach_known, reach_pool = _reaching(known, levels), _reaching(pool, levels)
    # The chance of a new known image to reach the j-th highest of n scores is j / (n + 1).
    share = 1 - float(reach_pool[0] / m / (reach_known[0] / (n + 1)))
    rng = np.random.default_rng(step_rng(seed, 0, "share of strangers").initial_seed())
    parts = 1 - _redrawn(reach_pool, m, resamples, rng) / _redrawn(reach_known, n, resamples, rng)
    ends = np.quantile(parts, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    low, high = min(float(ends[0, 0]), share), max(float(ends[1].max()), share)
    share, low, high = (min(max(value, 0.0), 1.0) for value in (share, low, high))
    return ShareEstimate(share, low, high, confidence)


def _reaching(scores: Floats, levels: Floats) -> Counts:
    """How many scores reach each level."""
    return len(scores) - np.searchsorted(np.sort(scores), levels)


def _redrawn(reaching: Counts, total: int, resamples: int, rng: np.random.Generator) -> Floats:
    """(resamples, levels): shares that reach rising levels in Bayesian bootstraps.

    One pseudo-image in all keeps an empty part from being empty in every resample.
    """
    parts = -np.diff(reaching, prepend=total, append=0)
    drawn = rng.dirichlet(parts + 1 / len(parts), size=resamples)
    above = np.cumsum(drawn[:, ::-1], axis=1)[:, ::-1]
    return np.maximum(above[:, 1:], np.finfo(float).tiny)


@dataclass(frozen=True)
class Drift:
    """New images against the held-out ones; the interval is that of Clopper and Pearson, 95 %."""

    known: int
    """Held-out images."""
    images: int
    """New images."""
    expected: float
    """The share of held-out images below the threshold."""
    found: float
    """The share of new images below it, between `low` and `high`."""
    low: float
    high: float
    statistic: float
    """Of Kolmogorov and Smirnov: the widest gap between the two distributions of scores."""
    p_value: float
    verdict: Verdict
    rejects: bool = True
    """Whether there is a threshold, so that an image can be below it."""

    def sentence(self) -> str:
        """The verdict in plain words."""
        new, known = images(self.images, "new"), images(self.known, "held-out")
        if self.verdict == "too few to tell":
            remedy = "give more images" if self.images < self.known else "fit with more labels"
            return f"Too few to tell: {new} beside {known} cannot show drift; {remedy}."
        more, then = "more", "strangers among them are drift too"
        if self.verdict == "no drift seen":
            gap = percent(visible_gap(self.known, self.images), 0)
            more, then = "no more", f"a share of strangers below about {gap} may not show"
        return (
            f"{self.verdict.capitalize()}: the scores of {new} differ from those of {known} of "
            f"known classes by {more} than chance explains (Kolmogorov-Smirnov "
            f"{self.statistic:.2f}, p = {self.p_value:.2g}); {then}."
        )

    def rejections(self) -> str:
        """How many are below the threshold, in plain words."""
        if not self.rejects:
            return (
                "The model accepts every image: it was fitted with too few labels for a threshold."
            )
        new, known = round(self.found * self.images), round(self.expected * self.known)
        return (
            f"Not accepted: {new:,} of {images(self.images, 'new')} ({percent(self.found)}; "
            f"{percent(self.low)} to {percent(self.high)} with 95 % confidence) and {known:,} of "
            f"{images(self.known, 'held-out')}."
        )


def visible_gap(known: int, new: int) -> float:
    """The least gap between the scores of so many images that is drift, by the limit for many.

    Where a share of the new images are strangers that score below all known ones, that is the gap.
    """
    return math.sqrt(-math.log(SIGNIFICANT / 2) / 2 * (1 / known + 1 / new))


def drift_test(known_scores: ArrayLike, new_scores: ArrayLike, threshold: float) -> Drift:
    """Whether new images score like held-out known ones: drift where the p-value is below 0.01.

    Where it is not, and only samples that lie wholly apart would be, there are too few to tell.
    """
    known, new = _scores(known_scores, "held-out"), _scores(new_scores, "new")
    require(not math.isnan(threshold), "threshold = nan: give a number, or -inf to reject nothing.")
    for kind, scores in (("held-out", known), ("new", new)):
        require(len(scores) > 0, f"There are no {kind} scores: drift needs some of each.")
    total, rejected = len(new), int((new < threshold).sum())
    test = ks_2samp(known, new)
    verdict: Verdict = "no drift seen" if visible_gap(len(known), total) < 1 else "too few to tell"
    if test.pvalue < SIGNIFICANT:
        verdict = "drift"
    return Drift(
        known=len(known),
        images=total,
        expected=float((known < threshold).mean()),
        found=rejected / total,
        low=float(beta.ppf(0.025, rejected, total - rejected + 1)) if rejected else 0.0,
        high=float(beta.ppf(0.975, rejected + 1, total - rejected)) if rejected < total else 1.0,
        statistic=float(test.statistic),
        p_value=float(test.pvalue),
        verdict=verdict,
        rejects=threshold > -math.inf,
    )


def _rows(values: ArrayLike, labels: ArrayLike, what: str) -> tuple[Floats, Counts]:
    """(N, S) numbers and (N,) classes in 0 ... S - 1, or a sentence on what is wrong."""
    rows, true = np.asarray(values, float), np.asarray(labels)
    require(rows.ndim == 2, f"The {what} are of shape {rows.shape}: give images by classes.")
    require(
        true.shape == rows.shape[:1],
        f"Labels of shape {true.shape} for {len(rows)} images: give one each.",
    )
    require(bool(np.isfinite(rows).all()), f"Some of the {what} are NaN or infinite: mend them.")
    if not len(true):
        return rows, np.zeros(0, np.int64)
    require(np.issubdtype(true.dtype, np.integer), f"A label is a whole number, not {true.dtype}.")
    low, high, last = int(true.min()), int(true.max()), rows.shape[1] - 1
    require(
        low >= 0 and high <= last,
        f"Labels of {low} ... {high} lie outside 0 ... {last}, the classes of the {what}.",
    )
    return rows, true.astype(np.int64)


def _scores(values: ArrayLike, kind: str) -> Floats:
    scores = np.asarray(values, float)
    require(scores.ndim == 1, f"The {kind} scores are of shape {scores.shape}: give one an image.")
    bad = int(np.isnan(scores).sum())
    require(bad == 0, f"{bad} of {len(scores)} {kind} scores are NaN: leave these images out.")
    return scores


def _within(**shares: float) -> None:
    for name, share in shares.items():
        require(0 < share < 1, f"{name} = {share} must be above 0 and below 1.")


def percent(share: float, digits: int = 1) -> str:
    """A share in words."""
    return f"{round(100 * share, digits):.10g} %"


def images(number: int, kind: str = "") -> str:
    """So many images of a kind, in words."""
    return f"{number:,}{' ' * bool(kind)}{kind} image{'s' * (number != 1)}"
