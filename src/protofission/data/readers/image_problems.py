"""Problems of image sets, in words: unreadable files, duplicates, overlaps of two sets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from protofission.core.errors import printable, require
from protofission.data.image_sets import NO_LABEL, ImageSet

SHOWN_PROBLEMS = 10
"""The number of examples of one kind that a report lists."""


@dataclass(frozen=True)
class Duplicate:
    """A group of images with the same pixels."""

    paths: tuple[str, ...]
    same_bytes: bool
    """Whether their files are the same too, not only their pixels."""
    labels_differ: bool
    """Whether they have different labels, of which at least one is wrong."""


@dataclass(frozen=True)
class Report:
    """A report on the images that were read, and on the files that were left out."""

    source: str
    read: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The reason for each file that was left out."""
    duplicates: tuple[Duplicate, ...] = ()
    """Images that occur more than once; all of them were read."""
    empty_classes: tuple[str, ...] = ()
    """Classes without an image."""
    hidden: int = 0
    """The number of files and folders whose names begin with a dot, which were skipped."""
    from_cache: bool = False
    """Whether the images were in the cache; not in `lines`, so that a page made of the same images
    is the same whatever the cache held."""

    def lines(self) -> list[str]:
        """The report in sentences, in printable characters."""
        lines = [f"{_many(self.read, 'image')} read from {printable(self.source)}."]
        if self.hidden:
            lines.append(f"{_many(self.hidden, 'hidden name')} passed over.")
        if self.left_out:
            lines.append(f"{_many(len(self.left_out), 'file')} left out:")
            shown = list(self.left_out.items())[:SHOWN_PROBLEMS]
            lines += [f"  {printable(path)}: {printable(reason)}." for path, reason in shown]
            lines += _more(len(self.left_out))
        if self.duplicates:
            lines.append(f"{_many(len(self.duplicates), 'image')} found more than once:")
            lines += [f"  {_sentence(duplicate)}" for duplicate in self.duplicates[:SHOWN_PROBLEMS]]
            lines += _more(len(self.duplicates))
        wrong = sum(duplicate.labels_differ for duplicate in self.duplicates)
        if wrong:
            lines.append(f"{wrong:,} of these with labels that contradict each other.")
        if self.empty_classes:
            names = ", ".join(map(printable, self.empty_classes[:SHOWN_PROBLEMS]))
            lines.append(f"No image of {_many(len(self.empty_classes), 'class', 'es')}: {names}.")
        return lines


class Overlap(NamedTuple):
    """Two images with the same pixels, one of each set."""

    first: int
    """The index in the first set."""
    second: int
    """The index in the second set."""


def overlaps(first: ImageSet, second: ImageSet) -> tuple[Overlap, ...]:
    """All pairs of images of two sets, such as labeled set and pool, with the same pixels."""
    require(
        first.pixels.shape[1:] == second.pixels.shape[1:],
        f"Images of the shapes {first.pixels.shape[1:]} and {second.pixels.shape[1:]} cannot be "
        "the same: read both sets at one size.",
    )
    places = defaultdict(list)
    for place, found in enumerate(first.pixel_digests()):
        places[found].append(place)
    return tuple(
        sorted(
            Overlap(match, place)
            for place, found in enumerate(second.pixel_digests())
            for match in places.get(found, ())
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
    paths = " = ".join(map(printable, duplicate.paths[:SHOWN_PROBLEMS]))
    more = (
        f" and {len(duplicate.paths) - SHOWN_PROBLEMS} more"
        if len(duplicate.paths) > SHOWN_PROBLEMS
        else ""
    )
    how = "the same file" if duplicate.same_bytes else "other files with the same pixels"
    return f"{paths}{more} ({how}{', different labels' if duplicate.labels_differ else ''})."


def _many(count: int, one: str, plural: str = "s") -> str:
    return f"{count:,} {one}{plural if count != 1 else ''}"


def _more(count: int) -> list[str]:
    return [f"  and {count - SHOWN_PROBLEMS:,} more."] if count > SHOWN_PROBLEMS else []
