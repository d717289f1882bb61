"""The files of a fit: its bundle, the tables of its triage and the page."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from protofission.core.cluster_numbers import ClusterNumber
from protofission.core.errors import InputError
from protofission.models.encoders import EncoderSpec
from protofission.system.console import print_line
from protofission.triage.bundle import Bundle
from protofission.triage.calibrated_model import subclass_use
from protofission.triage.fit_data import FitData
from protofission.triage.fit_model import FitResult
from protofission.triage.fit_options import FitOptions
from protofission.triage.kept_images import IMAGES_FORMAT, KeptImages, groups_of_rows
from protofission.triage.label_verdicts import judge_labels
from protofission.triage.page import write_triage_page
from protofission.triage.prediction_table import Names, Row, rows_of
from protofission.triage.triage_of_fit import (
    duplicate_groups,
    subclass_sentences,
    triage_data_of,
)
from protofission.triage.triage_tables import write_label_table, write_triage_tables

PAGE = "triage.html"
LABEL_TABLE = "labels.csv"


def bundle_of_fit(
    fitted: FitResult,
    data: FitData,
    spec: EncoderSpec,
    facts: dict[str, Any],
    options: FitOptions,
    *,
    subclass_names: Sequence[Sequence[str]] | None = None,
    cluster_names: Sequence[str] | None = None,
) -> Bundle:
    """Make the bundle of a fit, with its card; sub-classes and clusters are numbered by default."""
    names = data.images.class_names
    labeled = np.bincount(data.labels, minlength=len(names)).tolist()
    promised, strangers = fitted.guarantee, fitted.strangers
    card = {
        "data": {
            "labeled": dict(zip(names, labeled, strict=True)),
            "pool": len(data.pool_paths),
            "labels that set the threshold": fitted.guarantee.images,
            "folds": len(fitted.calibrated_model.sizes),
            "findings": list(data.findings),
        },
        "training": {
            "method": fitted.method,
            "options": {key.replace("_", " "): value for key, value in asdict(options).items()},
            "choice": fitted.guard.sentence(),
        },
        "calibration": {
            "keep": promised.keep,
            "guarantee": fitted.promise(),
            "accuracy on held-out images": fitted.accuracy,
            "expected calibration error before": fitted.calibration_errors[0],
            "expected calibration error after": fitted.calibration_errors[1],
        },
        "pool": {
            "strangers": strangers.sentence(),
            "sub-classes": subclass_sentences(
                subclass_use(fitted.calibrated_model, fitted.pool).numpy(), names
            ),
        },
        "estimates": {
            "clusters of rejected images": _count_card(fitted.novel),
            "sub-classes": {
                name: _count_card(part) for name, part in zip(names, fitted.parts, strict=False)
            },
        },
    }
    return Bundle.of(
        fitted.calibrated_model,
        names,
        spec,
        facts,
        fitted.calibration_scores,
        _without_infinite(card),
        subclass_names=subclass_names,
        cluster_names=cluster_names,
    )


def _count_card(count: ClusterNumber | None) -> dict[str, Any] | None:
    return None if count is None else {"number": count.number, "from": count.low, "to": count.high}


def _without_infinite(value: Any) -> Any:
    """Replace NaN and infinity by None, which JSON can hold."""
    if isinstance(value, dict):
        return {key: _without_infinite(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def kept_images_of(
    bundle: Bundle, fitted: FitResult, data: FitData, options: FitOptions
) -> KeptImages:
    """List the images of a fit, with what it found out about them, for the workbench."""
    labels = judge_labels(data.labels, fitted.held_probs, fitted.folds)
    groups = duplicate_groups(fitted.duplicates, data.images.pixel_digests())
    first, second = map(str, data.folders)
    return KeptImages(
        IMAGES_FORMAT,
        (first, second),
        class_names=bundle.class_names,
        subclass_names=bundle.subclass_names,
        cluster_names=bundle.cluster_names,
        paths=tuple(data.images.paths),
        folder_of=tuple(data.folder_of.tolist()),
        labels=tuple(data.labels.tolist()),
        folds=tuple(fitted.folds.tolist()),
        likeliest=tuple(labels.likeliest.tolist()),
        probability=tuple(labels.probability.tolist()),
        likeliest_probability=tuple(labels.likeliest_probability.tolist()),
        doubtful=tuple(np.flatnonzero(labels.doubtful).tolist()),
        repeated=tuple((np.flatnonzero(data.repeated) + data.num_labeled).tolist()),
        duplicates=groups_of_rows(groups),
        unreadable=data.unreadable,
        findings=data.findings,
        options=options,
    )


def write_fit_files(
    bundle: Bundle,
    fitted: FitResult,
    data: FitData,
    folder: Path,
    out: Path,
    console: Console,
    command: str,
    kept: KeptImages | None = None,
) -> None:
    """Write the files of a model into a folder that will be moved to `out`."""
    shutil.rmtree(folder, ignore_errors=True)
    bundle.save(folder)
    if kept is not None:
        kept.write(folder)
    names = Names(bundle.class_names, bundle.subclass_names, bundle.cluster_names)
    triage = triage_data_of(fitted, data, names)
    rows = rows_of(data.pool_paths, fitted.pool, names)
    unreadable = [Row(path, error=reason) for path, reason in data.unreadable.items()]
    write_label_table(folder / LABEL_TABLE, triage)
    try:
        write_triage_tables(folder, triage, rows, unreadable)
    except InputError as missing:
        print_line(console, f"No triage.parquet: {missing}")
    write_triage_page(folder / PAGE, triage, command, out)
