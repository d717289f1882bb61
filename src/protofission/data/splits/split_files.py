"""Split files: JSON, written whole or not at all, and checked when read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from protofission.core.errors import InputError
from protofission.data.splits.split import PARTS, Indices, Split
from protofission.system.json_files import read_json
from protofission.system.whole_files import write_whole

FORMAT = "protofission split, version 1"
MOST_BYTES = 2**28
"""The size limit of a split file."""

KIND_NAMES = {int: "a whole number", str: "a text", list: "a list", dict: "an object"}


def write_split(split: Split, path: Path) -> None:
    """Write a split's manifest and indices, one entry per line."""
    indices = {part: getattr(split, part).tolist() for part in PARTS}
    entries = {"format": FORMAT, **split.manifest(), "indices": indices}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
    write_whole(path, f"{{\n{lines}\n}}\n".encode())


def read_split(path: Path) -> Split:
    """Read a split file.

    Raises:
        InputError: it cannot be read, or is damaged; the sentence says where.
    """
    try:
        entries = read_json(path, dict[str, Any], most=MOST_BYTES)
    except OSError as error:
        raise InputError(f"The split file {path} cannot be read: {error.strerror}.") from None
    except InputError as error:
        _refuse_damaged(path, str(error).removesuffix("."))
    try:
        split = _split_of(entries)
        _check_consistency(split, entries)
    except _FlawError as flaw:
        _refuse_damaged(path, str(flaw))
    return split


class _FlawError(Exception):
    """A flaw in a file, in words without the file's name."""


def _refuse_damaged(path: Path, what: str) -> NoReturn:
    raise InputError(f"The split file {path} is damaged: {what}. Write it again.") from None


def _demand(condition: bool, what: str) -> None:
    if not condition:
        raise _FlawError(what)


def _split_of(entries: dict[str, Any]) -> Split:
    """Build a split from the entries of a file, and check each of them."""
    _demand(
        entries.get("format") == FORMAT,
        f"its format is {entries.get('format')!r} instead of {FORMAT!r}",
    )
    sizes = {kind: _number(_entry(entries, "sizes", dict), kind) for kind in ("train", "test")}
    for key, known in (("test_on", ("train", "test")), ("classes", ("fine", "coarse"))):
        _demand(_entry(entries, key, str) in known, f"{key} is {entries[key]!r}")
    lists = _entry(entries, "indices", dict)
    counts = _entry(entries, "counts", dict)
    return Split(
        name=_entry(entries, "name", str),
        seed=_number(entries, "seed"),
        seen_classes=tuple(_numbers(entries, "seen_classes")),
        novel_classes=tuple(_numbers(entries, "novel_classes")),
        test_on=entries["test_on"],
        classes=entries["classes"],
        options=_entry(entries, "options", dict),
        sizes=sizes,
        counts={part: tuple(_numbers(counts, part, "counts of ")) for part in PARTS},
        **{
            part: _indices(lists, part, entries["test_on"] if part == "test" else "train", sizes)
            for part in PARTS
        },
    )


def _entry(entries: dict[str, Any], key: str, kind: type, prefix: str = "") -> Any:
    _demand(key in entries, f"{prefix}{key!r} is missing")
    _demand(type(entries[key]) is kind, f"{prefix}{key!r} is not {KIND_NAMES[kind]}")
    return entries[key]


def _number(entries: dict[str, Any], key: str) -> int:
    value: int = _entry(entries, key, int)
    _demand(0 <= value < 2**63, f"{key!r} is {value}")
    return value


def _numbers(entries: dict[str, Any], key: str, prefix: str = "") -> list[int]:
    values: list[Any] = _entry(entries, key, list, prefix)
    wrong = [value for value in values if type(value) is not int or not 0 <= value < 2**63]
    _demand(not wrong, f"{prefix}{key!r} holds {wrong[0] if wrong else ''!r}")
    return values


def _indices(lists: dict[str, Any], part: str, into: str, sizes: dict[str, int]) -> Indices:
    values = _numbers(lists, part, "indices of ")
    high = max(values, default=-1)
    _demand(
        high < sizes[into],
        f"{part} index {high} is outside the {sizes[into]:,} {into} images",
    )
    array = np.asarray(values, np.int64)
    falls = np.flatnonzero(np.diff(array) <= 0)
    _demand(
        len(falls) == 0,
        f"{part} index {array[falls[0] + 1] if len(falls) else ''} is twice or out of order",
    )
    return array


def _check_consistency(split: Split, entries: dict[str, Any]) -> None:
    """Check that the entries of a file agree with each other."""
    classes = sorted(split.seen_classes + split.novel_classes)
    _demand(classes == list(range(len(classes))), "a class is missing, or there twice")
    apart = [("labeled", "validation"), ("unlabeled", "validation")]
    if split.test_on == "train":
        apart += [("labeled", "test"), ("validation", "test")]
    for one, other in apart:
        both = np.intersect1d(getattr(split, one), getattr(split, other))
        _demand(
            len(both) == 0,
            f"image {both[0] if len(both) else ''} is both in {one} and in {other}",
        )
    for part in PARTS:
        size, counts = len(getattr(split, part)), split.counts[part]
        listed = _number(entries, part)
        _demand(listed == size, f"{part} should have {listed:,} indices, but has {size:,}")
        fits = sum(counts) <= size if part == "unlabeled" else sum(counts) == size
        _demand(
            len(counts) == len(classes) and fits,
            f"the counts of {part} do not fit its {size:,} indices and {len(classes)} classes",
        )
    stated = _entry(entries, "sha256", str)
    _demand(
        stated == split.sha256,
        f"its SHA-256 should be {stated}, but its classes and indices have {split.sha256}",
    )
