"""The base of all protocols: a frozen value with options that makes the split of a data set."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_type_hints

import numpy as np

from protofission.core.errors import UnknownKeyError, check_choices, require, unknown_message
from protofission.core.options import as_text, parse_value
from protofission.data.splits.labeling import Labeling
from protofission.data.splits.split import SPLIT_PARTS, Indices, Split, no_indices


@dataclass(frozen=True)
class Parts:
    """The parts of a split as a protocol draws them; the indices may be in any order."""

    seen: tuple[int, ...]
    labeled: Indices
    unlabeled: Indices
    test: Indices
    test_on: Literal["train", "test"]
    validation: Indices = field(default_factory=no_indices)


@dataclass(frozen=True, kw_only=True)
class SplitSpec(ABC):
    """A protocol's name, options and seed. A subclass is one protocol: its fields are its options.

    At seed 0 a peer's protocol is the one its own code draws, as far as that code is seeded.
    """

    name: str = field(default="", init=False)
    """The protocol's name in SPLITS; fixed by the class."""
    seed: int = 0
    """Seed of the split alone; runs with other seeds share it."""
    classes: ClassVar[Literal["fine", "coarse"]] = "fine"

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, f"seed = {self.seed} must be between 0 and 2^32 - 1.")
        check_choices(self)
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Refuse options that fit no data set."""

    @abstractmethod
    def _parts(self, data: Labeling) -> Parts:
        """Assign the images of a data set to parts."""

    @property
    def options(self) -> dict[str, Any]:
        """The fields other than name and seed."""
        names = (item.name for item in dataclasses.fields(self))
        return {name: getattr(self, name) for name in names if name not in ("name", "seed")}

    def split(self, data: Labeling) -> Split:
        """Make the split of a data set.

        Raises:
            InputError: the data set has no such classes, or too few images of one.
        """
        data = data.coarse(self.options.get("merge")) if self.classes == "coarse" else data
        parts = self._parts(data)
        test_labels = data.train if parts.test_on == "train" or data.test is None else data.test
        indices = {part: np.sort(getattr(parts, part)).astype(np.int64) for part in SPLIT_PARTS}
        labels = {part: test_labels if part == "test" else data.train for part in SPLIT_PARTS}
        return Split(
            name=self.name,
            seed=self.seed,
            seen_classes=parts.seen,
            novel_classes=data.novel(parts.seen),
            test_on=parts.test_on,
            classes=self.classes,
            options=self.options,
            sizes={"train": len(data.train), "test": 0 if data.test is None else len(data.test)},
            counts={
                part: count_per_class(labels[part][indices[part]], data.num_classes)
                for part in SPLIT_PARTS
            },
            **indices,
        )


def count_per_class(labels: Indices, num_classes: int) -> tuple[int, ...]:
    """The number of labels of each class."""
    return tuple(np.bincount(labels[labels >= 0], minlength=num_classes).tolist())


def check_share(name: str, share: float, *, ends: Literal["", "0", "1", "01"] = "") -> None:
    """Refuse a share outside 0 to 1; `ends` names the ends that are allowed."""
    inside = 0 < share < 1 or (share == 0 and "0" in ends) or (share == 1 and "1" in ends)
    require(inside, f"{name} = {share} must lie between 0 and 1.")


def check_counts(least: int = 0, **counts: int | None) -> None:
    """Refuse numbers below `least`, or beyond any data set; None is allowed."""
    for name, count in counts.items():
        require(
            count is None or least <= count < 2**40,
            f"{name} = {count} must be a whole number from {least} on, below 2^40.",
        )


def first_classes(num_seen: int | None, default: int, num_classes: int) -> tuple[int, ...]:
    """The first `num_seen` classes, by default the first `default`: the seen ones."""
    seen = default if num_seen is None else num_seen
    require(
        1 <= seen <= num_classes,
        f"num_seen = {seen} must be between 1 and the number of classes, {num_classes}.",
    )
    return tuple(range(seen))


def check_classes(seen_classes: tuple[int, ...], num_classes: int) -> tuple[int, ...]:
    """The seen classes that the user names, sorted; refused if unknown or named twice."""
    beyond = [label for label in seen_classes if not 0 <= label < num_classes]
    require(
        not beyond,
        f"seen_classes names class {beyond[0] if beyond else ''}, but there are {num_classes} "
        f"classes: they run from 0 to {num_classes - 1}.",
    )
    require(
        0 < len(set(seen_classes)) == len(seen_classes),
        f"seen_classes = {seen_classes} must name at least one class, and none twice.",
    )
    return tuple(sorted(seen_classes))


def build_spec(kind: type[SplitSpec], options: Mapping[str, object]) -> SplitSpec:
    """Build a protocol from options, each given as a value or as text."""
    known = [item.name for item in dataclasses.fields(kind) if item.init]
    hints = get_type_hints(kind)
    for key in options:
        if key not in known:
            what = f"option of the split {kind().name!r}:"
            raise UnknownKeyError(unknown_message(what, key, known, known))
    return kind(
        **{key: parse_value(as_text(value), hints[key], key) for key, value in options.items()}
    )
