"""Split files: JSON, written whole or not at all, and checked when read."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from protofission.core.errors import InputError, require
from protofission.data.splits.split import SPLIT_PARTS, Indices, Split
from protofission.system.json_files import as_type, read_json
from protofission.system.whole_files import write_whole

FORMAT = "protofission split, version 1"
MOST_SPLIT_BYTES = 2**28
"""The size limit of a split file."""


@dataclass(frozen=True)
class _Sizes:
    train: int
    test: int


@dataclass(frozen=True)
class _Entries:
    """Content of a split file: the manifest of a split, and its indices."""

    name: str
    options: dict[str, Any]
    seed: int
    classes: Literal["fine", "coarse"]
    seen_classes: tuple[int, ...]
    novel_classes: tuple[int, ...]
    labeled: int
    unlabeled: int
    validation: int
    test: int
    test_on: Literal["train", "test"]
    sizes: _Sizes
    counts: dict[str, tuple[int, ...]]
    sha256: str
    indices: dict[str, tuple[int, ...]]


def write_split(split: Split, path: Path) -> None:
    """Write a split's manifest and indices, one entry per line."""
    indices = {part: getattr(split, part).tolist() for part in SPLIT_PARTS}
    entries = {"format": FORMAT, **split.manifest(), "indices": indices}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
    write_whole(path, f"{{\n{lines}\n}}\n".encode())


def read_split(path: Path) -> Split:
    """Read a split file.

    Raises:
        InputError: it cannot be read, or is damaged; the sentence says where.
    """
    try:
        entries = _entries(read_json(path, dict[str, Any], most=MOST_SPLIT_BYTES))
        split = _split_of(entries)
        _check(split, entries)
    except OSError as error:
        raise InputError(f"The split file {path} cannot be read: {error.strerror}.") from None
    except InputError as error:
        what = str(error).removesuffix(".")
        raise InputError(f"The split file {path} is damaged: {what}. Write it again.") from None
    return split


def _entries(plain: dict[str, Any]) -> _Entries:
    require(
        plain.get("format") == FORMAT,
        f"its format is {plain.get('format')!r} instead of {FORMAT!r}.",
    )
    known = {field.name for field in fields(_Entries)}
    entries = as_type({k: v for k, v in plain.items() if k in known}, _Entries, "")
    require(entries.seed >= 0, f"seed is {entries.seed}.")
    for name in ("counts", "indices"):
        for part in SPLIT_PARTS:
            require(part in getattr(entries, name), f"{name}.{part} is missing.")
    for name in ("seen_classes", "novel_classes"):
        _check_not_negative(getattr(entries, name), name)
    for part in SPLIT_PARTS:
        _check_not_negative(entries.counts[part], f"counts.{part}")
        _check_not_negative(entries.indices[part], f"indices.{part}")
    return entries


def _check_not_negative(values: tuple[int, ...], place: str) -> None:
    least = min(values, default=0)
    require(least >= 0, f"{place} holds {least}.")


def _split_of(entries: _Entries) -> Split:
    """Make a split of entries whose types are right."""
    sizes = {"train": entries.sizes.train, "test": entries.sizes.test}
    return Split(
        name=entries.name,
        seed=entries.seed,
        seen_classes=entries.seen_classes,
        novel_classes=entries.novel_classes,
        test_on=entries.test_on,
        classes=entries.classes,
        options=entries.options,
        sizes=sizes,
        counts={part: entries.counts[part] for part in SPLIT_PARTS},
        **{
            part: _indices(entries, part, entries.test_on if part == "test" else "train", sizes)
            for part in SPLIT_PARTS
        },
    )


def _indices(entries: _Entries, part: str, into: str, sizes: dict[str, int]) -> Indices:
    """The indices of a part, which ascend, into a set of images that has so many."""
    array = np.asarray(entries.indices[part], np.int64)
    high = int(array.max(initial=-1))
    require(
        high < sizes[into], f"{part} index {high} is outside the {sizes[into]:,} {into} images."
    )
    falls = np.flatnonzero(np.diff(array) <= 0)
    require(
        len(falls) == 0,
        f"{part} index {array[falls[0] + 1] if len(falls) else ''} is twice or out of order.",
    )
    return array


def _check(split: Split, entries: _Entries) -> None:
    """Refuse entries that do not agree with each other."""
    classes = sorted(split.seen_classes + split.novel_classes)
    require(classes == list(range(len(classes))), "a class is missing, or there twice.")
    apart = [("labeled", "validation"), ("unlabeled", "validation")]
    if split.test_on == "train":
        apart += [("labeled", "test"), ("validation", "test")]
    for one, other in apart:
        both = np.intersect1d(getattr(split, one), getattr(split, other))
        require(
            len(both) == 0,
            f"image {both[0] if len(both) else ''} is both in {one} and in {other}.",
        )
    for part in SPLIT_PARTS:
        size, counts = len(getattr(split, part)), split.counts[part]
        stated = getattr(entries, part)
        require(stated == size, f"{part} should have {stated:,} indices, but has {size:,}.")
        fits = sum(counts) <= size if part == "unlabeled" else sum(counts) == size
        require(
            len(counts) == len(classes) and fits,
            f"the counts of {part} do not fit its {size:,} indices and {len(classes)} classes.",
        )
    require(
        entries.sha256 == split.sha256,
        f"its SHA-256 should be {entries.sha256}, but its classes and indices have {split.sha256}.",
    )
