"""Compare new images with those that a model was calibrated on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from protofission.core.errors import printable, require
from protofission.core.number_words import images as images_text
from protofission.core.number_words import percent
from protofission.core.progress import Progress
from protofission.core.score_drift import Drift, drift_test
from protofission.system.paths import path_of, paths_of
from protofission.triage.calibrated_model import ACCEPT, DECISIONS
from protofission.triage.one_screen import fit_screen, shorten
from protofission.triage.prediction_blocks import PredictionJob


@dataclass(frozen=True)
class ClassShare:
    """Frequency of a class among accepted new images, and among the labeled ones of the fit."""

    name: str
    labeled: float | None
    """Share of the labeled images of the fit; none where the bundle's card has no counts."""
    found: int
    """New images that are accepted as this class."""
    accepted: int
    """New images that are accepted as any class."""

    def line(self) -> str:
        """The shares as a sentence."""
        return self._line(self.name)

    def short_line(self) -> str:
        """The shares as a sentence, with a long name cut."""
        return self._line(shorten(self.name))

    def change(self) -> float:
        """Difference of the two shares; the share itself where there is only one."""
        return abs(self.found / self.accepted - (self.labeled or 0.0))

    def _line(self, name: str) -> str:
        before = "" if self.labeled is None else f", {percent(self.labeled)} of the labeled ones"
        return (
            f"{printable(name)}: {self.found:,} of {images_text(self.accepted, 'accepted')} "
            f"({percent(self.found / self.accepted)}){before}."
        )


@dataclass(frozen=True)
class DriftReport:
    """New images against held-out ones: their ID scores, and which classes they are taken for."""

    scores: Drift
    classes: tuple[ClassShare, ...]
    """Share of each class; empty if no new image is accepted."""
    errors: int
    """Images that could not be read."""

    def lines(self) -> list[str]:
        """The report as sentences, the verdict first."""
        return [*self._head(), *(share.line() for share in self.classes)]

    def screen(self) -> list[str]:
        """The report as sentences that fit one screen: the classes that changed most come first."""
        shares = sorted(self.classes, key=ClassShare.change, reverse=True)
        more = "And {} more classes that changed less: --all lists them."
        return fit_screen(self._head(), [share.short_line() for share in shares], more)

    def _head(self) -> list[str]:
        errors = [f"{images_text(self.errors)} cannot be read."] if self.errors else []
        return [self.scores.sentence(), self.scores.rejections(), *errors]


def drift(
    model: Path | str,
    images: Path | str | Iterable[Path | str],
    *,
    processes: int = 1,
    progress: Progress | None = None,
    allow_download: bool = False,
) -> DriftReport:
    """Compare new images with the held-out ones whose ID scores a bundle keeps.

    Args:
        model: the folder of a model, as `fit` writes it.
        images: as `predict` takes them.
        processes: how many compute, as for `predict`.
        progress: called with the number of images done, and of all.
        allow_download: get the encoder from the hub, if it is not on this machine.
    """
    job = PredictionJob.of(path_of(model), paths_of(images), processes, allow_download)
    bundle = job.predictor.bundle
    require(
        len(bundle.calibration) > 0,
        f"{printable(str(model))} keeps no scores of held-out images to compare with: fit "
        "the model again.",
    )
    scores: list[float] = []
    accepted: Counter[str] = Counter()
    reasons: list[str] = []
    with closing(job.rows(progress=progress)) as blocks:
        for rows in blocks:
            scores += [row.id_score for row in rows if row.id_score is not None]
            reasons += [row.error for row in rows if row.id_score is None]
            accepted.update(row.class_name for row in rows if row.decision == DECISIONS[ACCEPT])
    require(
        len(scores) > 0,
        f"{images_text(len(reasons))} cannot be read, and there are no others "
        f"({printable(next(iter(reasons), ''))}): give some that can.",
    )
    labeled = _labeled_counts(bundle.card)
    total, known = accepted.total(), sum(labeled.get(name, 0) for name in bundle.class_names)
    new = np.array(scores, np.float32)  # as the held-out scores are, so that ties are ties
    return DriftReport(
        drift_test(bundle.calibration, new, float(bundle.calibrated_model.threshold)),
        tuple(
            ClassShare(name, labeled.get(name, 0) / known if known else None, accepted[name], total)
            for name in bundle.class_names
            if total
        ),
        len(reasons),
    )


def _labeled_counts(card: dict[str, Any]) -> dict[str, int]:
    """The number of labeled images of each class, if the card of a fit has it."""
    data = card.get("data")
    found = data.get("labeled") if isinstance(data, dict) else None
    counts = found if isinstance(found, dict) else {}
    return {name: count for name, count in counts.items() if isinstance(count, int) and count > 0}
