"""Labels by name as places in a list of class names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np

from protofission.core.errors import InputError, require
from protofission.data.image_sets import NO_LABEL, Labels


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Class names in their order: whole numbers by value, else by their bytes."""
    unique = set(names)
    if all(name.isascii() and name.isdecimal() for name in unique):
        return tuple(sorted(unique, key=lambda name: (int(name), name)))
    return tuple(sorted(unique, key=os.fsencode))


def numbered(
    labels: Sequence[str | None], class_names: Sequence[str] | None = None
) -> tuple[Labels, tuple[str, ...]]:
    """Labels as places in the class names; None is NO_LABEL.

    Args:
        class_names: the classes in their order, so that several sets agree; else `ordered`.
    """
    names = ordered(label for label in labels if label is not None)
    if class_names is not None:
        names = distinct(class_names)
    places = {name: place for place, name in enumerate(names)}
    for label in labels:
        if label is not None and label not in places:
            raise InputError(f"The label {label!r} is none of the classes {_few(names)}: add it.")
    found = [NO_LABEL if label is None else places[label] for label in labels]
    return np.array(found, np.int64), names


def distinct(class_names: Sequence[str]) -> tuple[str, ...]:
    """Class names as they were given, each once."""
    for place, name in enumerate(class_names):
        require(
            name not in class_names[:place],
            f"The class name {name!r} is given twice: give each class once.",
        )
    return tuple(class_names)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return f"{shown} and {len(names) - 10} more" if len(names) > 10 else shown or "none"
