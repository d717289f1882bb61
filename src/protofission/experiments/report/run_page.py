"""One self-contained HTML page of a set of results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from protofission import __version__
from protofission.core.errors import require
from protofission.data.datasets import Data
from protofission.experiments.report.quantities import GLOSSARY, RUN_COLUMNS
from protofission.experiments.report.results import Groups, Result, by_method, oracles
from protofission.experiments.report.run_figures import CURVES, confusion, curves, histogram
from protofission.experiments.report.run_tables import (
    disagreements,
    method_rows,
    spread_note,
)
from protofission.pages.contact_sheets import (
    images_per_strip,
    picture_row,
    png_uri,
    sheets,
    shown_heads,
)
from protofission.pages.template import render
from protofission.system.whole_files import write_text


def write_page(path: Path, results: Sequence[Result], data: Data, command: str) -> None:
    """Write the page of some results.

    Args:
        data: the images that all of them were judged by.
        command: what made them, as typed.
    """
    _check(results, data)
    groups = by_method(results)
    page = render(
        "page.html.jinja",
        data=data,
        command=command,
        columns=list(RUN_COLUMNS.values()),
        glossary=GLOSSARY,
        **_numbers(results),
        **_pictures(groups, data),
        **_origin(results, data),
    )
    write_text(path, page)


def _check(results: Sequence[Result], data: Data) -> None:
    require(bool(results), "There is no result to report: finish a run first.")
    for result in results:
        require(
            np.array_equal(result.predictions.labels, data.test.labels),
            f"{result.folder.path} was judged by other test images than the page's data: "
            "report runs of one split at a time.",
        )


def _numbers(results: Sequence[Result]) -> dict[str, Any]:
    table = method_rows(results)
    return {
        "rows": table,
        "several": any(row.n > 1 for row in table),
        "spread_note": spread_note(table),
        "sentences": disagreements(table) + oracles(results),
    }


def _pictures(groups: Groups, data: Data) -> dict[str, Any]:
    first = {method: group[0] for method, group in groups.items()}
    divided = {method: result for method, result in first.items() if result.prototypes > 1}
    strips = sum(r.prototypes * len(shown_heads(r.predictions)) for r in divided.values())
    fitting = images_per_strip(strips, *data.test.inputs.shape[-2:])
    frame = picture_row(np.full((1, 1, 12, 12), 200, np.uint8), np.array([True]), 1)
    return {
        "curves": [curves(groups, kind) for kind in CURVES],
        "confusions": [
            confusion(str(place), _title(result), result.predictions, data.class_names)
            for place, result in enumerate(first.values())
        ],
        "histograms": [
            histogram(str(place), _title(result), result.predictions)
            for place, result in enumerate(first.values())
        ],
        "sheets": {
            method: sheets(result.predictions, data.test.inputs.numpy(), data.class_names, fitting)
            for method, result in divided.items()
        },
        "prototypes": {method: result.prototypes for method, result in first.items()},
        "frame": png_uri(frame),
    }


def _title(result: Result) -> str:
    return f"{result.method}, seed {result.seed}"


def _origin(results: Sequence[Result], data: Data) -> dict[str, Any]:
    """Origin of the numbers: versions, splits, folders and seeds, each listed once."""
    environments = dict.fromkeys(
        ", ".join(f"{key} {value}" for key, value in result.folder.plain("environment").items())
        for result in results
    )
    return {
        "version": __version__,
        "environments": list(environments),
        "splits": list(dict.fromkeys(r.folder.plain("split")["sha256"] for r in results)),
        "dataset": results[0].folder.plain("experiment")["data"]["dataset"],
        "folders": [result.folder.path.name for result in results],
        "seeds": sorted({result.seed for result in results}),
        "pool_is_test": np.array_equal(data.split.test, data.split.unlabeled),
    }
