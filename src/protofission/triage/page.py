"""The page of a triage: one file with thumbnails, links, a histogram and tables."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from protofission import __version__
from protofission.core.array_types import Ints
from protofission.core.errors import printable
from protofission.core.number_words import percent
from protofission.core.records import NO_CLASS
from protofission.pages.score_histogram import HEIGHT, WIDTH, score_histogram
from protofission.pages.template import render
from protofission.system.whole_files import write_text
from protofission.triage.calibrated_model import ACCEPT
from protofission.triage.page_groups import (
    Gallery,
    borderline_group,
    class_group,
    doubt_group,
    duplicate_groups,
    rejected_groups,
)
from protofission.triage.triage_data import TriageData

PAGE_BYTES = 20_000_000
"""Most bytes of a page: thumbnails and names are fewer where there would be more."""
SHOWN_CLUSTERS, SHOWN_CLASSES, SHOWN_DUPLICATES, SHOWN_DOUBTS = 60, 30, 40, 60
"""Most cards of a section, and most labels in doubt."""
REJECTED, CLASSES, BORDERLINE, DUPLICATES = 900, 900, 40, 160
"""Most thumbnails of a section."""
URI_CHARACTERS = 6_000
"""Most characters of a thumbnail."""
NAME_CHARACTERS = 4_000_000
"""Most characters of the names that can be copied."""
SHOWN_PAIRS, WHOLE_MATRIX = 20, 20
"""Most pairs of confused classes; most classes of a matrix that is shown whole."""
SHOWN_SENTENCES = 100
"""Most sentences of a list."""


@dataclass(frozen=True)
class ConfusedPair:
    """Held-out images of one class that look like another."""

    label: str
    likeliest: str
    count: int
    total: int

    @property
    def share(self) -> str:
        """The share of the label's images."""
        return percent(self.count / self.total)


def write_triage_page(
    path: Path, data: TriageData, command: str, folder: Path | None = None
) -> None:
    """Write the page of a triage.

    Args:
        command: the command that made it, as typed.
        folder: that the page will lie in, by default that of `path`; links are relative to it.
    """
    place = (path.parent if folder is None else folder).absolute()
    write_text(path, triage_page(data, command, place))


def triage_page(data: TriageData, command: str, folder: Path) -> str:
    """The text of the page, with as many thumbnails and names as PAGE_BYTES allow."""
    page = ""
    for share in (1.0, 0.5, 0.25, 0.1, 0.0):
        page = _draw(data, command, folder, share)
        if len(page.encode()) <= PAGE_BYTES:
            break
    return page


def _draw(data: TriageData, command: str, folder: Path, share: float) -> str:
    """The page with a share of the usual number of thumbnails and names."""
    gallery = Gallery(data, folder, URI_CHARACTERS)
    script = render("triage.js")
    counts = _counts(data)
    confusion = data.labels.confusion(len(data.class_names))
    names = [printable(name) for name in data.class_names]
    sections = _sections(gallery, share)
    return render(
        "triage.html.jinja",
        version=__version__,
        command=command,
        script=Markup(script),
        script_hash=_script_hash(script),
        data=data,
        counts=counts,
        names=names,
        histogram=score_histogram(data.known_scores, data.pool.id_scores, data.threshold),
        plot=(WIDTH, HEIGHT),
        pairs=confused_pairs(confusion, names),
        confusion=confusion.tolist() if len(names) <= WHOLE_MATRIX else None,
        judged=int(confusion.sum()),
        right=percent(np.trace(confusion) / max(1, int(confusion.sum()))),
        class_table=_class_table(data, confusion, names),
        most_sentences=SHOWN_SENTENCES,
        **sections,
    )


def _sections(gallery: Gallery, share: float) -> dict[str, Any]:
    """The groups of all sections, drawn."""
    data = gallery.data

    def budget(thumbnails: int, names: float) -> tuple[int, int]:
        return int(share * thumbnails), int(share * names * NAME_CHARACTERS)

    rejected, more_clusters = rejected_groups(data, SHOWN_CLUSTERS)
    classes = [class_group(data, c) for c in range(len(data.class_names))[:SHOWN_CLASSES]]
    duplicates, duplicate_count = duplicate_groups(data, SHOWN_DUPLICATES)
    (doubts,) = gallery.draw([doubt_group(data, SHOWN_DOUBTS)], *budget(SHOWN_DOUBTS, 0.1), True)
    (borderline,) = gallery.draw([borderline_group(data)], *budget(BORDERLINE, 0))
    return {
        "rejected": gallery.draw(rejected, *budget(REJECTED, 0.4)),
        "more_clusters": more_clusters,
        "borderline": borderline,
        "classes": gallery.draw(classes, *budget(CLASSES, 0.4)),
        "doubts": doubts,
        "duplicates": gallery.draw(duplicates, *budget(DUPLICATES, 0.1), True),
        "duplicate_count": duplicate_count,
    }


def _script_hash(script: str) -> str:
    """The hash by which the page's security policy allows its one script."""
    return "sha256-" + b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _counts(data: TriageData) -> dict[str, int]:
    refused = data.pool.decisions != ACCEPT
    used = np.unique(data.pool.clusters[refused & (data.pool.clusters != NO_CLASS)])
    return {
        "images": len(refused),
        "accepted": int((~refused).sum()),
        "rejected": int(refused.sum()),
        "clusters": len(used),
        "doubts": int(data.labels.doubtful.sum()),
    }


def confused_pairs(confusion: Ints, names: Sequence[str]) -> list[ConfusedPair]:
    """The pairs of a label and another class that most images of it look like, most first."""
    wrong = confusion * ~np.eye(len(confusion), dtype=bool)
    order = np.argsort(-wrong, axis=None, kind="stable")[:SHOWN_PAIRS]
    totals = confusion.sum(1)
    cells = ((int(k) // len(names), int(k) % len(names)) for k in order)
    return [
        ConfusedPair(names[a], names[b], int(wrong[a, b]), int(totals[a]))
        for a, b in cells
        if wrong[a, b]
    ]


def _class_table(data: TriageData, confusion: Ints, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Name of each class, and numbers of its labeled, accepted, refused and held-out images."""
    size, pool = len(names), data.pool
    labeled = np.bincount(data.labels.labels, minlength=size)
    accepted = np.bincount(pool.classes[pool.decisions == ACCEPT], minlength=size)
    refused = np.bincount(pool.classes[pool.decisions != ACCEPT], minlength=size)
    held, right = confusion.sum(1), np.diagonal(confusion)
    return [
        (
            name,
            f"{labeled[c]:,}",
            f"{accepted[c]:,}",
            f"{refused[c]:,}",
            f"{right[c]:,} of {held[c]:,}" if held[c] else "none judged",
        )
        for c, name in enumerate(names)
    ]
