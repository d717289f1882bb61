"""Counts of novel classes and of parts where the truth is known, and their errors.

    python benchmarks/counting.py --stores FOLDER

1. Novel classes in scikit-learn's digits (pixels): 0 to 4 are known by 20 or 50 labels each, all
   other images of these and of 0, 1, 3 or 5 further digits are the pool.
2. The same in CIFAR-10 (5 known classes, 0, 1, 3, 5 novel ones) and in the coarse classes of
   CIFAR-100 (10 and 10), by the features of a frozen encoder: FOLDER/cifar10 and
   FOLDER/cifar100 are stores. Known classes have 100 labels each; 5,000 images are the pool, half
   of them of known classes. Which classes are known is drawn by the seed.
3. Parts of each coarse class of CIFAR-100, which has 5 fine ones, and of each digit, for which
   there is no truth.

Without stores, digits only. An error is the distance of the estimate from the truth, a mean over
seeds or classes; the last figure is the mean over all rows that have a truth.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from protofission.core.cluster_count import Count, count_novel, count_parts
from protofission.data.store.reader import Store

SEEDS = range(3)
POOL = 5000


class Scene(NamedTuple):
    labeled: NDArray[np.floating]
    labels: NDArray[np.int64]
    pool: NDArray[np.floating]


def some(
    labels: NDArray[np.int64], classes: Sequence[int], each: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Places of `each` rows of each class."""
    places = [random.permutation(np.flatnonzero(labels == name))[:each] for name in classes]
    return np.sort(np.concatenate([*places, np.empty(0, np.int64)]))


def digits_scene(each: int, novel: int, seed: int) -> Scene:
    features, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(seed)
    classes = [*range(5), *(5 + random.permutation(5)[:novel])]
    given = some(labels, classes[:5], each, random)
    rest = np.setdiff1d(np.flatnonzero(np.isin(labels, classes)), given)
    return Scene(features[given], labels[given], features[rest])


def store_scene(
    features: NDArray[np.float16], labels: NDArray[np.int64], known: int, novel: int, seed: int
) -> Scene:
    random = np.random.default_rng(100 + seed)
    order = random.permutation(labels.max() + 1).tolist()
    given = some(labels, order[:known], 100, random)
    free = labels.copy()
    free[given] = -1
    old = POOL // 2 if novel else POOL
    pool = np.concatenate(
        [
            some(free, order[:known], old // known, random),
            some(free, order[known : known + novel], (POOL - old) // max(novel, 1), random),
        ]
    )
    return Scene(features[given], labels[given], features[np.sort(pool)])


class Row(NamedTuple):
    setting: str
    truth: int | None
    counts: list[Count]

    @property
    def error(self) -> float | None:
        if self.truth is None:
            return None
        return float(np.mean([abs(count.number - self.truth) for count in self.counts]))

    def text(self) -> str:
        truth = "-" if self.truth is None else str(self.truth)
        error = "-" if self.error is None else f"{self.error:.2f}"
        stability = np.mean([count.stability for count in self.counts])
        numbers = " ".join(str(count.number) for count in self.counts)
        return f"{self.setting:34} {truth:>5} {error:>6} {stability:>10.2f}  {numbers}"


def novel_in_digits() -> Iterator[Row]:
    for each in (20, 50):
        for novel in (0, 1, 3, 5):
            counts = [count_novel(*digits_scene(each, novel, s), seed=s) for s in SEEDS]
            yield Row(f"digits, {each} labels: novel", novel, counts)


def parts_of_digits() -> Iterator[Row]:
    features, labels = load_digits(return_X_y=True)
    yield Row(
        "digits: parts of each", None, [count_parts(features[labels == d]) for d in range(10)]
    )


def in_stores(folder: Path) -> Iterator[Row]:
    store = Store.open(folder / "cifar10")
    features, labels = store.map_view("train", "plain")[:, 0], store.labeling().train
    for novel in (0, 1, 3, 5):
        counts = [count_novel(*store_scene(features, labels, 5, novel, s), seed=s) for s in SEEDS]
        yield Row("CIFAR-10: novel", novel, counts)
    store = Store.open(folder / "cifar100")
    features, labels = store.map_view("train", "plain")[:, 0], store.labeling().coarse().train
    counts = [count_novel(*store_scene(features, labels, 10, 10, s), seed=s) for s in SEEDS]
    yield Row("CIFAR-100 coarse: novel", 10, counts)
    counts = [count_parts(features[labels == name]) for name in range(labels.max() + 1)]
    yield Row("CIFAR-100 coarse: parts of each", 5, counts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts of novel classes and parts, with errors.")
    parser.add_argument("--stores", type=Path, help="a folder with the stores cifar10 and cifar100")
    stores: Path | None = parser.parse_args().stores
    begin, errors = time.process_time(), []
    print(f"{'setting':34} {'truth':>5} {'error':>6} {'stability':>10}  estimates")
    for rows in (novel_in_digits(), in_stores(stores) if stores else (), parts_of_digits()):
        for row in rows:
            print(row.text(), flush=True)
            if row.error is not None:
                errors.append(row.error)
    print(f"{time.process_time() - begin:.0f} s of processor time")
    print(f"mean absolute error {np.mean(errors):.2f}")


if __name__ == "__main__":
    main()
