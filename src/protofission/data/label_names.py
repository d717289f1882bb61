"""Labels given by name, turned into indices into the class names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np

from protofission.core.errors import InputError, require
from protofission.data.image_sets import NO_LABEL, Labels


def sort_class_names(names: Iterable[str]) -> tuple[str, ...]:
    """Sort class names, each once: by value if all are whole numbers, else by their bytes."""
    unique = set(names)
    if all(name.isascii() and name.isdecimal() for name in unique):
        return tuple(sorted(unique, key=lambda name: (int(name), name)))
    return tuple(sorted(unique, key=os.fsencode))


def number_labels(
    labels: Sequence[str | None], class_names: Sequence[str] | None = None
) -> tuple[Labels, tuple[str, ...]]:
    """Turn labels into indices into the class names; None becomes NO_LABEL.

    Args:
        class_names: the classes in order, so that several sets agree; by default those of the
            labels, by `sort_class_names`.

    Returns:
        (N,) indices, and the class names.
    """
    names = sort_class_names(label for label in labels if label is not None)
    if class_names is not None:
        names = check_distinct(class_names)
    places = {name: place for place, name in enumerate(names)}
    for label in labels:
        if label is not None and label not in places:
            raise InputError(f"The label {label!r} is none of the classes {_few(names)}: add it.")
    numbers = [NO_LABEL if label is None else places[label] for label in labels]
    return np.array(numbers, np.int64), names


def check_distinct(class_names: Sequence[str]) -> tuple[str, ...]:
    """Refuse class names that are given twice; the others as a tuple."""
    for place, name in enumerate(class_names):
        require(
            name not in class_names[:place],
            f"The class name {name!r} is given twice: give each class once.",
        )
    return tuple(class_names)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return f"{shown} and {len(names) - 10} more" if len(names) > 10 else shown or "none"
