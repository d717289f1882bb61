"""Operations on batches of uint8 images: one operation and one parameter for each image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import NamedTuple, Self

import torch
from torch import Tensor

from protofission.core.devices import send

ByteImages = Tensor
"""(n, channels, height, width), uint8."""


@dataclass(frozen=True)
class Draws:
    """Random parameters of a batch. Every field is a tensor on the CPU with one row per image."""

    def rows(self, part: slice) -> Self:
        """The parameters of some of the images."""
        return replace(self, **{item.name: getattr(self, item.name)[part] for item in fields(self)})


class Operation(NamedTuple):
    """`run(images, argument(images, values))` is applied to images with drawn values.

    Operations that share `run` stand side by side in a pool: their images are run in one call.
    """

    run: Callable[[ByteImages, Tensor], ByteImages]
    argument: Callable[[ByteImages, Tensor], Tensor]


def apply_each(
    images: ByteImages, chosen: Tensor, values: Tensor, pool: Sequence[Operation]
) -> ByteImages:
    """Apply the operation `pool[chosen[i]]` with the parameter `values[i]` to image i.

    The first operation of a pool is `IDENTITY`. Images are sorted by operation, and put back.
    """
    if not chosen.any():
        return images
    order = chosen.argsort(stable=True)
    counts = chosen.bincount(minlength=len(pool)).tolist()
    rows = images.index_select(0, send(order, images.device))
    parts, own = torch.split(rows, counts), torch.split(values[order], counts)
    members = zip(pool, parts, own, strict=True)
    done: list[ByteImages] = []
    for run, group in groupby((m for m in members if len(m[1])), key=lambda m: m[0].run):
        arguments = torch.cat([operation.argument(part, value) for operation, part, value in group])
        start = sum(map(len, done))
        done.append(run(rows[start : start + len(arguments)], arguments))
    return torch.cat(done).index_select(0, send(order.argsort(), images.device))


def same_images(images: ByteImages, values: Tensor) -> ByteImages:
    """The images, unchanged."""
    return images


def same_values(images: ByteImages, values: Tensor) -> Tensor:
    """The drawn values, for an operation that takes them as they are."""
    return values


IDENTITY = Operation(same_images, same_values)
