"""A model folder as a fit leaves it for the workbench, of made-up images and features, in no time.

Known classes and strangers are blobs of features; the pictures are of one color each.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from protofission.data.store.from_arrays import store_features
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.triage.bundle import Bundle
from protofission.triage.fit_model import FitResult, fit_features
from protofission.triage.fit_options import FitOptions
from protofission.triage.kept_images import (
    FEATURES_FOLDER,
    IMAGES_FORMAT,
    KeptImages,
    groups_of_rows,
)
from protofission.triage.label_verdicts import judge_labels
from protofission.triage.triage_of_fit import duplicate_groups

WIDTH = 12
NAMES = ("ash", "birch", "cedar")
KINDS = 5
"""Blobs: three known classes and two kinds of strangers."""


def small_features(
    labels: int = 20, pool: int = 80, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(L + U, WIDTH) features and the kind of each: L of the known classes, then all by turns."""
    kinds = np.concatenate([np.arange(3 * labels) % 3, np.arange(pool) % KINDS])
    centers = 4 * np.random.default_rng(7).standard_normal((KINDS, WIDTH))
    noise = np.random.default_rng(seed).standard_normal((len(kinds), WIDTH))
    return (centers[kinds] + noise).astype(np.float32), kinds


@functools.cache
def _fitted(labels: int, pool: int, steps: int) -> FitResult:
    features, kinds = small_features(labels, pool)
    rows = features.astype(np.float16).astype(np.float32)
    known = 3 * labels
    return fit_features(
        rows[:known],
        kinds[:known],
        lambda numbers: rows[numbers + known],
        pool,
        FitOptions(steps=steps, folds=2, prototypes=3),
    )


@functools.cache
def _template(labels: int, pool: int, steps: int) -> Path:
    root = Path(tempfile.mkdtemp(prefix="small-workbench-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    fitted, (features, kinds) = _fitted(labels, pool, steps), small_features(labels, pool)
    known, total = 3 * labels, len(kinds)
    paths = [f"{NAMES[kinds[i]]}/{i}.png" for i in range(known)]
    paths += [f"{i}-{kinds[i]}.png" for i in range(known, total)]
    for row, path in enumerate(paths):
        file = root / ("labeled" if row < known else "pool") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        color = (40 + 40 * int(kinds[row]), row % 256, row // 256)
        Image.new("RGB", (16, 16), color).save(file)
    model = root / "model"
    plain = {"plain": features.astype(np.float16)}
    truth = np.where(np.arange(total) < known, kinds, -1)
    store = store_features(root / "store", plain, truth, NAMES)
    facts = {
        "fingerprint": store.plan.encoder["fingerprint"],
        "num_features": WIDTH,
        "size": 16,
    }
    bundle = Bundle.of(
        fitted.calibrated_model,
        NAMES,
        OwnBackbone("simclr-cifar10"),
        facts,
        fitted.calibration_scores,
        {"calibration": {"keep": 0.95, "guarantee": fitted.promise()}},
    )
    bundle.save(model)
    (root / "store").replace(model / FEATURES_FOLDER)
    verdicts = judge_labels(kinds[:known], fitted.held_probs, fitted.folds)
    groups = duplicate_groups(fitted.duplicates, [str(row) for row in range(total)])
    KeptImages(
        IMAGES_FORMAT,
        ("LABELED", "POOL"),
        class_names=bundle.class_names,
        subclass_names=bundle.subclass_names,
        cluster_names=bundle.cluster_names,
        paths=tuple(paths),
        folder_of=(0,) * known + (1,) * pool,
        labels=tuple(kinds[:known].tolist()),
        folds=tuple(fitted.folds.tolist()),
        likeliest=tuple(verdicts.likeliest.tolist()),
        probability=tuple(verdicts.probability.tolist()),
        likeliest_probability=tuple(verdicts.likeliest_probability.tolist()),
        doubtful=tuple(np.flatnonzero(verdicts.doubtful).tolist()),
        repeated=(),
        duplicates=groups_of_rows(groups),
        unreadable={"cut.png": "it is cut short"},
        findings=("A finding.",),
        options=FitOptions(steps=steps, folds=2, prototypes=3),
    ).write(model)
    return root


def small_model(folder: Path, labels: int = 20, pool: int = 80, steps: int = 5) -> Path:
    """Write labeled/, pool/ and model/ into a folder, and return the last.

    Three classes with so many labels each; the pool has them and two kinds of strangers by turns.
    """
    template = _template(labels, pool, steps)
    shutil.copytree(template, folder, dirs_exist_ok=True)
    model = folder.absolute() / "model"
    text = (model / "images.json").read_text()
    for name in ("labeled", "pool"):
        text = text.replace(f'"{name.upper()}"', f'"{folder.absolute() / name}"', 1)
    (model / "images.json").write_text(text)
    return model
