"""The qualities of packaged encoders, and the size at which an encoder sees images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from protofission.models.encoders.efficientnet import STRIDE

Quality = Literal["fast", "good", "best"]


@dataclass(frozen=True)
class QualityEntry:
    """An encoder, and the largest size at which it sees images."""

    encoder: str
    largest: int


QUALITIES: dict[Quality, QualityEntry] = {
    "fast": QualityEntry("efficientnet-lite0", 128),
    "good": QualityEntry("efficientnet-lite2", 224),
    "best": QualityEntry("efficientnet-lite2", 256),
}
"""The packaged encoder of each quality. Their costs: benchmarks/encoders.py."""
DEFAULT_QUALITY: Quality = "good"
SMALLEST = 96
"""The least size at which an encoder sees images, be they ever so small."""
MAGNIFICATION = 5
"""Pixels that an encoder sees for one of the image: small images gain from some enlargement."""


def size_for(short_side: float, largest: int) -> int:
    """The size at which an encoder sees images of a short side: MAGNIFICATION times as large.

    It is a multiple of STRIDE, from SMALLEST to `largest`.
    """
    steps = math.floor(MAGNIFICATION * short_side / STRIDE + 0.5)
    return min(max(steps * STRIDE, SMALLEST), largest)
