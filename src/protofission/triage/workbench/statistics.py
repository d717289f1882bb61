"""Before and after a refit, on the same labels, each judged by a model that did not learn from it.

Models are compared label by label, by how many classes are right and by how often a label scores
above an image of the pool (`triage.pool_guard`), and a difference is claimed only where chance
would hardly give it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import beta, binomtest

from protofission.core.array_types import Floats, Ints
from protofission.core.number_words import percent
from protofission.core.rng import step_rng
from protofission.triage.calibrated_model import JUDGED_AT_ONCE
from protofission.triage.fold_ensemble import FoldEnsemble
from protofission.triage.fold_training import Rows
from protofission.triage.folds import Mask
from protofission.triage.pool_guard import (
    FEWEST_TOLD,
    RESAMPLES,
    TOLD_APART,
    FoldVerdicts,
    RankedPairs,
    standardize,
)

CONFIDENCE = 0.95
"""Confidence of all intervals."""


@dataclass(frozen=True)
class CountedShare:
    """A share of n images, and its interval by Clopper and Pearson."""

    count: int
    total: int

    @property
    def share(self) -> float | None:
        """The share, if there are any images."""
        return self.count / self.total if self.total else None

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """The shares that so many of n are not too improbable for."""
        k, n, tail = self.count, self.total, (1 - confidence) / 2
        low = float(beta.ppf(tail, k, n - k + 1)) if k else 0.0
        high = float(beta.ppf(1 - tail, k + 1, n - k)) if k < n else 1.0
        return low, high

    def sentence_part(self) -> str:
        """Such as "24 of 27 (71 % to 98 %)"."""
        low, high = self.interval()
        return f"{self.count:,} of {self.total:,} ({percent(low, 0)} to {percent(high, 0)})"


@dataclass(frozen=True)
class HeldOutVerdicts:
    """Verdicts of the models of one fit on n labels that they did not learn from."""

    right: Mask
    """(n,)"""
    verdicts: FoldVerdicts
    """Scores of the labels, and of the same images of the pool by every model."""
    accepted: Mask
    """(n,): whether the score reaches the threshold."""


@torch.no_grad()
def judge_held_out(
    ensemble: FoldEnsemble,
    rows: Rows,
    labels: Ints,
    classes: Ints,
    folds: Ints,
    pool: Rows,
    own: Mask,
) -> HeldOutVerdicts:
    """Judge labels by the model of their fold alone, and the pool by every model.

    A label's score by its model, standardized, is taken for the score by every model: so it has an
    ID score as `FoldScores.label_id_scores` defines it.

    Args:
        rows: (n, D).
        labels: (n,): ids of the classes that are right.
        classes: (S,): ids of the model's classes.
        folds: (n,): the model that judges each; it did not learn from it.
        pool: (U, D).
        own: (n,): labels that are themselves among those that the ensemble ranks images by.
    """
    logits, scores = ensemble.by_model(torch.from_numpy(rows))
    places = torch.arange(len(rows)), torch.from_numpy(folds)
    single = scores[places]
    t = (single - ensemble.centers[places[1]]) / ensemble.scales[places[1]]
    moved = t[:, None] * ensemble.scales + ensemble.centers
    moved[places] = single
    ranked = sum(ensemble.fold_sizes)
    ids = ensemble.id_scores(moved).double().numpy()
    ids = np.where(own, (ids * (ranked + 1) - 1) / max(ranked, 1), ids)
    chunks = torch.split(torch.from_numpy(pool), JUDGED_AT_ONCE)
    of_pool = torch.cat([ensemble.by_model(some)[1] for some in chunks]).double().numpy()
    models = of_pool.shape[1]
    right: Mask = classes[logits[places].argmax(1).numpy()] == labels
    return HeldOutVerdicts(
        right=right,
        verdicts=FoldVerdicts(
            right=right,
            scores=single.double().numpy(),
            folds=folds,
            pool=of_pool.reshape(-1),
            parts=np.tile(np.arange(models), len(pool)),
            images=np.repeat(np.arange(len(pool)), models),
        ),
        accepted=ids >= float(ensemble.threshold),
    )


@dataclass(frozen=True)
class Comparison:
    """Two fits on the same labels."""

    right: tuple[CountedShare, CountedShare]
    """Labels whose class is right, before and after."""
    gained: int
    """Labels that are right after and were wrong before."""
    lost: int
    """The other way round."""
    above: tuple[float, float]
    """Share of pairs in which a label scores above an image of the pool, before and after."""
    above_error: float
    """The standard error of its difference."""
    pool: int
    """Images of the pool in these pairs."""
    random: tuple[CountedShare, CountedShare]
    """Random images of known classes that are accepted, before and after."""

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """Difference of accuracies: holds with CONFIDENCE at least, however few labels."""
        half = 1 - (1 - CONFIDENCE) / 2  # each of two intervals fails in half of the cases
        n = self.right[0].total
        up, down = (CountedShare(k, n).interval(half) for k in (self.gained, self.lost))
        return up[0] - down[1], up[1] - down[0]

    @property
    def accuracy_chance(self) -> float:
        """The probability of so uneven gains and losses if both were alike (McNemar, exact)."""
        changed = self.gained + self.lost
        return float(binomtest(self.gained, changed).pvalue) if changed else 1.0

    @property
    def above_told_apart(self) -> bool:
        """Whether the difference in pairs is hardly chance."""
        enough = min(self.right[0].total, self.pool) >= FEWEST_TOLD
        return enough and abs(self.above[1] - self.above[0]) > TOLD_APART * self.above_error

    def sentences(self) -> list[str]:
        """The comparison in words that claim no more than the number of labels allows."""
        n = self.right[0].total
        if not n:
            return ["There is no label by which before and after can be compared."]
        lines = [self._accuracy_sentence(n)]
        if self.pool:
            lines.append(self._above_sentence())
        if self.random[0].total:
            lines.append(
                "Of images drawn at random that are of a known class, the model before accepts "
                f"{self.random[0].sentence_part()}, and this one {self.random[1].sentence_part()}."
            )
        return lines

    def _accuracy_sentence(self, n: int) -> str:
        before, after = (share.count for share in self.right)
        found = (
            f"Of {n:,} labels, each judged by a model that did not learn from it, {before:,} were "
            f"right before and {after:,} are now ({self.gained:,} gained, {self.lost:,} lost)"
        )
        if not self.gained + self.lost:
            return f"{found}: no difference."
        if self.accuracy_chance < 1 - CONFIDENCE:
            return f"{found}: {'better' if after > before else 'worse'}, and hardly by chance."
        return f"{found}: that can be chance."

    def _above_sentence(self) -> str:
        before, after = self.above
        found = (
            f"A label scores above an image of the pool in {percent(before)} of pairs before and "
            f"{percent(after)} now"
        )
        if not self.above_told_apart:
            return f"{found}: that can be chance."
        better = "known images and strangers are told apart better"
        return f"{found}: {better if after > before else better.replace('better', 'worse')}."

    def facts(self, which: int) -> dict[str, Any]:
        """The figures of before (0) or after (1) as plain JSON values."""
        right, random = self.right[which], self.random[which]
        return {
            "accuracy": right.share,
            "accuracy_interval": list(right.interval()) if right.total else None,
            "labels": right.total,
            "above": self.above[which] if self.pool and right.total else None,
            "kept": random.share,
            "kept_interval": list(random.interval()) if random.total else None,
            "random": random.total,
        }


def compare_fits(
    before: HeldOutVerdicts, after: HeldOutVerdicts, random: Mask, seed: int
) -> Comparison:
    """Compare two fits on the same labels and images of the pool.

    Args:
        random: (n,): labels that were drawn at random and did not set the threshold before.
    """
    both = before.verdicts, after.verdicts
    n, size = len(before.right), int(both[0].images.max(initial=-1)) + 1
    above, error = (0.0, 0.0), 0.0
    if n and size:
        ranked = [RankedPairs.of(standardize(each)) for each in both]
        above = _above_of(ranked, np.ones(n), np.ones(size))
        generator = np.random.default_rng(step_rng(seed, 0, "before and after").initial_seed())
        pairs = [
            _above_of(ranked, generator.exponential(size=n), generator.exponential(size=size))
            for _ in range(RESAMPLES)
        ]
        error = float(np.std([later - earlier for earlier, later in pairs]))
    drawn = int(random.sum())
    return Comparison(
        right=(CountedShare(int(before.right.sum()), n), CountedShare(int(after.right.sum()), n)),
        gained=int((after.right & ~before.right).sum()),
        lost=int((before.right & ~after.right).sum()),
        above=above,
        above_error=error,
        pool=size,
        random=(
            CountedShare(int(before.accepted[random].sum()), drawn),
            CountedShare(int(after.accepted[random].sum()), drawn),
        ),
    )


def _above_of(both: list[RankedPairs], known: Floats, pool: Floats) -> tuple[float, float]:
    return both[0].share_above(known, pool), both[1].share_above(known, pool)
