"""scikit-learn's digits: 1,797 real images of 8 x 8 pixels that come with a dependency."""

from __future__ import annotations

import numpy as np

from protofission.data.image_sets import ImageSet


def load_digits() -> ImageSet:
    """The handwritten digits, their 17 gray levels spread over 0 to 255."""
    from sklearn.datasets import load_digits as sklearn_digits

    raw = sklearn_digits()
    pixels = np.rint(raw.images * (255 / 16)).astype(np.uint8)[:, None]
    return ImageSet(pixels, raw.target.astype(np.int64), tuple(str(d) for d in raw.target_names))
