"""Near-duplicates among images by their features: copies, crops, other qualities, bursts.

Features are standardized, and rows made unit vectors; d = 1 - cosine. The scale of an image is its
d to the tenth nearest other one. Two images are near-duplicates if d is at most RATIO times the
smaller of their scales: what counts as near follows the density of the images around, so that
dense data, where everything is similar, has no more near-duplicates than data that is spread out.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from protofission.core.array_types import Ints
from protofission.core.errors import require
from protofission.core.threads import one_thread, take_one_core

RATIO = 0.3
"""Largest d of near-duplicates, in units of their scale."""
RANK = 10
"""The scale is the distance to this neighbor; in a small set, to the middle one."""
LEAST_SCALE = 0.25
"""Smallest scale, in units of the median, so that a burst of many images is found too."""
LEAST_SPREAD = 1e-3
"""Smallest deviation of a feature, in units of the root mean square of all."""
CANDIDATES = 32
"""Neighbors of each image that are looked at."""
PRINCIPAL_DIRECTIONS = 64
"""Principal directions in which candidates are found, if there are more features."""
SAMPLE = 8192
"""Images, evenly spaced, that these are computed from."""
BLOCK_NUMBERS = 2**24
"""Cosines in memory at once, per thread."""
MOST_ROWS = 1024
"""Images of a block."""


def near_duplicates(features: ArrayLike) -> Ints:
    """(N,) group numbers of (N, D) features; an image without a near-duplicate has its own group.

    Groups are stars: every member is a near-duplicate of the member that has most of them, so a
    chain of ever less similar images is cut. Groups are numbered in the order of their first
    members. The result does not depend on the number of threads.

    Raises:
        InputError: the features are no (N, D) finite numbers.
    """
    rows = np.ascontiguousarray(features, np.float32)
    require(
        rows.ndim == 2 and rows.shape[1] > 0 and bool(np.isfinite(rows).all()),
        f"Features of the shape {rows.shape} are no (N, D) finite numbers: give a row per image.",
    )
    keys = (rows + np.float32(0)).view(f"V{4 * rows.shape[1]}")[:, 0]  # -0 becomes 0
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)  # of different rows, by the first image that has each
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    stars = _stars(*_near_pairs(rows[first[order]]), len(order))
    return _numbered(stars[place[group]])


def members(groups: Ints) -> list[Ints]:
    """The images of each group that has several, in the order of the groups."""
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    return [part for part in parts if len(part) > 1]


def _near_pairs(rows: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> tuple[Ints, Ints]:
    """Both ends of all pairs of near-duplicates among different rows."""
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if len(rows) < 2:
        return nothing
    workers = torch.get_num_threads()
    with one_thread(strictly=True), ThreadPoolExecutor(workers, "near", take_one_core) as pool:
        units = _unit_rows(torch.from_numpy(rows))
        reduced = _reduce(units)
        halves = reduced.square().sum(1) / 2
        blocks = _blocks(len(rows))
        found = list(pool.map(lambda block: _neighbors(units, reduced, halves, block), blocks))
        places, distances = (torch.cat(parts) for parts in zip(*found, strict=True))
        rank = min(RANK, (len(rows) + 1) // 2, places.shape[1])
        scales = distances.kthvalue(rank, dim=1).values
        scales = scales.clamp_min(LEAST_SCALE * scales.median())
        near = distances <= RATIO * torch.minimum(scales[:, None], scales[places])
        ends = near.nonzero()
    return ends[:, 0].numpy(), places[near].numpy()


def _unit_rows(rows: Tensor) -> Tensor:
    deviation, mean = torch.std_mean(rows, 0, correction=0)
    least = LEAST_SPREAD * deviation.square().mean().sqrt()
    return torch.nn.functional.normalize((rows - mean) / deviation.clamp_min(least), dim=1)


def _reduce(units: Tensor) -> Tensor:
    """Project unit vectors on their principal directions; distances become no larger."""
    if units.shape[1] <= PRINCIPAL_DIRECTIONS:
        return units
    some = units[:: -(-len(units) // SAMPLE)].double()
    directions: Tensor = torch.linalg.eigh(some.T @ some).eigenvectors
    return units @ directions[:, -PRINCIPAL_DIRECTIONS:].float()


def _blocks(number: int) -> Iterator[slice]:
    size = max(1, min(MOST_ROWS, BLOCK_NUMBERS // number))
    return (slice(start, min(start + size, number)) for start in range(0, number, size))


def _neighbors(
    units: Tensor, reduced: Tensor, halves: Tensor, block: slice
) -> tuple[Tensor, Tensor]:
    """The candidates of a block's images, (B, C), and their exact distances.

    Args:
        halves: half of the squared lengths of `reduced`.
    """
    own = torch.arange(block.start, block.stop)
    nearness = torch.addmm(halves, reduced[block], reduced.T, beta=-1)
    nearness[own - block.start, own] = -torch.inf
    places = nearness.topk(min(CANDIDATES, len(units) - 1), dim=1).indices
    others = units[places.flatten()].view(*places.shape, -1)
    cosines = torch.bmm(others, units[block][:, :, None])[..., 0]
    return places, (1 - cosines).clamp_min(0)


def _stars(left: Ints, right: Ints, number: int) -> Ints:
    """(N,) the center of each row's group, from the ends of pairs, each given once or twice."""
    pairs = np.unique(np.concatenate((left * number + right, right * number + left)))
    left, right = pairs // number, pairs % number
    degrees = np.bincount(left, minlength=number)
    starts = np.concatenate(([0], np.cumsum(degrees)))
    centers = np.full(number, -1)
    for center in np.argsort(-degrees, kind="stable")[: np.count_nonzero(degrees)]:
        if centers[center] < 0:
            around = right[starts[center] : starts[center + 1]]
            centers[around[centers[around] < 0]] = center
            centers[center] = center
    return np.where(centers < 0, np.arange(number), centers)


def _numbered(groups: Ints) -> Ints:
    """Number groups in the order of their first members."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    numbers = np.empty_like(first)
    numbers[np.argsort(first)] = np.arange(len(first))
    return numbers[inverse]
