"""Checks of the fields of actions that need no state."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

from protofission.core.errors import InputError, quoted, require

LONGEST_NAME = 100
"""Most characters of a name."""
MOST_IMAGES_OF_ACTION = 1_000_000
"""Most images that one action changes."""
MOST_GROUPS_OF_ACTION = 10_000
"""Most classes, sub-classes, clusters or parts that one action names."""
LARGEST_ROW = 2**31
"""Above all row numbers and ids."""


def check_name(name: str) -> None:
    """Refuse a name that is empty, too long, or not of one printed line."""
    shown = quoted(name)
    require(bool(name.strip()), f"The name {shown} is empty: give it a letter or more.")
    require(
        len(name) <= LONGEST_NAME,
        f"The name {shown} has {len(name):,} characters: give at most {LONGEST_NAME}.",
    )
    require(
        name == name.strip() and all(_is_plain(c) for c in name),
        f"The name {shown} begins or ends with a space, or has a control character: leave it out.",
    )


def check_images(images: tuple[int, ...]) -> None:
    """Refuse a list of row numbers that is empty, too long, negative or names one twice."""
    if len(images) == 1 and 0 <= images[0] < LARGEST_ROW:
        return
    require(len(images) > 0, "The action names no images: select at least one.")
    require(
        len(images) <= MOST_IMAGES_OF_ACTION,
        f"The action names {len(images):,} images: give at most {MOST_IMAGES_OF_ACTION:,}.",
    )
    require(len(set(images)) == len(images), "The action names an image twice: name it once.")
    low, high = min(images), max(images)
    require(
        low >= 0 and high < LARGEST_ROW,
        f"There is no image {low if low < 0 else high}: give row numbers from 0 on.",
    )


def check_classes(classes: tuple[int, ...], images: int, least: int) -> None:
    """Refuse a list that is not of one class for each image, or of ids below the least."""
    require(
        len(classes) == images,
        f"classes names {len(classes):,} for {images:,} images: give one for each.",
    )
    wrong = [one for one in set(classes) if not least <= one < LARGEST_ROW]
    if wrong:
        raise InputError(f"classes names {wrong[0]}, which is no class: give ids, or {least}.")


def check_members(images: tuple[int, ...] | None) -> None:
    """Refuse images of a group as `check_images`; None is filled in later."""
    if images is not None:
        check_images(images)


def check_groups(what: str, groups: tuple[int, ...]) -> None:
    """Refuse a list of groups that is empty, too long, or names one twice."""
    require(
        0 < len(groups) <= MOST_GROUPS_OF_ACTION,
        f"{what} names {len(groups):,}: give 1 to {MOST_GROUPS_OF_ACTION:,}.",
    )
    require(len(set(groups)) == len(groups), f"{what} names one twice: name it once.")


def check_merge(what: str, merged: tuple[int, ...], into: int) -> None:
    """Refuse to merge nothing, one thing twice, or a thing into itself."""
    check_groups(what, merged)
    require(into not in merged, f"{what} names {into}, into which they are merged: leave it out.")


def quick_check(wanted: Any) -> Callable[[Any], bool]:
    """Make a quick check of a field's JSON value; what it does not pass is looked at closely."""
    if wanted in (int, str):
        return lambda value: type(value) is wanted
    if wanted == tuple[int, ...] | None:
        return lambda value: (
            value is None or (type(value) is list and {int} == set(map(type, value)))
        )
    if wanted == int | None:
        return lambda value: value is None or type(value) is int
    if wanted == tuple[int, ...]:
        return lambda value: type(value) is list and set(map(type, value)) <= {int}
    if get_origin(wanted) is Literal:
        return lambda value: type(value) is str and value in get_args(wanted)
    return lambda value: False


def _is_plain(character: str) -> bool:
    kind = unicodedata.category(character)
    return kind not in ("Cc", "Cf", "Cs", "Zl", "Zp") or character in "\u200c\u200d"  # joiners
