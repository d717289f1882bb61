"""The figures of the page: curves over epochs, confusion matrices, histograms of OOD scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from protofission.core.array_types import Floats
from protofission.core.metrics import auroc
from protofission.experiments.report.quantities import NO_NUMBER
from protofission.experiments.report.results import Groups, Result
from protofission.pages.drawing import INK, OKABE_ITO, shorten, svg
from protofission.pages.head_names import head_order
from protofission.training.history import Epoch
from protofission.training.predictions import Predictions

PANEL = (4.2, 3.2)
SQUARE = (4.2, 4.2)
LEGEND_LINE = 0.17
"""Height of a line of the legend, in inches."""
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
READABLE = 20
"""Most classes of a confusion matrix that shows its counts and all its names."""


def accuracy_of(kind: str) -> Callable[[Epoch], float]:
    """One of the strict accuracies of an epoch, in percent."""

    def value(epoch: Epoch) -> float:
        return 100 * getattr(epoch.summary.strict, kind) if epoch.summary else float("nan")

    return value


CURVES: dict[str, tuple[str, str, Callable[[Epoch], float]]] = {
    "loss": ("Training loss", "loss", lambda epoch: epoch.loss),
    "seen": ("Accuracy on known classes (seen)", "percent", accuracy_of("seen")),
    "novel": ("Accuracy on strangers (novel, strict)", "percent", accuracy_of("novel")),
    "all": ("Accuracy on all images (all, strict)", "percent", accuracy_of("all")),
}


def curves(groups: Groups, kind: str) -> Markup:
    """A quantity of CURVES over the epochs: the mean of each method, in a band from min to max."""
    title, unit, value = CURVES[kind]
    series = {method: _series(group, value) for method, group in groups.items()}
    shown = {method: values for method, values in series.items() if np.isfinite(values).any()}

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for place, (method, values) in enumerate(series.items()):
            _curve(axes, place, method, values)
        if not shown:
            axes.text(0.5, 0.5, "nothing to judge", ha="center", transform=axes.transAxes)
        axes.set(title=title, xlabel="epoch", ylabel=unit, xmargin=0.02)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if unit == "percent":
            axes.set_ylim(0, 102)
        figure.legend(loc="outside lower center", ncols=2, handlelength=3.5)

    ends = [f"{method} ends at {values[:, -1].mean():.3g}" for method, values in shown.items()]
    label = f"{title}, {unit} by epoch: {'; '.join(ends) or 'nothing to judge'}."
    width, height = PANEL
    below = max(
        0, math.ceil(len(series) / 2) - 2
    )  # lines of the legend that a panel has no room for
    return svg(f"curve-{kind}", label, draw, (width, height + below * LEGEND_LINE))


def _series(group: Sequence[Result], value: Callable[[Epoch], float]) -> Floats:
    """(seeds, epochs): cut to the shortest history."""
    epochs = min(len(result.history) for result in group)
    return np.array([[value(epoch) for epoch in result.history[:epochs]] for result in group])


def _curve(axes: Axes, place: int, method: str, values: Floats) -> None:
    judged = np.isfinite(values).all(0)  # the test set may not have been asked at every epoch
    epochs, values = np.flatnonzero(judged) + 1, values[:, judged]
    color = OKABE_ITO[place % len(OKABE_ITO)]
    style = place + place // len(OKABE_ITO)  # colors come again with another dash and marker
    if len(values) > 1:
        axes.fill_between(
            epochs, values.min(0), values.max(0), color=color, alpha=0.18, linewidth=0
        )
    axes.plot(
        epochs,
        values.mean(0),
        color=color,
        linestyle=DASHES[style % len(DASHES)],
        linewidth=1.6,
        marker=MARKERS[style % len(MARKERS)],
        markersize=4,
        markevery=(place % 4 if len(epochs) > 6 else 0, max(1, len(epochs) // 6)),
        label=method,
    )


def confusion(name: str, method: str, predictions: Predictions, names: Sequence[str]) -> Markup:
    """Images by true class and predicted head, novel heads in the order of their matching."""
    seen, counts = predictions.num_seen, predictions.confusion
    order = head_order(counts, seen)
    counts = counts[:, order]
    labels = [shorten(text) for text in names]
    matched = [
        text if own else NO_NUMBER for text, own in zip(labels, counts.diagonal(), strict=True)
    ]
    heads = labels[:seen] + [f"≈ {text}" for text in matched[seen:]]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="none")
        _name_axes(axes, labels, heads)
        for edge in (axes.axhline, axes.axvline):
            edge(seen - 0.5, color=INK, linewidth=1.4)
        if len(labels) <= READABLE:
            _write_counts(axes, counts, shares)
        axes.set(title=method, ylabel="true class", xlabel="predicted head")

    right = int(np.trace(counts))
    label = f"Confusion matrix of {method}: {right} of {counts.sum()} images on the diagonal."
    return svg(f"confusion-{name}", label, draw, SQUARE)


def _name_axes(axes: Axes, labels: Sequence[str], heads: Sequence[str]) -> None:
    step = 1 if len(labels) <= READABLE else -(-len(labels) // READABLE)
    places = range(0, len(labels), step)
    upright = max(len(text) for text in heads) > 4
    axes.set_yticks(places, labels[::step])
    axes.set_xticks(places, heads[::step], rotation=90 if upright else 0)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(True)


def _write_counts(axes: Axes, counts: NDArray[np.int64], shares: Floats) -> None:
    size = 8 if len(counts) <= 12 else 6
    for row, column in np.argwhere(counts):
        axes.text(
            column,
            row,
            str(counts[row, column]),
            ha="center",
            va="center",
            fontsize=size,
            color="white" if shares[row, column] > 0.55 else INK,
        )


def histogram(name: str, method: str, predictions: Predictions) -> Markup:
    """The OOD scores of seen and of novel images: the less they overlap, the better."""
    scores, is_seen = predictions.ood_scores, predictions.labels < predictions.num_seen
    inside, outside = scores[is_seen], scores[~is_seen]
    auc = auroc(inside, outside)
    title = f"{method} · AUC {auc:.3f}" if np.isfinite(auc) else f"{method} · no AUC"

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        bins = np.histogram_bin_edges(scores, 30)
        for values, label, color, opacity, hatch in (
            (inside, "known classes", OKABE_ITO[0], 0.35, ""),
            (outside, "strangers", OKABE_ITO[1], 0, "////"),
        ):
            axes.hist(
                values,
                bins=bins.tolist(),
                weights=np.full(len(values), 100 / max(len(values), 1)),
                histtype="stepfilled",
                facecolor=(color, opacity),
                edgecolor=color,
                linewidth=1.3,
                hatch=hatch,
                label=f"{label} ({len(values)})",
            )
        axes.set(title=title, xlabel="OOD score (higher: more foreign)", ylabel="percent of group")
        figure.legend(loc="outside lower center", ncols=2)

    label = f"Histograms of OOD scores of {title}. " + " ".join(
        f"Median of {kind}: {np.median(values):.3g}."
        for kind, values in (("known classes", inside), ("strangers", outside))
        if len(values)
    )
    return svg(f"scores-{name}", label, draw, PANEL)
