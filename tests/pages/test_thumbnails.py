"""Thumbnails keep their limits, small images their pixels, and links any name."""

from __future__ import annotations

import base64
import os
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from protofission.pages.thumbnails import LARGEST_SIDE, fair_limit, file_link, thumbnail_uri


def pixels_of(uri: str) -> np.ndarray:  # type: ignore[type-arg]
    content = base64.b64decode(uri.split(",")[1])
    return np.asarray(Image.open(BytesIO(content)).convert("RGB"))


def test_small_images_keep_their_pixels_and_large_ones_their_shape() -> None:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (1, 8, 12), np.uint8)
    assert (pixels_of(thumbnail_uri(small, 6000)) == small[0, :, :, None]).all()
    large = np.full((3, 100, 400), 90, np.uint8)
    large[0, :, :200] = 200
    found = pixels_of(thumbnail_uri(large, 6000))
    assert found.shape == (LARGEST_SIDE // 4, LARGEST_SIDE, 3)
    assert abs(found[:, 5].mean(0) - (200, 90, 90)).max() < 3
    assert abs(found[:, -5].mean(0) - (90, 90, 90)).max() < 3


def test_noise_is_squeezed_below_the_limit() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 112, 112), np.uint8)
    sizes = [len(thumbnail_uri(noise, limit)) for limit in (20_000, 6000, 2000)]
    assert 10_000 < sizes[0] <= 20_000
    assert 3000 < sizes[1] <= 6000
    assert 500 < sizes[2] <= 2000


@given(
    st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=3),
    st.lists(st.sampled_from([b"a", b"b c", b"\xff"]), max_size=3),
)
def test_a_link_is_ascii_and_leads_from_the_page_to_the_file(
    parts: list[bytes], folders: list[bytes]
) -> None:
    file = b"/".join([b"/data", *(part.replace(b"/", b"!").replace(b"\0", b"!") for part in parts)])
    folder = b"/".join([b"/data", *folders])
    link = file_link(Path(os.fsdecode(file)), Path(os.fsdecode(folder)))
    assert link.isascii()
    assert not set(link) & set("\"'<>?#:; \n\\")
    meant = os.path.normpath(os.path.join(folder, unquote_to_bytes(link)))
    assert meant == os.path.normpath(file)


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 200))
def test_a_budget_is_shared_by_the_largest_limit_that_keeps_it(
    wanted: list[int], total: int
) -> None:
    limit = fair_limit(wanted, total)
    fitting = [
        k for k in range(max(wanted, default=0) + 1) if sum(min(k, w) for w in wanted) <= total
    ]
    assert limit == max(fitting)
