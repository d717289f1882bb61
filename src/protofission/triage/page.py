"""The page of a fit: accepted and refused images, sub-classes and novel clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protofission import __version__
from protofission.core.array_types import Ints
from protofission.core.errors import printable
from protofission.data.image_sets import PixelRows
from protofission.pages.contact_sheets import Sheet, Strip, picture_row, png_uri, strip_scale
from protofission.pages.template import render
from protofission.system.whole_files import write_text
from protofission.triage.calibrated_model import ACCEPT, NOVEL, slot_use
from protofission.triage.fit_model import FitResult, prototype_sentences

SHOWN_GROUPS = 30
"""Most classes, and most clusters, on a page."""
PLACES = 10
"""Most images in a strip."""


@dataclass(frozen=True)
class PoolVerdicts:
    """The verdicts on a pool as arrays."""

    classes: Ints
    subclasses: Ints
    decisions: Ints
    clusters: Ints
    id_scores: NDArray[np.float32]
    probability: NDArray[np.float32]

    @staticmethod
    def of(fitted: FitResult) -> PoolVerdicts:
        """The verdicts of a fit on its pool."""
        found = fitted.pool
        return PoolVerdicts(
            found.classes.numpy(),
            found.subclasses.numpy(),
            found.decisions.numpy(),
            found.clusters.numpy(),
            found.id_scores.numpy(),
            found.probs.amax(-1).numpy(),
        )


def write_triage_page(
    path: Path,
    fitted: FitResult,
    pixels: PixelRows,
    class_names: Sequence[str],
    subclass_names: Sequence[Sequence[str]],
    cluster_names: Sequence[str],
    findings: Sequence[str],
    command: str,
) -> None:
    """Write the page of a fit.

    Args:
        pixels: (U, channels, height, width), the images of the pool.
        findings: sentences on the data, as `FitData` has them.
        command: the command that made it, as typed.
    """
    pool = PoolVerdicts.of(fitted)
    names = [printable(name) for name in class_names]
    page = render(
        "triage.html.jinja",
        version=__version__,
        command=command,
        findings=findings,
        names=names,
        shown=SHOWN_GROUPS,
        counts=_counts(pool),
        fitted=fitted,
        health=prototype_sentences(slot_use(fitted.calibrated_model, fitted.pool).numpy(), names)[
            :SHOWN_GROUPS
        ],
        sheets=[
            _class_sheet(pool, pixels, number, name, list(map(printable, parts)))
            for number, (name, parts) in enumerate(
                zip(names[:SHOWN_GROUPS], subclass_names, strict=False)
            )
        ],
        cluster_count=len(cluster_names),
        clusters=[
            _cluster_sheet(pool, pixels, number, printable(name))
            for number, name in enumerate(cluster_names[:SHOWN_GROUPS])
        ],
    )
    write_text(path, page)


def _counts(pool: PoolVerdicts) -> dict[str, Any]:
    return {
        "images": len(pool.decisions),
        "accepted": int((pool.decisions == ACCEPT).sum()),
        "novel": int((pool.decisions == NOVEL).sum()),
    }


def _class_sheet(
    pool: PoolVerdicts, pixels: PixelRows, number: int, name: str, parts: Sequence[str]
) -> Sheet:
    own = pool.classes == number
    accepted = np.flatnonzero(own & (pool.decisions == ACCEPT))
    refused = np.flatnonzero(own & (pool.decisions != ACCEPT))
    certain = accepted[np.argsort(-pool.id_scores[accepted], kind="stable")]
    strips = [
        _strip("most certain", len(accepted), certain, pixels, name),
        _strip("least certain that were accepted", len(accepted), certain[::-1], pixels, name),
        _strip(
            "not accepted, and nearest to this class",
            len(refused),
            refused[np.argsort(-pool.id_scores[refused], kind="stable")],
            pixels,
            name,
        ),
    ]
    used = [np.flatnonzero(pool.subclasses[certain] == slot) for slot in range(len(parts))]
    if sum(len(places) > 0 for places in used) > 1:
        strips += [
            _strip(f"sub-class {part}", len(places), certain[places], pixels, name)
            for part, places in zip(parts, used, strict=True)
        ]
    return Sheet(f"{name} · {len(accepted):,} accepted", tuple(filter(None, strips)), "")


def _cluster_sheet(pool: PoolVerdicts, pixels: PixelRows, number: int, name: str) -> Sheet:
    members = np.flatnonzero(pool.clusters == number)
    members = members[np.argsort(pool.id_scores[members], kind="stable")]
    strip = _strip("least like a known class", len(members), members, pixels, name)
    return Sheet(f"{name} · {len(members):,} images", (strip,) if strip else (), "")


def _strip(label: str, count: int, members: Ints, pixels: PixelRows, name: str) -> Strip | None:
    shown = members[:PLACES]
    if not len(shown):
        return None
    row = picture_row(pixels[shown], np.zeros(len(shown), bool), PLACES)
    scale = strip_scale(row)
    return Strip(
        label=f"{label} · {count:,} image{'s' * (count != 1)}",
        alt=f"{len(shown)} images of {name}: {label}.",
        uri=png_uri(row),
        width=scale * row.shape[1],
        height=scale * row.shape[0],
    )
