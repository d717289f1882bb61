"""How often the interval of the share of strangers, and the range of a threshold, hold.

    python benchmarks/shares.py [--draws 10] [--stages shares,thresholds,stores] [FEATURES.npz ...]

1. Shares in simulations: normal scores of known images and strangers that are 1, 2 or 3.3
   deviations apart (AUC 0.76, 0.92, 0.99), or of three such kinds at once.
2. Thresholds in simulations: 5 Gaussian classes and as many unknown ones in 20 dimensions, a score
   trained in 5 folds; the threshold of `fit`, which counts how far models agree, beside plain CV+,
   CV (the mean score against the quantile of held-out scores) and a split that holds out three
   labels in ten.
3. Both on stored features: arrays `features` (N, D) and `labels` (N,). Half of the classes, at most
   20, are known by 20 labels each; a third of the other images is new, the rest makes pools of up
   to 2,000 images with 10 to 90 % strangers.

The score is relative Mahalanobis distance with pool and labels as background, on unit vectors in
64 principal components: what a fold must not see is the labels, and their images are background
like the pool, so that held-out labels and known images of the pool are alike.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from protofission.core.conformal import guarantee
from protofission.core.cross_conformal import cross_guarantee, fold_scores, model_agreement
from protofission.core.metrics import auroc
from protofission.core.ood_share import ShareEstimate, ood_share

Floats = NDArray[np.floating]
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
FOLDS = 5
KEEP = 0.95


class Scene(NamedTuple):
    labeled: Floats
    labels: NDArray[np.int64]
    pool: Floats
    strange: NDArray[np.bool_]
    new_known: Floats
    new_strange: Floats


class Scored(NamedTuple):
    labels: Floats
    folds: NDArray[np.int64]
    pool: Floats
    new_known: Floats
    new_strange: Floats


def whitening(centered: Floats, degrees: int, shrinkage: float) -> Floats:
    """A matrix W with W W^T the inverse of a covariance, shrunk toward the identity's multiple."""
    covariance = centered.T @ centered / degrees
    width = len(covariance)
    level = np.trace(covariance) / width
    mixed = (1 - shrinkage) * covariance + shrinkage * level * np.eye(width)
    result: Floats = np.linalg.cholesky(np.linalg.inv(mixed))
    return result


class RelativeMahalanobis:
    """Distance from the background's mean less that from the nearest class mean."""

    def __init__(self, rows: Floats, labels: NDArray[np.int64], background: Floats) -> None:
        names, places = np.unique(labels, return_inverse=True)
        means = np.stack([rows[labels == name].mean(0) for name in names])
        self.within = whitening(rows - means[places], max(len(rows) - len(names), 1), 0.3)
        self.means = means @ self.within
        self.mean = background.mean(0)
        self.total = whitening(background - self.mean, len(background), 0.1)

    def score(self, rows: Floats) -> Floats:
        white = rows @ self.within
        squares = (self.means**2).sum(1) - 2 * white @ self.means.T
        nearest = (white**2).sum(1) + squares.min(1)
        result: Floats = (((rows - self.mean) @ self.total) ** 2).sum(1) - nearest
        return result


def deal_folds(labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Folds of equal shares of each class."""
    order = random.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), np.int64)
    folds[order] = np.arange(len(labels)) % FOLDS
    return folds


def score_folds(scene: Scene, random: np.random.Generator) -> Scored:
    folds = deal_folds(scene.labels, random)
    background = np.concatenate([scene.pool, scene.labeled])
    own = np.empty(len(folds))
    others: list[list[Floats]] = [[], [], []]
    for fold in range(FOLDS):
        seen = folds != fold
        model = RelativeMahalanobis(scene.labeled[seen], scene.labels[seen], background)
        own[~seen] = model.score(scene.labeled[~seen])
        for columns, rows in zip(
            others, (scene.pool, scene.new_known, scene.new_strange), strict=True
        ):
            columns.append(model.score(rows))
    return Scored(own, folds, *(np.stack(columns, 1) for columns in others))


def judge_share(found: ShareEstimate, true: float) -> list[float]:
    held = found.low <= true <= found.high
    return [held, abs(found.share - true), found.high - found.low, found.at_least <= true]


def judge_thresholds(
    scene: Scene, scored: Scored, random: np.random.Generator
) -> dict[str, list[float]]:
    """For each rule: known kept, below the range, above it, strangers rejected, AUC."""
    ranking = fold_scores(scored.labels, scored.folds, scored.pool)
    agreement = model_agreement(ranking, scored.pool)
    id_scores = ranking.id_scores(scored.new_known), ranking.id_scores(scored.new_strange)
    own = (scored.labels - ranking.centers[scored.folds]) / ranking.scales[scored.folds]
    means = [
        ((rows - ranking.centers) / ranking.scales).mean(1)
        for rows in (scored.new_known, scored.new_strange)
    ]
    held = random.permutation(len(scene.labels)) < 0.3 * len(scene.labels)
    background = np.concatenate([scene.pool, scene.labeled])
    model = RelativeMahalanobis(scene.labeled[~held], scene.labels[~held], background)
    split = guarantee(model.score(scene.labeled[held]), KEEP)
    rules = {
        "fit": (*id_scores, cross_guarantee(scored.folds, KEEP, agreement=agreement)),
        "CV+": (*id_scores, cross_guarantee(scored.folds, KEEP)),
        "CV": (*means, guarantee(own, KEEP)),
        "split": (model.score(scene.new_known), model.score(scene.new_strange), split),
    }
    rows = {}
    for name, (known, strange, rule) in rules.items():
        kept = float((known >= rule.threshold).mean())
        outside = [kept < rule.at_least - 1e-9, kept > rule.at_most + 1e-9]
        rejected = float((strange < rule.threshold).mean())
        rows[name] = [kept, *outside, rejected, auroc(-known, -strange)]
    return rows


def simulate_shares(draws: int) -> None:
    print("\n## Shares of strangers, normal scores: held in %, mean error, mean length\n")
    print("| apart | labels | pool |", " | ".join(f"{share:.0%}" for share in SHARES), "|")
    print("|---" * (3 + len(SHARES)) + "|")
    kinds = {"1": [1.0], "2": [2.0], "3.3": [3.3], "1, 2, 3": [1.0, 2.0, 3.0]}
    every: list[list[list[float]]] = [[] for _ in SHARES]
    for name, gaps in kinds.items():
        for n, m in ((20, 200), (20, 2000), (100, 200), (100, 2000), (1000, 2000), (1000, 5000)):
            cells = []
            for place, share in enumerate(SHARES):
                rows = []
                for seed in range(draws):
                    random = np.random.default_rng([seed, n, m, place])
                    strange = random.random(m) < share
                    pool = random.normal(size=m) - random.choice(gaps, m) * strange
                    found = ood_share(random.normal(size=n), pool)
                    rows.append(judge_share(found, float(strange.mean())))
                every[place] += rows
                cells.append(rows)
            print(f"| {name} | {n} | {m} |", " | ".join(map(cell_text, cells)), "|", flush=True)
    print("| all | | |", " | ".join(map(cell_text, every)), "|")


def cell_text(rows: list[list[float]]) -> str:
    held, error, length, floor = np.mean(rows, axis=0)
    above = "" if floor > 0.95 else f", bound {100 * floor:.0f}"
    return f"{100 * held:.0f} %, {error:.2f}, {length:.2f}{above}"


def gaussian_scene(n: int, random: np.random.Generator) -> Scene:
    centers = random.normal(size=(10, 20)) * 0.7
    labels = np.arange(n) % 5
    strange = np.arange(1000) < 500

    def rows_of(classes: NDArray[np.int64]) -> Floats:
        rows: Floats = centers[classes] + random.normal(size=(len(classes), 20))
        return rows

    return Scene(
        rows_of(labels),
        labels,
        rows_of(random.integers(0, 5, 1000) + 5 * strange),
        strange,
        rows_of(random.integers(0, 5, 1000)),
        rows_of(random.integers(5, 10, 1000)),
    )


THRESHOLD_HEADER = """
| | labels | rule | known kept (95 %) | below range | above range | strangers rejected | AUC |
|---|---|---|---|---|---|---|---|"""


def print_thresholds(name: str, n: int, rows: list[dict[str, list[float]]]) -> None:
    for rule in rows[0]:
        kept, below, above, rejected, auc = np.mean([row[rule] for row in rows], axis=0)
        print(
            f"| {name} | {n} | {rule} | {100 * kept:.1f} % | {100 * below:.0f} % | "
            f"{100 * above:.0f} % | {100 * rejected:.0f} % | {auc:.3f} |",
            flush=True,
        )


def simulate_thresholds(draws: int) -> None:
    print("\n## Thresholds, Gaussian classes\n" + THRESHOLD_HEADER)
    for n in (20, 40, 100, 250, 1000):
        rows = []
        for seed in range(draws):
            random = np.random.default_rng([seed, n])
            scene = gaussian_scene(n, random)
            rows.append(judge_thresholds(scene, score_folds(scene, random), random))
        print_thresholds("Gaussian", n, rows)


def project(features: Floats, width: int = 64) -> Floats:
    """Standardized features, made unit length, in the first principal components."""
    rows = (features - features.mean(0)) / (features.std(0) + 1e-6)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows -= rows.mean(0)
    result: Floats = (rows @ np.linalg.eigh(rows.T @ rows)[1][:, -width:]).astype(float)
    return result


def stored_scenes(
    rows: Floats, labels: NDArray[np.int64], random: np.random.Generator
) -> Iterator[Scene]:
    """Pools of every share of strangers, with the same labels and new images."""
    names = random.permutation(np.unique(labels))
    known = names[: min(20, len(names) // 2)]
    order = random.permutation(len(labels))
    given = np.concatenate([order[labels[order] == name][:20] for name in known])
    others = np.setdiff1d(order, given)[random.permutation(len(labels) - len(given))]
    is_known = np.isin(labels[others], known)
    ours, strangers = others[is_known], others[~is_known]
    new, new_strange = ours[: len(ours) // 3], strangers[: len(strangers) // 3]
    ours, strangers = ours[len(new) :], strangers[len(new_strange) :]
    for share in SHARES:
        total = min(2000, len(ours) / (1 - share), len(strangers) / share)
        far, near = round(share * total), int((1 - share) * total)
        pool = np.concatenate([ours[:near], strangers[:far]])
        strange = np.repeat([False, True], [near, far])
        yield Scene(
            rows[given], labels[given], rows[pool], strange, rows[new], rows[new_strange][:2000]
        )


def judge_stores(paths: list[Path], draws: int) -> None:
    thresholds: dict[str, tuple[int, list[dict[str, list[float]]]]] = {}
    print("\n## Shares of strangers, stored features: held in %, mean error, mean length\n")
    print("| features | labels | AUC |", " | ".join(f"{share:.0%}" for share in SHARES), "|")
    print("|---" * (3 + len(SHARES)) + "|")
    every: list[list[list[float]]] = [[] for _ in SHARES]
    for path in paths:
        stored = np.load(path)
        rows, labels = project(stored["features"]), stored["labels"]
        cells: list[list[list[float]]] = [[] for _ in SHARES]
        judged: list[dict[str, list[float]]] = []
        for seed in range(draws):
            random = np.random.default_rng([seed, 7])
            for place, scene in enumerate(stored_scenes(rows, labels, random)):
                scored = score_folds(scene, random)
                found = ood_share(scored.labels, scored.pool, scored.folds)
                cells[place].append(judge_share(found, float(scene.strange.mean())))
                if SHARES[place] == 0.5:
                    judged.append(judge_thresholds(scene, scored, random))
        auc = np.mean([row["CV+"][4] for row in judged])
        n = len(scene.labels)
        thresholds[path.stem] = (n, judged)
        print(f"| {path.stem} | {n} | {auc:.2f} |", " | ".join(map(cell_text, cells)), "|")
        for place, found_rows in enumerate(cells):
            every[place] += found_rows
    print("| all | | |", " | ".join(map(cell_text, every)), "|", flush=True)
    print("\n## Thresholds, stored features, half of the pool strangers\n" + THRESHOLD_HEADER)
    for name, (n, judged) in thresholds.items():
        print_thresholds(name, n, judged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", nargs="*", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--stages", default="shares,thresholds,stores")
    given = parser.parse_args()
    stages = given.stages.split(",")
    if "shares" in stages:
        simulate_shares(given.draws)
    if "thresholds" in stages:
        simulate_thresholds(10 * given.draws)
    if "stores" in stages and given.features:
        judge_stores(given.features, given.draws)


if __name__ == "__main__":
    main()
