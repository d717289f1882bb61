"""A histogram of two sets of scores with a threshold, as bars for an inline SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Floats
from protofission.core.number_words import images, percent

FEW, FEW_BINS, BINS = 200, 20, 40
"""With fewer known images than FEW there are FEW_BINS bins."""
WIDTH, HEIGHT = 640, 170
"""Size of the plot, in units of the drawing."""
CUT = 4
"""Bars are cut at this multiple of the highest bar of known images, so that those stay visible."""


@dataclass(frozen=True)
class Bar:
    """One bar, in units of the drawing, y downwards."""

    x: float
    width: float
    y: float
    height: float
    above: bool
    """Whether its scores are accepted."""
    cut: str
    """The share of the images, where the bar is cut; else nothing."""


@dataclass(frozen=True)
class ScoreHistogram:
    """Bars of the pool, the outline of known images, ticks and a description."""

    pool: tuple[Bar, ...]
    known: str
    """Points of a polyline."""
    threshold_x: float | None
    threshold: str
    ticks: tuple[tuple[float, str], ...]
    description: str


def bin_edges(scores: NDArray[np.floating], threshold: float, bins: int) -> Floats:
    """Edges of so many or one more equal bins over finite scores; the threshold is one of them."""
    low, high = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 1.0)
    if np.isfinite(threshold):
        low, high = min(low, threshold), max(high, threshold)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    if not high > low:
        low, high = low - 0.5, high + 0.5
    step = (high - low) / bins
    start = low
    if np.isfinite(threshold):
        start = threshold - np.ceil((threshold - low) / step - 1e-9) * step
    count = int(np.ceil((high - start) / step - 1e-9))
    edges: Floats = np.float64(start) + np.float64(step) * np.arange(count + 1)
    edges[-1] = max(edges[-1], high)
    return edges


def bin_shares(scores: NDArray[np.floating], edges: Floats) -> Floats:
    """The share of the scores in each bin; a score on an edge belongs to the bin above."""
    places = np.clip(np.searchsorted(edges, scores, side="right") - 1, 0, len(edges) - 2)
    counts = np.bincount(places, minlength=len(edges) - 1)
    return counts / max(1, len(scores))


def score_histogram(
    known: NDArray[np.floating], pool: NDArray[np.floating], threshold: float
) -> ScoreHistogram:
    """Lay out a histogram of ID scores; scores that are not finite are left out."""
    # Float64, so that a score of float32 that equals the threshold is not below it.
    known, pool = (part[np.isfinite(part)].astype(np.float64) for part in (known, pool))
    bins = FEW_BINS if len(known) < FEW else BINS
    edges = bin_edges(np.concatenate([known, pool]), threshold, bins)
    known_shares, pool_shares = bin_shares(known, edges), bin_shares(pool, edges)
    top = max(float(known_shares.max()), float(pool_shares.max()), 1e-9)
    if known_shares.any():
        top = min(top, CUT * float(known_shares.max()))
    x = WIDTH * (edges - edges[0]) / (edges[-1] - edges[0])
    heights = HEIGHT * np.minimum(pool_shares / top, 1)
    bars = tuple(
        Bar(
            x=round(float(x[i]), 1),
            width=round(float(x[i + 1] - x[i]), 1),
            y=round(HEIGHT - float(heights[i]), 1),
            height=round(float(heights[i]), 1),
            above=bool(edges[i] >= threshold - 1e-9 * (edges[-1] - edges[0])),
            cut=percent(float(share), 0) if share > top else "",
        )
        for i, share in enumerate(pool_shares)
        if share
    )
    levels = np.repeat(HEIGHT * (1 - np.minimum(known_shares / top, 1)), 2)
    outline = " ".join(
        f"{a:.1f},{b:.1f}" for a, b in zip(np.repeat(x, 2)[1:-1], levels, strict=True)
    )
    marked = bool(np.isfinite(threshold))
    span = edges[-1] - edges[0]
    return ScoreHistogram(
        pool=bars,
        known=f"0,{HEIGHT} {outline} {WIDTH},{HEIGHT}" if len(known) else "",
        threshold_x=round(WIDTH * (threshold - float(edges[0])) / span, 1) if marked else None,
        threshold=f"{threshold:.3g}" if marked else "",
        ticks=tuple(
            (round(WIDTH * float(value - edges[0]) / float(span), 1), f"{value:.6g}")
            for value in round_values(float(edges[0]), float(edges[-1]))
        ),
        description=_description(known, pool, threshold),
    )


def round_values(low: float, high: float) -> list[float]:
    """Four to ten multiples of 1, 2 or 5 times a power of ten, from the lower to the upper end."""
    power = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = power * max(f for f in (1, 2, 5) if power * f <= (high - low) / 4)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _description(known: NDArray[np.floating], pool: NDArray[np.floating], threshold: float) -> str:
    what = f"Histogram of the ID scores of {images(len(known), 'held-out known')}" + (
        f" and of {images(len(pool))} of the pool."
    )
    if not np.isfinite(threshold):
        return f"{what} There is no threshold."
    shares = [
        percent(float((part >= threshold).mean()), 0) if len(part) else "none"
        for part in (known, pool)
    ]
    return (
        f"{what} At or above the threshold of {threshold:.3g} are {shares[0]} of the known images "
        f"and {shares[1]} of the pool."
    )
