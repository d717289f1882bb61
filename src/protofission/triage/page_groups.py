"""Groups of images on the page of a triage: which images, in which order, and how many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protofission.core.array_types import Ints
from protofission.core.errors import printable
from protofission.core.number_words import percent
from protofission.core.records import NO_CLASS
from protofission.pages.contact_sheets import Pixels
from protofission.pages.thumbnails import fair_limit, file_link, is_crisp, thumbnail_uri
from protofission.triage.calibrated_model import ACCEPT, DECISIONS
from protofission.triage.prediction_table import escape_text
from protofission.triage.triage_data import TriageData

IN_ROW, IN_CLUSTER, IN_DUPLICATES = 10, 20, 6
"""Most thumbnails in a row of a class, of a cluster, and of a group of near-duplicates."""


@dataclass(frozen=True)
class ImageRow:
    """Images in the order in which they are shown, of which the first are shown."""

    label: str
    images: Ints
    most: int
    """Most thumbnails."""
    names_listed: bool = True
    """Whether the names of all images can be copied."""
    total: int | None = None
    """The number to show after "of", where the images are not all of them."""

    @property
    def wanted(self) -> int:
        """The number of thumbnails that fit if there is room."""
        return min(self.most, len(self.images))


@dataclass(frozen=True)
class ImageGroup:
    """A card of the page: rows of images under a title."""

    title: str
    rows: tuple[ImageRow, ...]
    note: str = ""


@dataclass(frozen=True)
class Thumbnail:
    """A picture with its file's name and link."""

    uri: str
    crisp: bool
    link: str
    folder: str
    """The part of the path before the file's name; both are as in the tables."""
    file_name: str
    hover: str
    alt: str
    note: str


@dataclass(frozen=True)
class ShownRow:
    """A row of thumbnails, with the names of its images."""

    label: str
    thumbnails: tuple[Thumbnail, ...]
    names: tuple[str, ...]
    total: int


@dataclass(frozen=True)
class ShownGroup:
    """A card of the page, drawn."""

    title: str
    note: str
    rows: tuple[ShownRow, ...]


@dataclass(frozen=True)
class Gallery:
    """Draws the groups of a section within a budget.

    Args:
        folder: that the page will lie in, absolute: links are relative to it.
        uri_limit: most characters of a thumbnail.
    """

    data: TriageData
    folder: Path
    uri_limit: int

    @cached_property
    def _names(self) -> list[str]:
        return [escape_text(path) for path in self.data.paths]

    def draw(
        self, groups: Sequence[ImageGroup], thumbnails: int, characters: int, notes: bool = False
    ) -> list[ShownGroup]:
        """Draw groups with at most so many thumbnails, and characters of names, in all.

        Args:
            notes: write the verdict or the label below each thumbnail.
        """
        rows = [row for group in groups for row in group.rows]
        most = fair_limit([row.wanted for row in rows], thumbnails)
        listed = [row for row in rows if row.names_listed]
        usual = 1 + sum(map(len, self._names)) / max(1, len(self._names))
        names = fair_limit([len(row.images) for row in listed], int(characters / usual))
        return [
            ShownGroup(
                group.title,
                group.note,
                tuple(self._draw_row(row, most, names, notes) for row in group.rows),
            )
            for group in groups
        ]

    def _draw_row(self, row: ImageRow, most: int, names: int, notes: bool) -> ShownRow:
        shown = row.images[: min(row.most, most)]
        total = len(row.images) if row.total is None else row.total
        pixels = self.data.pixels[shown] if len(shown) else ()
        number = f"{total:,}" if len(shown) == total else f"{len(shown):,} of {total:,}"
        return ShownRow(
            label=f"{row.label} · {number}" if row.label else f"{number} images",
            thumbnails=tuple(
                self._thumbnail(place, image, notes)
                for place, image in zip(shown.tolist(), pixels, strict=True)
            ),
            names=tuple(self._names[k] for k in row.images[:names].tolist())
            if row.names_listed
            else (),
            total=total,
        )

    def _thumbnail(self, image: int, pixels: Pixels, noted: bool) -> Thumbnail:
        name, verdict = self._names[image], self.verdict(image)
        cut = name.rfind("/") + 1
        return Thumbnail(
            uri=thumbnail_uri(pixels, self.uri_limit),
            crisp=is_crisp(pixels),
            link=file_link(self.data.file(image), self.folder),
            folder=name[:cut],
            file_name=name[cut:],
            hover=f"{name}\n{verdict}",
            alt=f"{name}: {verdict}",
            note=verdict if noted else "",
        )

    def verdict(self, image: int) -> str:
        """The verdict on an image of the pool, or the label of another and what is said of it."""
        data = self.data
        if image < data.num_labeled:
            found, labels = f"labeled {self._class(data.labels.labels[image])}", data.labels
            if labels.likeliest[image] in (NO_CLASS, labels.labels[image]):
                return found
            share = percent(float(labels.likeliest_probability[image]), 0)
            return f"{found}, looks like {self._class(labels.likeliest[image])} ({share})"
        pool, place = data.pool, image - data.num_labeled
        share = percent(float(pool.probability[place]), 0)
        return (
            f"{DECISIONS[pool.decisions[place]]}, {self._class(pool.classes[place])} ({share}), "
            f"ID score {pool.id_scores[place]:.3g}"
        )

    def _class(self, number: int) -> str:
        return printable(self.data.class_names[number])


def ordered(images: Ints, keys: NDArray[np.floating]) -> Ints:
    """Images by their keys, the highest first."""
    return images[np.argsort(-keys[images], kind="stable")]


def rejected_groups(data: TriageData, most: int) -> tuple[list[ImageGroup], int]:
    """Clusters of the rejected images, the largest first, then the images in none.

    Returns:
        The groups, and the number of clusters beyond `most`.
    """
    pool = data.pool
    clusters = np.where(pool.decisions == ACCEPT, NO_CLASS, pool.clusters)
    counts = np.bincount(clusters[clusters != NO_CLASS], minlength=len(data.cluster_names))
    used = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    groups = []
    for number in used[:most].tolist():
        images = ordered(np.flatnonzero(clusters == number), pool.typicality)
        row = ImageRow("most typical first", _places(data, images), IN_CLUSTER)
        title = printable(data.cluster_names[number])
        groups.append(ImageGroup(title, (row,), _nearest_note(data, images)))
    alone = np.flatnonzero((pool.decisions != ACCEPT) & (clusters == NO_CLASS))
    if len(alone):
        images = ordered(alone, -pool.id_scores)
        row = ImageRow("least like a known class first", _places(data, images), 2 * IN_CLUSTER)
        title = "In no cluster" if groups else ""
        groups.append(ImageGroup(title, (row,), _nearest_note(data, images)))
    return groups, max(0, len(used) - most)


def _places(data: TriageData, images: Ints) -> Ints:
    """The places of images of the pool among all images."""
    return images + data.num_labeled


def _nearest_note(data: TriageData, images: Ints) -> str:
    counts = np.bincount(data.pool.classes[images], minlength=len(data.class_names))
    first = np.argsort(-counts, kind="stable")[:3]
    named = ", ".join(
        f"{printable(data.class_names[c])} ({percent(counts[c] / len(images), 0)})"
        for c in first.tolist()
        if counts[c]
    )
    return f"Nearest known classes: {named}."


def borderline_group(data: TriageData) -> ImageGroup:
    """Images that just passed the threshold, and those that just did not."""
    pool = data.pool
    accepted = np.flatnonzero(pool.decisions == ACCEPT)
    refused = np.flatnonzero(pool.decisions != ACCEPT)
    rows = [
        ImageRow(label, _places(data, images)[:IN_CLUSTER], IN_CLUSTER, False, len(images))
        for label, images in (
            ("just accepted", ordered(accepted, -pool.id_scores)),
            ("just rejected", ordered(refused, pool.id_scores)),
        )
        if len(images)
    ]
    return ImageGroup("Borderline images", tuple(rows))


def class_group(data: TriageData, number: int) -> ImageGroup:
    """The images of a class: the surest, the least sure, those not accepted, and sub-classes."""
    pool, parts = data.pool, data.subclass_names[number]
    own = pool.classes == number
    accepted = ordered(np.flatnonzero(own & (pool.decisions == ACCEPT)), pool.id_scores)
    refused = ordered(np.flatnonzero(own & (pool.decisions != ACCEPT)), pool.id_scores)
    rows = [
        ImageRow("accepted, most certain first", accepted, IN_ROW),
        ImageRow(
            "accepted, least certain first",
            accepted[::-1][: max(0, len(accepted) - IN_ROW)],
            IN_ROW,
            False,
            len(accepted),
        ),
        ImageRow("not accepted, nearest to this class", refused, IN_ROW, False),
    ]
    members = [accepted[pool.subclasses[accepted] == slot] for slot in range(len(parts))]
    if sum(len(images) > 0 for images in members) > 1:
        rows += [
            ImageRow(f"sub-class {printable(part)}", images, IN_ROW)
            for part, images in zip(parts, members, strict=True)
        ]
    return ImageGroup(
        printable(data.class_names[number]),
        tuple(replace(row, images=_places(data, row.images)) for row in rows if len(row.images)),
        "" if len(accepted) else "No image of the pool was accepted.",
    )


def doubt_group(data: TriageData, most: int) -> ImageGroup:
    """The labels in doubt, the most doubtful first."""
    images = ordered(np.flatnonzero(data.labels.doubtful), data.labels.doubts)
    return ImageGroup("", (ImageRow("most doubtful first", images, most),) if len(images) else ())


def duplicate_groups(data: TriageData, most: int) -> tuple[list[ImageGroup], int]:
    """Groups of near-duplicates, and their number.

    Those with several labels are first, then those with labeled images, then the largest.
    """
    numbers = data.duplicate_numbers()
    places = np.flatnonzero(numbers)
    if not len(places):
        return [], 0
    places = places[np.argsort(numbers[places], kind="stable")]
    groups = np.split(places, np.flatnonzero(np.diff(numbers[places])) + 1)
    labels = [data.labels.labels[group[group < data.num_labeled]] for group in groups]
    rank = sorted(
        range(len(groups)),
        key=lambda k: (-len(np.unique(labels[k])), -len(groups[k])),
    )
    return [
        ImageGroup(
            f"Group {numbers[groups[k][0]]}",
            (ImageRow("", groups[k], IN_DUPLICATES),),
            "Several labels." if len(np.unique(labels[k])) > 1 else "",
        )
        for k in rank[:most]
    ], len(groups)
