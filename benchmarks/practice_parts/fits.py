"""Our `fit`, and that of an older version, on the rows of a cell."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from practice_parts.cells import Scene
from practice_parts.measures import Judged, cluster_by_k_means, measure, measure_clusters
from protofission.triage.calibrated_model import ACCEPT, judge
from protofission.triage.divisions import cluster_strangers
from protofission.triage.fit_model import FitResult, fit_features
from protofission.triage.fit_options import FitOptions

OLD_LIMIT = 3600
"""Seconds after which a fit of an older version is given up."""


def fit_ours(scene: Scene) -> dict[str, Any]:
    """Fit as the command does with its defaults, and measure it at its own threshold too."""
    labeled, pool, test = (r.astype(np.float32) for r in (scene.labeled, scene.pool, scene.test))
    options = FitOptions()
    start = time.process_time()
    result = fit_features(labeled, scene.labels, lambda rows: pool[rows], len(pool), options)
    seconds = time.process_time() - start
    found = judge(result.calibrated_model, [torch.from_numpy(test)])
    judged = Judged(
        found.id_scores.double().numpy(),
        found.classes.numpy(),
        found.probs.double().numpy(),
        result.pool.id_scores.double().numpy(),
    )
    accepted = found.decisions.numpy() == ACCEPT
    promise = result.guarantee
    strangers = result.strangers
    return {
        **measure(scene, judged),
        **_at_own_threshold(scene, accepted, promise.expected, promise.at_least, promise.at_most),
        **_clusters_of(scene, result, labeled, pool, test, accepted, options),
        **_share_of(scene, strangers.share, strangers.low, strangers.high),
        "control": bool(result.guard.pool_hurts),
        "counted": None if result.novel is None else int(result.novel.number),
        "strange_classes": scene.strange,
        "seconds": seconds,
    }


def _at_own_threshold(
    scene: Scene, accepted: Any, expected: float, low: float, high: float
) -> dict[str, Any]:
    kept = float(accepted[scene.is_known].mean())
    return {
        "kept": kept,
        "rejected": float(1 - accepted[~scene.is_known].mean()),
        "expected": float(expected),
        "range": [float(low), float(high)],
        "in_range": bool(low <= kept <= high),
        "known_test": int(scene.is_known.sum()),
    }


def _share_of(scene: Scene, share: float, low: float, high: float) -> dict[str, Any]:
    true = float((scene.pool_truth >= scene.known).mean())
    found = {"true_share": true, "share_interval": [float(low), float(high)]}
    if not np.isnan(share):
        found |= {"estimated_share": float(share), "share_in_interval": bool(low <= true <= high)}
    return found


def _clusters_of(
    scene: Scene,
    result: FitResult,
    labeled: Any,
    pool: Any,
    test: Any,
    accepted: Any,
    options: FitOptions,
) -> dict[str, float]:
    """Clusters as `discover` gives them for the true number: its training is the same."""
    given = replace(options, discover=scene.strange)
    division = cluster_strangers(
        labeled, scene.labels, pool, result.pool, result.strangers, given
    ).centers
    number = division.sizes.counts[0]
    if not number:
        return {}
    with torch.no_grad():
        clusters = division(torch.from_numpy(test)).argmax(-1).numpy()
    return measure_clusters(scene, ~accepted, clusters, number)


def fit_old(scene: Scene, source: Path) -> dict[str, Any]:
    """Fit the older version whose source tree is given, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        arrays, verdicts = Path(folder) / "arrays.npz", Path(folder) / "verdicts.npz"
        rows = {name: getattr(scene, name).astype(np.float32) for name in ("labeled", "pool")}
        np.savez(arrays, **rows, test=scene.test.astype(np.float32), labels=scene.labels)
        subprocess.run(
            [sys.executable, Path(__file__).with_name("old_fit.py"), arrays, verdicts],
            env={**os.environ, "PYTHONPATH": str(source / "src"), "PYTHONSAFEPATH": "1"},
            check=True,
            timeout=OLD_LIMIT,
        )
        with np.load(verdicts) as file:
            found = dict(file)
    judged = Judged(*(found[n] for n in ("scores", "classes", "probs", "pool_scores")))
    return {
        **measure(scene, judged),
        **_at_own_threshold(scene, found["accepted"], found["expected"], found["at_least"], 1.0),
        **cluster_by_k_means(scene, judged),
        **_share_of(scene, *found["share"]),
        "control": bool(found["control"]),
        "seconds": float(found["seconds"]),
    }
