"""What is wrong with a pool of images: unreadable files, duplicates, overlaps, in plain words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from protofission.core.errors import printable, require
from protofission.data.image_sets import NO_LABEL, ImageSet
from protofission.data.readers.image_cache import digest

SHOWN = 10
"""How many examples of one kind a report spells out."""


@dataclass(frozen=True)
class Duplicate:
    """Images that are the same."""

    paths: tuple[str, ...]
    same_bytes: bool
    """Whether their files are the same too, and not only their pixels."""
    labels_differ: bool
    """Whether they have different labels, of which at least one is wrong."""


@dataclass(frozen=True)
class Report:
    """What was read, and what was not."""

    source: str
    read: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why each of these files was left out."""
    duplicates: tuple[Duplicate, ...] = ()
    """Images that are there more than once; all of them were read."""
    empty_classes: tuple[str, ...] = ()
    """Classes without an image."""
    hidden: int = 0
    """Files and folders whose names begin with a dot, which were passed over."""
    from_cache: bool = False
    """Whether the images had been decoded before; `lines` do not say so: what is made of the same
    images, such as a model's page, is the same whatever the cache held."""

    def lines(self) -> list[str]:
        """The report in sentences, in printable characters."""
        lines = [f"{_many(self.read, 'image')} read from {printable(self.source)}."]
        if self.hidden:
            lines.append(f"{_many(self.hidden, 'hidden name')} passed over.")
        if self.left_out:
            lines.append(f"{_many(len(self.left_out), 'file')} left out:")
            shown = list(self.left_out.items())[:SHOWN]
            lines += [f"  {printable(path)}: {printable(reason)}." for path, reason in shown]
            lines += _more(len(self.left_out))
        if self.duplicates:
            lines.append(f"{_many(len(self.duplicates), 'image')} found more than once:")
            lines += [f"  {_sentence(duplicate)}" for duplicate in self.duplicates[:SHOWN]]
            lines += _more(len(self.duplicates))
        wrong = sum(duplicate.labels_differ for duplicate in self.duplicates)
        if wrong:
            lines.append(f"{wrong:,} of these with labels that contradict each other.")
        if self.empty_classes:
            names = ", ".join(map(printable, self.empty_classes[:SHOWN]))
            lines.append(f"No image of {_many(len(self.empty_classes), 'class', 'es')}: {names}.")
        return lines


class Overlap(NamedTuple):
    """An image that is in two sets."""

    first: int
    """Its place in the first set."""
    second: int
    """Its place in the second set."""


def overlaps(first: ImageSet, second: ImageSet) -> tuple[Overlap, ...]:
    """Every pair of images of two sets that have the same pixels, such as labeled set and pool."""
    require(
        first.pixels.shape[1:] == second.pixels.shape[1:],
        f"Images of the shapes {first.pixels.shape[1:]} and {second.pixels.shape[1:]} cannot be "
        "the same: read both sets at one size.",
    )
    places = defaultdict(list)
    for place, pixels in enumerate(first.pixels):
        places[digest(pixels)].append(place)
    return tuple(
        sorted(
            Overlap(match, place)
            for place, pixels in enumerate(second.pixels)
            for match in places.get(digest(pixels), ())
        )
    )


def duplicates_of(
    paths: Sequence[str],
    labels: Sequence[int],
    file_digests: Sequence[str],
    pixel_digests: Sequence[str],
) -> tuple[Duplicate, ...]:
    """Groups of images with the same pixels, in the order of their first members."""
    groups = defaultdict(list)
    for place, found in enumerate(pixel_digests):
        groups[found].append(place)
    return tuple(
        Duplicate(
            tuple(paths[place] for place in group),
            same_bytes=len({file_digests[place] for place in group}) == 1,
            labels_differ=len({labels[place] for place in group} - {NO_LABEL}) > 1,
        )
        for group in groups.values()
        if len(group) > 1
    )


def _sentence(duplicate: Duplicate) -> str:
    paths = " = ".join(map(printable, duplicate.paths[:SHOWN]))
    more = f" and {len(duplicate.paths) - SHOWN} more" if len(duplicate.paths) > SHOWN else ""
    how = "the same file" if duplicate.same_bytes else "other files with the same pixels"
    return f"{paths}{more} ({how}{', different labels' if duplicate.labels_differ else ''})."


def _many(count: int, one: str, plural: str = "s") -> str:
    return f"{count:,} {one}{plural if count != 1 else ''}"


def _more(count: int) -> list[str]:
    return [f"  and {count - SHOWN:,} more."] if count > SHOWN else []
