"""A scikit-learn classifier for feature arrays, of which most rows have no label."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from protofission.core.array_types import Floats, Ints
from protofission.core.checks import LARGEST_COUNT
from protofission.core.errors import require
from protofission.triage.calibrated_model import (
    ACCEPT,
    JUDGED_AT_ONCE,
    Verdicts,
    judge,
    subclass_use,
)
from protofission.triage.fit_model import FitResult, fit_features
from protofission.triage.fit_options import (
    MOST_CLUSTERS,
    MOST_FOLDS,
    MOST_PROTOTYPES,
    FitOptions,
)
from protofission.triage.folds import NO_FOLD
from protofission.triage.independent_rows import compute_rows, row_by_row

Bools = NDArray[np.bool_]

COUNTS = {
    "n_novel": (0, MOST_CLUSTERS),
    "prototypes": (1, MOST_PROTOTYPES),
    "width": (1, LARGEST_COUNT),
    "steps": (1, LARGEST_COUNT),
    "folds": (1, MOST_FOLDS),
}
"""Options that are whole numbers, with the least and the largest."""
COUNTED = ("n_novel", "prototypes")
"""Options that may be "auto"."""
FAR_OFF = 2.0**10
"""A feature whose mean is this many deviations away from 0 is moved there before it is rounded to
single precision."""
LEAST_SPREAD, MOST_SPREAD = 2.0**-30, 2.0**30
"""Largest deviations of a feature between which all features are left at their scale."""
FARTHEST_FEATURE = 1e100
"""Features are cut off here, so that their squares are finite."""


class PrototypeFissionClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Known classes from a few labels and a pool of unlabeled rows, some of them strangers.

    This is `protofission.fit` for arrays: the same features and options give the same model. The
    labels are divided into folds. Each model learns from the labels of the other folds and from the
    unlabeled rows, and judges its own fold; so every label sets the temperature of the
    probabilities and the threshold below which a row is of no known class. New rows are judged by
    all models.

    Rows are standardized and compared by their direction from the mean of all rows. So a stranger
    beyond a class, in that class's own direction, looks like the class, however far away it is.

    Args:
        n_novel: the number of clusters of rejected rows, the candidates for novel classes; "auto"
            or 0 for as many as are found. With 0, `calibrated_model_` calls what is in a cluster
            rejected, else novel; `predict` does not tell them apart.
        prototypes: V, the prototypes of a class, and its most sub-classes; with "auto" sub-classes
            are counted.
        width: output features of the trained map; `transform` does not depend on it.
        steps: training steps of each model.
        keep: the share of rows of known classes that is to be accepted; fresh rows like the labeled
            ones are, on average over fits. Fewer than 1 / (1 - keep) - 1 labels cannot set such a
            threshold: then a warning is given, and nothing is rejected.
        folds: the number of folds; with 1, three tenths of the labels or what `keep` wants are
            held out instead, at most half, and are not learned from.
        reject: whether `predict` says `unlabeled` of a row that is of no known class, or names the
            likeliest one all the same. It may be changed after `fit`.
        unlabeled: marks rows without a label in `y`, and rows of no known class in `predict`. Among
            labels that are text it is text too, "-1".
        random_state: an int for the same result each time, that of `protofission.fit` with this
            seed.

    Attributes:
        classes_: the known classes, in order.
        threshold_: the `score_samples` from which on a row is accepted.
        temperature_: divides the logits of the known classes.
        method_: the method that was trained; a supervised one without unlabeled rows, or where it
            was better than learning from them.
        n_novel_: clusters of rejected rows, given or found.
        n_held_out_: labels that set temperature and threshold, each by a model that did not learn
            from it.
        guarantee_: the `Guarantee` of the threshold; `guarantee_.sentence()` says it.
        strangers_: the `ShareEstimate` of the unlabeled rows of no known class, with its interval.
        subclass_usage_: (classes, most sub-classes), the share of each sub-class in the accepted
            rows of its class, of all rows that `fit` got; 0 for a class of which none was accepted.
        offset_, scale_: of the features. Single precision holds most features as they are: 0 and 1.
            A feature whose mean is large beside its deviation is moved to 0, and all are scaled by
            a power of 2 where they are very large or small; a constant one has scale 0.
        calibrated_model_: the `FoldEnsemble`, a torch module, of (rows - offset_) * scale_.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    Examples:
        >>> from sklearn.datasets import load_digits
        >>> from protofission import PrototypeFissionClassifier
        >>> rows, digits = load_digits(return_X_y=True)
        >>> y = digits.copy()
        >>> y[300:] = -1  # 300 labels; of these, digits from 5 on are strangers
        >>> y[digits > 4] = -1
        >>> model = PrototypeFissionClassifier(steps=30, folds=2, random_state=0).fit(rows, y)
        >>> predicted = model.predict(rows[1000:])
        >>> sorted(set(predicted.tolist()))
        [-1, 0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        n_novel: int | Literal["auto"] = 0,
        *,
        prototypes: int | Literal["auto"] = FitOptions.prototypes,
        width: int = FitOptions.width,
        steps: int = FitOptions.steps,
        keep: float = FitOptions.keep,
        folds: int = FitOptions.folds,
        reject: bool = True,
        unlabeled: Any = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_novel = n_novel
        self.prototypes = prototypes
        self.width = width
        self.steps = steps
        self.keep = keep
        self.folds = folds
        self.reject = reject
        self.unlabeled = unlabeled
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803
        """Learn from (n, D) features and n labels, of which some are `unlabeled`."""
        options = self._options()
        features, targets = validate_data(self, X, y, dtype=np.float64, order="C")
        free = self._unlabeled_in(targets)
        require(
            not free.all(),
            f"y holds no label, {self.unlabeled!r} everywhere: label rows of two classes or more.",
        )
        check_classification_targets(targets[~free])
        self.classes_, labels = np.unique(targets[~free], return_inverse=True)
        require(
            len(self.classes_) > 1,
            f"y holds one class only, {self.classes_.tolist()[0]!r}: label rows of two or more "
            f"({self.unlabeled!r} marks rows without a label).",
        )
        require(
            self.n_novel in (0, "auto") or bool(free.any()),
            f"n_novel = {self.n_novel} wants unlabeled rows, and y has none: mark some with "
            f"{self.unlabeled!r}, or set n_novel=0.",
        )
        self.offset_, self.scale_ = _offset_and_scale(features)
        rows = self._move(features)
        labeled, pool = (rows[chosen].float().numpy() for chosen in (~free, free))
        result = fit_features(labeled, labels, lambda some: pool[some], len(pool), options)
        self._take(result)
        with row_by_row():
            self._rank_again(rows[~free], result.folds)
            use = subclass_use(self.calibrated_model_, self._judge(rows)).double()
        self.subclass_usage_ = (use / use.sum(1, keepdim=True).clamp_min(1)).numpy()
        if not result.guarantee.rank:
            warnings.warn(
                f"{self.n_held_out_} labels could set the threshold, too few to promise keep = "
                f"{self.keep}: none is rejected; label more rows, or lower keep.",
                UserWarning,
                stacklevel=2,
            )
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """(n,): the class of each row; `unlabeled` where it is of none, unless `reject=False`."""
        found = self._judge(self._rows(X))
        names = self.classes_[found.classes.numpy()]
        if not self.reject:
            return cast(NDArray[Any], names)
        marker = np.asarray(self.unlabeled)
        if isinstance(self.classes_[0], str):
            marker = np.asarray(str(self.unlabeled))
        elif isinstance(self.unlabeled, str):  # beside numbers, which are not to become text
            marker = marker.astype(object)
        return np.where(found.decisions.numpy() == ACCEPT, names, marker)

    def predict_proba(self, X: ArrayLike) -> Floats:  # noqa: N803
        """(n, classes): calibrated probabilities of the known classes, if it is one of them."""
        return cast(Floats, self._judge(self._rows(X)).probs.numpy())

    def decision_function(self, X: ArrayLike) -> Floats:  # noqa: N803
        """(n, classes): logarithms of the probabilities; of two classes (n,), that of the odds."""
        logits = self._logits(self._rows(X)) / self.calibrated_model_.temperature
        if len(self.classes_) == 2:
            return cast(Floats, (logits[:, 1] - logits[:, 0]).numpy())
        return cast(Floats, logits.log_softmax(-1).numpy())

    def score_samples(self, X: ArrayLike) -> Floats:  # noqa: N803
        """(n,) in (0, 1): about the share of known rows that look no more like a known class.

        A row is accepted from `threshold_` on.
        """
        return cast(Floats, self._judge(self._rows(X)).id_scores.numpy())

    def predict_subclass(self, X: ArrayLike) -> Ints:  # noqa: N803
        """(n,): the number of the nearest sub-class of the likeliest known class."""
        return cast(Ints, self._judge(self._rows(X)).subclasses.numpy())

    def predict_cluster(self, X: ArrayLike) -> Ints:  # noqa: N803
        """(n,): the nearest cluster of each row, in [0, n_novel_); -1 where the row is accepted.

        It is -1 everywhere if there are no clusters: `fit` found none, or got no unlabeled rows.
        """
        return cast(Ints, self._judge(self._rows(X)).clusters.numpy())

    def transform(self, X: ArrayLike) -> Floats:  # noqa: N803
        """(n, d): unit vectors of the space in which sub-classes are told apart, d at most 64.

        It is whitened by the scatter within the sub-classes that `fit` found in all rows that it
        got, but for rejected ones; cosines to a sub-class's center decide.
        """
        return cast(Floats, compute_rows(self.calibrated_model_.parts.units, self._rows(X)).numpy())

    def score(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """The accuracy on the rows that have a label; for the others nobody knows what is right."""
        targets = column_or_1d(y)
        labeled = ~self._unlabeled_in(targets)
        require(
            bool(labeled.any()),
            f"y holds no label, {self.unlabeled!r} everywhere: score wants some.",
        )
        weights = None if sample_weight is None else column_or_1d(sample_weight)[labeled]
        guesses = self.predict(X)[labeled]
        return float(accuracy_score(targets[labeled], guesses, sample_weight=weights))

    @property
    def _n_features_out(self) -> int:
        return self.calibrated_model_.parts.sizes.width

    def _options(self) -> FitOptions:
        """The options of the fit, checked."""
        for name, (least, most) in COUNTS.items():
            value, auto = getattr(self, name), name in COUNTED
            whole = isinstance(value, Integral) and least <= int(value) <= most
            require(
                whole or (auto and isinstance(value, str) and value == "auto"),
                f"{name} = {value!r} must be a whole number from {least} to {most:,}"
                f"{', or auto' * auto}.",
            )
        marks = isinstance(self.unlabeled, str | None) or (
            isinstance(self.unlabeled, Real) and math.isfinite(self.unlabeled)
        )
        require(
            marks,
            f"unlabeled = {self.unlabeled!r} can mark no row: give a number or a text that is no "
            "class, as -1, and mark rows without a label by it.",
        )
        require(
            isinstance(self.keep, Real) and 0 < float(self.keep) < 1,
            f"keep = {self.keep!r} must lie between 0 and 1, as 0.95 does.",
        )
        random = check_random_state(self.random_state)
        seed = self.random_state if isinstance(self.random_state, Integral) else None
        return FitOptions(
            keep=float(self.keep),
            discover=self.n_novel if self.n_novel == "auto" else int(self.n_novel),
            prototypes=self.prototypes if self.prototypes == "auto" else int(self.prototypes),
            folds=int(self.folds),
            steps=int(self.steps),
            width=int(self.width),
            seed=int(random.randint(2**31 - 1) if seed is None else seed),
        )

    def _unlabeled_in(self, targets: NDArray[Any]) -> Bools:
        """(n,): mask of the rows without a label."""
        return np.asarray((targets == self.unlabeled) | (targets == str(self.unlabeled)), bool)

    def _rows(self, X: ArrayLike) -> Tensor:  # noqa: N803
        """(n, D): rows from a user, checked and moved."""
        check_is_fitted(self)
        return self._move(validate_data(self, X, dtype=np.float64, reset=False))

    def _move(self, features: Floats) -> Tensor:
        """(n, D): (features - offset_) * scale_."""
        features = np.clip(features, -FARTHEST_FEATURE, FARTHEST_FEATURE)
        return torch.from_numpy(np.ascontiguousarray((features - self.offset_) * self.scale_))

    def _take(self, result: FitResult) -> None:
        """Keep the model of a fit, in double precision, and its numbers."""
        self.calibrated_model_ = result.calibrated_model.double()
        self.calibrated_model_.threshold.fill_(result.guarantee.threshold)
        self.temperature_ = float(self.calibrated_model_.temperature)
        self.threshold_ = result.guarantee.threshold
        self.method_, self.n_novel_ = result.method, self.calibrated_model_.num_clusters
        self.n_held_out_, self.guarantee_ = result.guarantee.images, result.guarantee
        self.strangers_ = result.strangers

    def _rank_again(self, labeled: Tensor, folds: Ints) -> None:
        """Score the labels as new rows are scored, so that equal rows have equal scores."""
        judged = np.flatnonzero(folds != NO_FOLD)
        model, own = self.calibrated_model_, torch.from_numpy(folds[judged])
        parts = torch.split(labeled[judged], JUDGED_AT_ONCE)
        scores = torch.cat([model.by_model(some)[1] for some in parts])
        scores = scores[torch.arange(len(own)), own]
        sorted_scores = [scores[own == fold].sort().values for fold in range(len(model.models))]
        model.label_scores.copy_(torch.cat(sorted_scores))

    def _logits(self, rows: Tensor) -> Tensor:
        """(n, classes): of the known classes, before the temperature."""
        return compute_rows(self.calibrated_model_.logits, rows)

    def _judge(self, rows: Tensor) -> Verdicts:
        with row_by_row():
            return judge(self.calibrated_model_, torch.split(rows, JUDGED_AT_ONCE))


def _offset_and_scale(features: Floats) -> tuple[Floats, Floats]:
    """(D,) twice: what features lose, and are multiplied by, so that single precision holds them.

    Constant features, but for rounding, are multiplied by 0. All others share one power of 2.
    """
    features = np.clip(features, -FARTHEST_FEATURE, FARTHEST_FEATURE)
    mean, deviation = features.mean(0), features.std(0)
    varies = deviation > 1e-12 * np.abs(mean)
    offset = np.where(varies & (np.abs(mean) > FAR_OFF * deviation), mean, 0.0)
    largest = float(deviation.max(where=varies, initial=0.0))
    fits = LEAST_SPREAD <= largest <= MOST_SPREAD or not largest
    factor = 1.0 if fits else 2.0 ** -max(math.frexp(largest)[1], -1000)
    return offset, np.where(varies, factor, 0.0)
