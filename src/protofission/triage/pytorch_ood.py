"""Scores to and from pytorch-ood: its detectors as our scores, our scores and models as detectors.

One sign convention holds on both sides of this file: an *OOD score* of ours and the score of a
detector of theirs are higher for what is more outlying; the *ID score* of a model is higher for
what is of a known class, so that 1 - ID score is the score of a detector. Nothing here imports
pytorch-ood: a detector is whatever has the functions below. Those of logits have `predict_logits`
since its version 0.4, and `predict_features` before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from protofission.core.distance_scores import DISTANCE_SCORES, DistanceScore
from protofission.core.errors import require, unknown
from protofission.core.scores import SCORES, Score
from protofission.models.encoders import Encoder
from protofission.triage.bundle import Bundle


class LogitsDetector(Protocol):
    """A detector of logits of pytorch-ood, as far as it is used here."""

    def predict_logits(self, logits: Tensor, /) -> Tensor:
        """(N,): outlier scores of (N, C) logits, higher is more outlying."""


class FeaturesDetector(Protocol):
    """A detector of features, or of logits before version 0.4."""

    def predict_features(self, x: Tensor, /) -> Tensor:
        """(N,): outlier scores of (N, D) features, higher is more outlying."""


class FittedDetector(FeaturesDetector, Protocol):
    """A detector that is fitted to features first."""

    def fit_features(self, x: Tensor, y: Tensor, /) -> object:
        """Fit it to (N, D) features and their (N,) classes."""


def score_of(detector: LogitsDetector | FeaturesDetector) -> Score:
    """A detector of logits, such as MaxSoftmax or EnergyBased, as a score like those of SCORES."""
    named = "predict_logits" if hasattr(detector, "predict_logits") else "predict_features"
    predict: Callable[[Tensor], Tensor] | None = getattr(detector, named, None)
    require(
        predict is not None,
        f"{type(detector).__name__} has neither predict_logits nor predict_features: give a "
        "detector of logits.",
    )
    assert predict is not None

    def score(logits: Tensor, probs: Tensor) -> Tensor:
        return _checked(predict(logits), len(logits))

    return score


def distance_score_of(make: Callable[[], FittedDetector]) -> DistanceScore:
    """A detector of features, such as Mahalanobis or KNN, as one like those of DISTANCE_SCORES.

    Args:
        make: makes a detector that is not fitted: scores are fitted more than once, so that no
            labeled image is scored by a fit that saw it.
    """

    def fit(
        labeled: Tensor, labels: Tensor, pool: Tensor, num_seen: int
    ) -> Callable[[Tensor], Tensor]:
        detector = make()
        detector.fit_features(labeled, labels)
        return lambda rows: _checked(detector.predict_features(rows), len(rows)).double()

    return fit


class ScoreDetector:
    """A score of SCORES or DISTANCE_SCORES as a detector.

    Args:
        name: of the score. One of logits needs no fit; one of distance is fitted by `fit_features`.
        pool: (M, D) unlabeled features, for a score of distance.

    Examples:
        >>> import torch
        >>> from protofission.triage.pytorch_ood import ScoreDetector
        >>> detector = ScoreDetector("energy")
        >>> detector(torch.tensor([[9.0, 0.0], [0.1, 0.0]])).argmax().item()
        1
    """

    def __init__(self, name: str, pool: Tensor | None = None) -> None:
        if name not in (known := (*SCORES, *DISTANCE_SCORES)):
            raise unknown("score", name, known)
        require(
            name in SCORES or pool is not None,
            f"The score {name} wants the features of a pool: give pool.",
        )
        self.name, self._pool = name, pool
        self._fitted: Callable[[Tensor], Tensor] | None = None
        if name in SCORES:
            self._fitted = lambda logits: SCORES[name](logits, logits.softmax(-1))

    def fit_features(self, x: Tensor, y: Tensor) -> ScoreDetector:
        """Fit a score of distance to (N, D) features of classes from 0 on; others stay as is."""
        if self._pool is not None and self.name in DISTANCE_SCORES:
            number = int(y.max()) + 1
            self._fitted = DISTANCE_SCORES[self.name](x, y, self._pool, number)
        return self

    def predict_features(self, x: Tensor) -> Tensor:
        """(N,): outlier scores of logits or features, higher is more outlying."""
        require(self._fitted is not None, f"The score {self.name} is not fitted: fit_features.")
        assert self._fitted is not None
        return self._fitted(x)

    predict = __call__ = predict_logits = predict_features


class ModelDetector:
    """A fitted model as a detector: 1 - ID score, from the features of its encoder or from images.

    For instance ``ModelDetector(protofission.load("model"))(images)``.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self._encoder: Encoder | None = None

    def predict_features(self, x: Tensor) -> Tensor:
        """(N,): outlier scores of (N, D) features of the model's encoder, between 0 and 1."""
        return 1 - self.bundle.predict_features(x.detach().cpu().numpy()).id_scores

    def predict(self, x: Tensor) -> Tensor:
        """(N,): outlier scores of (N, 1 or 3, h, w) images in [0, 1]."""
        if self._encoder is None:
            self._encoder = self.bundle.encoder()
        return self.predict_features(self._encoder.features(x))

    __call__ = predict


def _checked(scores: Tensor, rows: int) -> Tensor:
    require(
        isinstance(scores, Tensor) and scores.shape == (rows,),
        f"The detector gave scores of the shape {tuple(getattr(scores, 'shape', ()))} for {rows} "
        "rows: one a row is wanted.",
    )
    return scores
