"""A triage of a few made-up images, with files on the disk and names of the nastiest kind."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from protofission.core.records import NO_CLASS
from protofission.triage.calibrated_model import ACCEPT, REJECT
from protofission.triage.label_verdicts import judge_labels
from protofission.triage.triage_data import NO_GROUP, PoolVerdicts, TriageData

ODD_NAMES = (
    "plain.png",
    "sub folder/a b.png",
    "\"quotes' & <script>alert(1)<\\script>.png",
    "two\nlines.png",
    os.fsdecode(b"no-utf-8 \xff.png"),
    "100%25?query#part;.png",
    "javascript:alert(1).png",
    "名 \u202e.png",
    "=1+1.png",
)
MARKUP = "</script><b>&\"'"


def small_triage(folder: Path, pool: int = 60, side: int = 8, **changes: Any) -> TriageData:
    """Six labeled images of two classes, and a pool of which every third is rejected.

    Rejected images are in three clusters by turns, or in none; the first images of the pool have
    ODD_NAMES. Files are written if `folder` is there. An image's pixels are all its number.
    """
    pool_names = [*ODD_NAMES, *(f"{i}.png" for i in range(pool))][:pool]
    paths = [f"{'ab'[i % 2]}/{i}.png" for i in range(6)] + pool_names
    pixels = np.zeros((6 + pool, 3, side, side), np.uint8)
    pixels += np.arange(6 + pool)[:, None, None, None].astype(np.uint8)
    place = np.arange(pool)
    refused = place % 3 == 2
    scores = np.where(refused, 0.04 * (place + 1) / pool, 0.05 + 0.95 * place / pool)
    probs = np.full((6, 2), 0.1)
    probs[np.arange(6), np.arange(6) % 2] = 0.9
    probs[3] = (0.95, 0.05)
    groups = np.full(6 + pool, NO_GROUP)
    if pool > 2:
        groups[[1, 7]] = 40
        groups[[0, 3, 8]] = 70
    data = TriageData(
        pixels=pixels,
        paths=paths,
        folders=(folder / "labeled", folder / "pool"),
        folder_of=np.repeat([0, 1], [6, pool]),
        labels=judge_labels(np.arange(6) % 2, probs, np.array([0, 1, 0, 1, 0, 1])),
        pool=PoolVerdicts(
            classes=place % 2,
            probability=np.full(pool, 0.75),
            subclasses=place // 2 % 2,
            id_scores=scores,
            decisions=np.where(refused, REJECT, ACCEPT),
            clusters=np.where(refused, place // 3 % 4 - 1, NO_CLASS),
            typicality=place.astype(float),
        ),
        duplicate_groups=groups,
        class_names=(f"a {MARKUP}", "b"),
        subclass_names=(("a / 1", "a / 2"), ("b / 1", "b / 2")),
        cluster_names=("novel 1", "novel 2", "novel 3"),
        known_scores=np.linspace(0.01, 1, 40),
        threshold=0.05,
        guarantee=f"Accepted with a probability of 95 %. {MARKUP}",
        facts=(("Strangers", f"A third. {MARKUP}"),),
        findings=(f"A finding. {MARKUP}",),
        kinds=("a: 2 kinds.",),
    )
    if folder.is_dir():
        for number in range(6 + pool):
            data.file(number).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.moveaxis(pixels[number], 0, -1)).save(data.file(number))
    return replace(data, **changes)
