"""scikit-learn's digits: 1,797 real images of 8 x 8 pixels that come with a dependency."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from protofission.data.image_sets import ImageSet


def load_digits() -> ImageSet:
    """The handwritten digits, their 17 gray levels spread over 0 to 255."""
    raw = _parse()
    pixels = np.rint(raw.images * (255 / 16)).astype(np.uint8)[:, None]
    return ImageSet(pixels, raw.target.astype(np.int64), tuple(str(d) for d in raw.target_names))


@cache
def _parse() -> Any:
    """Parse the table of scikit-learn once: the runs of a suite share it."""
    from sklearn.datasets import load_digits as sklearn_digits

    return sklearn_digits()
