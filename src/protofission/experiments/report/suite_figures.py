"""The figures of a suite: curves with their bands, or dots with their intervals."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from protofission.experiments.report.quantities import Column, number_text
from protofission.experiments.report.run_figures import DASHES, MARKERS
from protofission.experiments.report.statistics import Sample
from protofission.experiments.report.suite_grid import Grid
from protofission.experiments.report.suite_tables import NOT_RUN
from protofission.pages.drawing import INK, OKABE_ITO, shorten, svg

WIDTH = 6.2
ENOUGH = 3
"""Fewest seeds for a band that is an interval; with fewer, it is the range."""
INTERVALS = "Bands are 95 % intervals of the mean."
RANGES = "Bands reach from the lowest to the highest seed."
PRINCIPAL = ("all_orca", "all_strict")
"""The quantity that dots show, if the suite has it: where the paper has numbers, and elsewhere."""


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn on a page and into files."""

    name: str
    title: str
    caption: str
    label: str
    """Description for readers who cannot see it."""
    draw: Callable[[Figure], None]
    inches: tuple[float, float]

    @property
    def inline(self) -> Markup:
        """The figure as an element of a page."""
        return svg(self.name, self.label, self.draw, self.inches)


def drawings(grid: Grid, marks: Sequence[str]) -> list[Drawing]:
    """One figure for each panel."""
    draw = _curves if grid.suite.axis else _dots
    return [draw(grid, panel, place, marks) for place, panel in enumerate(grid.run_panels, 1)]


def _file_name(kind: str, place: int, panel: str) -> str:
    """A file name that is safe everywhere and like no other."""
    return f"{kind}-{place}-{re.sub('[^a-z0-9]+', '-', panel.lower())[:40]}".strip("-")


def _curves(grid: Grid, panel: str, place: int, marks: Sequence[str]) -> Drawing:
    key = grid.suite.quantities[0]
    column, x = grid.columns[key], [at for at in grid.along(panel) if at is not None]
    samples = {row: [grid.entry(row, panel, at).sample(key) for at in x] for row in grid.rows}
    shown = {row: some for row, some in samples.items() if any(sample.n for sample in some)}
    colors = {row: number for number, row in enumerate(grid.rows)}

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, some in shown.items():
            _curve(axes, colors[row], row, x, some)
        axes.set(title=_title(panel, marks), xlabel=grid.suite.axis, ylabel=_quantity(column))
        if shown:
            figure.legend(loc="outside lower center", ncols=2, handlelength=3.5)
        else:
            axes.text(0.5, 0.5, NOT_RUN, ha="center", transform=axes.transAxes)

    ends = [
        f"{row} " + " to ".join(number_text(some[at].mean, column.digits) for at in (0, -1))
        for row, some in shown.items()
    ]
    title = f"{column.full_title} along {grid.suite.axis}, {panel}"
    return Drawing(
        name=_file_name("curves", place, panel),
        title=title,
        caption=f"Lines are means over seeds. {_bands(samples)}",
        label=f"{title}, first to last point: {'; '.join(ends) or NOT_RUN}.",
        draw=draw,
        inches=(WIDTH, 4.0),
    )


def _curve(axes: Axes, place: int, row: str, x: Sequence[float], samples: list[Sample]) -> None:
    color = OKABE_ITO[place % len(OKABE_ITO)]
    bands = np.array([_band(sample) for sample in samples])
    axes.fill_between(x, *bands.T, color=color, alpha=0.18, linewidth=0)
    axes.vlines(x, *bands.T, color=color, linewidth=0.8)  # of a point alone, the band is not seen
    axes.plot(
        x,
        [sample.mean for sample in samples],
        color=color,
        linestyle=DASHES[(place + place // len(OKABE_ITO)) % len(DASHES)],
        linewidth=1.6,
        marker=MARKERS[place % len(MARKERS)],
        markersize=5,
        label=row,
    )


def _band(sample: Sample) -> tuple[float, float]:
    if sample.n >= ENOUGH:
        return sample.ends
    return (min(sample.values), max(sample.values)) if sample.n else (np.nan, np.nan)


def _bands(samples: dict[str, list[Sample]]) -> str:
    """A sentence on what the bands of a figure are."""
    sizes = [sample.n for some in samples.values() for sample in some if sample.n]
    if all(size >= ENOUGH for size in sizes):
        return INTERVALS
    if all(size < ENOUGH for size in sizes):
        return RANGES
    return f"{INTERVALS} Where there are fewer than three seeds: {RANGES[0].lower()}{RANGES[1:]}"


def _dots(grid: Grid, panel: str, place: int, marks: Sequence[str]) -> Drawing:
    principal = PRINCIPAL[0 if grid.suite.published else 1]
    key = principal if principal in grid.suite.quantities else grid.suite.quantities[0]
    column = grid.columns[key]
    samples = {row: grid.entry(row, panel).sample(key) for row in grid.rows_on(panel)}
    papers = np.array([grid.paper(row, panel, key) for row in grid.rows_on(panel)])
    known = np.isfinite(papers)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.grid(True, axis="x")
        if known.any():
            axes.plot(papers, np.arange(len(papers)), "D", **_hollow(), label="paper")
        _rows_of_dots(axes, list(samples.values()))
        axes.set_yticks(range(len(samples)), [_tick(row, some) for row, some in samples.items()])
        axes.set_ylim(len(samples) - 0.4, -0.6)
        axes.set(title=_title(panel, marks), xlabel=_quantity(column))
        figure.legend(loc="outside lower center", ncols=3)

    means = [
        f"{row} {number_text(sample.mean, column.digits) if sample.n else NOT_RUN}"
        for row, sample in samples.items()
    ]
    title = f"{column.full_title}, {panel}"
    hollow = " Hollow diamonds are the paper's numbers." if known.any() else ""
    return Drawing(
        name=_file_name("dots", place, panel),
        title=title,
        caption="Large dots are means with their 95 % intervals, small ones single seeds." + hollow,
        label=f"{title}: {'; '.join(means)}.",
        draw=draw,
        inches=(WIDTH, 1.5 + 0.36 * len(samples)),
    )


def _tick(row: str, sample: Sample) -> str:
    return shorten(row, 28) + ("" if sample.n else f" ({NOT_RUN})")


def _hollow() -> dict[str, Any]:
    return {
        "markerfacecolor": "none",
        "markeredgecolor": OKABE_ITO[1],
        "markersize": 8,
        "markeredgewidth": 1.4,
    }


def _rows_of_dots(axes: Axes, samples: list[Sample]) -> None:
    heights = np.repeat(np.arange(len(samples)), [sample.n for sample in samples])
    values = np.concatenate([sample.values for sample in samples])
    axes.plot(values, heights + 0.22, "o", color=INK, alpha=0.3, markersize=3.5,
              markeredgewidth=0, label="one seed")  # fmt: skip
    means, intervals = (
        np.array([getattr(sample, name) for sample in samples]) for name in ("mean", "interval")
    )
    axes.errorbar(means, np.arange(len(samples)), xerr=intervals, fmt="o", color=OKABE_ITO[0],
                  markersize=6, capsize=3, label="mean, 95 % interval")  # fmt: skip


def _quantity(column: Column) -> str:
    return column.full_title + (" (percent)" if column.scale == 100 else "")


def _title(panel: str, marks: Sequence[str]) -> str:
    """The panel's name under the marks: figures are also shown without their page."""
    return "\n".join([*(fill(mark, 80) for mark in marks), panel])
