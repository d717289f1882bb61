"""Small stores of made-up features, for tests."""

from pathlib import Path

import numpy as np

from protofission.data.store.from_arrays import store_features
from protofission.data.store.reader import Store

CLASSES, WIDTH = 6, 12
COUNTS = {"plain": 1, "weak": 3, "strong": 2, "simclr": 2}


def features(rows: int, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Blobs, one a class; every version of every view is a number of its own."""
    draw = np.random.default_rng(seed)
    labels = np.arange(rows) % CLASSES
    centres = 3 * np.random.default_rng(1).standard_normal((CLASSES, 1, WIDTH))
    views = {
        view: (centres[labels] + draw.standard_normal((rows, count, WIDTH))).astype(np.float16)
        for view, count in COUNTS.items()
    }
    return views, labels


def made(folder: Path, rows: int = 240, test: int = 60) -> Store:
    """A store with official test images."""
    views, labels = features(rows)
    judged, truth = features(test, seed=2)
    names = [f"class {number}" for number in range(CLASSES)]
    return store_features(
        folder, views, labels, names, test=judged["plain"], test_labels=truth, name="blobs"
    )
