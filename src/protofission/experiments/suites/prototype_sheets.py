"""Contact sheets of the images nearest to each prototype, for the page of a suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from protofission.core.errors import InputError
from protofission.data.datasets import Data
from protofission.experiments.suite import Run, Suite
from protofission.pages.contact_sheets import images_per_strip, sheets, shown_heads
from protofission.pages.template import render


def prototype_sheets(suite: Suite, runs: Sequence[Run]) -> list[Markup]:
    """A `<figure>` for the first finished run of each pictured row and panel."""
    firsts: dict[tuple[str, str], Run] = {}
    for run in runs:
        if run.folder.finished and run.case.row in suite.pictured:
            firsts.setdefault((run.case.row, run.case.panel), run)
    return [picture for run in firsts.values() if (picture := _figure(run))]


def _figure(run: Run) -> Markup | None:
    """The sheets of a run; none without its images, or with one prototype a class."""
    try:
        predictions = run.folder.predictions()
    except InputError:
        return None  # the report says of its numbers what is wrong
    slots = predictions.prototypes.shape[1]
    data = _images(run)
    if slots == 1 or data is None or not np.array_equal(data.test.labels, predictions.labels):
        return None
    strips = slots * len(shown_heads(predictions))
    fitting = images_per_strip(strips, *data.test.inputs.shape[-2:])
    title = f"{run.case.row} on {run.case.panel}, seed {run.seed}"
    body = render(
        "sheets.html.jinja",
        heads=sheets(predictions, data.test.inputs.numpy(), data.class_names, fitting),
    )
    return Markup("<figure><h3>{}</h3>{}</figure>").format(title, Markup(body))


def _images(run: Run) -> Data | None:
    """The images of a run, also of one on features; none if they are not at hand."""
    spec = run.case.experiment(run.seed).data
    if spec.dataset is None:
        return None
    try:
        return replace(spec, store=None).load()
    except InputError:
        return None
