"""Whether a refit keeps its promise when labels are chosen, against one that calibrates on them.

    python benchmarks/refit_promise.py cifar10=FILE.npz objects=FILE.npz --draws 3

In each cell a model is fitted; then labels of known images of the pool are chosen, by one of

- easy: those with the highest ID scores, as somebody does who labels what is plain,
- unsure: those nearest to the threshold, as `next` does among other things,
- near: the nearest neighbors of the labels with the lowest scores, with an eye to what calibrates;

and it is fitted again, by labels of which the chosen only train (ours), and by labels that all
calibrate (naive). Shown is the share of known test images that is kept; the promise is in front.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from practice_parts.cells import Cell, Ints, Scene, draw_scene
from practice_parts.features import read_features

from protofission.core.unit_maps import unit_rows
from protofission.triage.calibrated_model import ACCEPT, judge
from protofission.triage.fit_model import FitResult, fit_features
from protofission.triage.fit_options import FitOptions

POLICIES = ("easy", "unsure", "near")


def choose(policy: str, fitted: FitResult, scene: Scene, count: int) -> Ints:
    """So many known images of the pool."""
    known = np.flatnonzero(scene.pool_truth < scene.known)
    scores = fitted.pool.id_scores.double().numpy()[known]
    if policy == "easy":
        return known[np.argsort(-scores, kind="stable")[:count]]
    if policy == "unsure":
        gap = np.abs(scores - float(fitted.calibrated_model.threshold))
        return known[np.argsort(gap, kind="stable")[:count]]
    worst = np.argsort(fitted.calibration_scores, kind="stable")[: max(1, count // 5)]
    judged = np.flatnonzero(fitted.folds >= 0)[worst]
    cosines = (
        unit_rows(scene.labeled[judged].astype(float))
        @ unit_rows(scene.pool[known].astype(float)).T
    )
    order = np.argsort(-cosines, axis=1).T.reshape(-1)
    return known[list(dict.fromkeys(order.tolist()))[:count]]


def kept_shares(scene: Scene, count: int, options: FitOptions) -> dict[str, float]:
    """The share of known test images that each fit keeps."""
    labeled, pool = scene.labeled.astype(np.float32), scene.pool.astype(np.float32)

    def fit(rows: Ints, calibrate: bool) -> FitResult:
        left = np.setdiff1d(np.arange(len(pool)), rows)
        labels = np.concatenate([scene.labels, scene.pool_truth[rows]])
        calibrates = np.arange(len(labels)) < (len(labels) if calibrate else len(labeled))
        return fit_features(
            np.concatenate([labeled, pool[rows]]),
            labels,
            lambda numbers: pool[left[numbers]],
            len(left),
            options,
            calibrates=calibrates,
        )

    def kept(fitted: FitResult) -> float:
        known = torch.from_numpy(scene.test[scene.is_known].astype(np.float32))
        found = judge(fitted.calibrated_model, [known])
        return float((found.decisions == ACCEPT).double().mean())

    first = fit(np.zeros(0, np.int64), calibrate=True)
    found = {"promised": first.guarantee.expected, "at least": first.guarantee.at_least}
    found["before"] = kept(first)
    for policy in POLICIES:
        rows = choose(policy, first, scene, count)
        found[f"{policy}, ours"] = kept(fit(rows, calibrate=False))
        found[f"{policy}, naive"] = kept(fit(rows, calibrate=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", help="NAME=FILE.npz of features and labels")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--labels", type=int, default=10, help="labels of each class")
    parser.add_argument("--chosen", type=int, default=100)
    parser.add_argument("--keep", type=float, default=0.9)
    parser.add_argument("--steps", type=int, default=FitOptions.steps)
    given = parser.parse_args()
    rows = []
    for argument in given.sets:
        name, _, place = argument.partition("=")
        features, labels = read_features(Path(place))
        for draw in range(given.draws):
            scene = draw_scene(Cell(name, draw, given.labels, 0.5), features, labels)
            options = FitOptions(keep=given.keep, steps=given.steps, seed=draw)
            found = kept_shares(scene, given.chosen, options)
            rows.append(found)
            told = ", ".join(f"{key} {value:.3f}" for key, value in found.items())
            print(f"{name} {draw}: {told}", flush=True)
    for key in rows[0]:
        values = np.array([row[key] for row in rows])
        print(f"{key:16} {values.mean():.3f} ± {values.std():.3f} (least {values.min():.3f})")


if __name__ == "__main__":
    main()
