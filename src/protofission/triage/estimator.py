"""A scikit-learn classifier for feature arrays, of which most rows have no label."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, Self, cast

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
from torch import Tensor, nn

from protofission.core.array_types import Floats, Ints
from protofission.core.checks import LARGEST_COUNT
from protofission.core.errors import require
from protofission.core.threads import one_thread
from protofission.data.augment.feature_views import FeatureViews
from protofission.data.image_sets import TrainingData
from protofission.models.adapters import Adapter
from protofission.models.model import Model
from protofission.triage.calibrated_model import (
    ACCEPT,
    JUDGED_AT_ONCE,
    CalibratedModel,
    Verdicts,
    judge,
    slot_use,
)
from protofission.triage.calibration import calibrate, hold_out
from protofission.triage.independent_rows import compute_rows, row_by_row
from protofission.triage.quick_training import QuickTraining, train_quickly

Bools = NDArray[np.bool_]

HELD_OUT = 0.2
"""The share of the labels that sets temperature and threshold, and is not learned from."""


class PrototypeFissionClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Known classes from a few labels and a pool of unlabeled rows, some of them strangers.

    A part of the labels is held out, a fifth or what `keep` wants, at most half. It sets the
    temperature of the probabilities and the threshold below which a row is of no known class.

    Rows are compared by their direction from the mean of all rows. So a stranger beyond a class, in
    that class's own direction, looks like the class, however far away it is.

    Args:
        n_novel: how many novel classes to look for among the unlabeled rows; with 0, what is of no
            known class is rejected, and that is all.
        prototypes: V, the prototypes of a class.
        width: features that `transform` gives.
        steps: training steps.
        keep: the share of rows of known classes that is to be accepted; fresh rows like the labeled
            ones are, on average over fits; with 20 held-out labels one fit is off by 0.05 or so.
            Fewer than 1 / (1 - keep) - 1 of them cannot promise it: then a warning is given, and
            nothing is rejected, or where novel classes are looked for what is nearest to one.
        reject: whether `predict` says `unlabeled` of a row that is of no known class, or names the
            likeliest one all the same. It may be changed after `fit`.
        unlabeled: marks rows without a label in `y`, and rows of no known class in `predict`. Among
            labels that are text it is text too, "-1".
        random_state: an int for the same result each time.

    Attributes:
        classes_: the known classes, in order.
        threshold_: the `score_samples` from which on a row is accepted.
        temperature_: divides the logits of the known classes.
        method_: the method that was trained; without unlabeled rows a supervised one.
        n_novel_: novel classes that were looked for.
        n_held_out_: labels that were held out.
        subclass_usage_: (classes, prototypes), the share of each prototype in the accepted rows of
            its class, of all rows that `fit` got; 0 for a class of which none was accepted.
        mean_, scale_: of the features; rows are standardized first.
        calibrated_model_: the `CalibratedModel` of standardized rows, a torch module.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.
    """

    def __init__(
        self,
        n_novel: int = 0,
        *,
        prototypes: int = 5,
        width: int = 256,
        steps: int = 200,
        keep: float = 0.95,
        reject: bool = True,
        unlabeled: Any = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_novel = n_novel
        self.prototypes = prototypes
        self.width = width
        self.steps = steps
        self.keep = keep
        self.reject = reject
        self.unlabeled = unlabeled
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803
        """Learn from (n, D) features and n labels, of which some are `unlabeled`."""
        self._check_options()
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
            self.n_novel == 0 or bool(free.any()),
            f"n_novel = {self.n_novel} wants unlabeled rows, and y has none: mark some with "
            f"{self.unlabeled!r}, or set n_novel=0.",
        )
        self.n_novel_ = int(self.n_novel)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held = hold_out(labels, HELD_OUT, float(self.keep), seed, apart=False)
        learns = free.copy()
        learns[np.flatnonzero(~free)[held.training]] = True
        self.mean_, self.scale_ = features[learns].mean(0), features[learns].std(0)
        self.scale_[self.scale_ <= 1e-12 * np.abs(self.mean_)] = 1.0  # constant, but for rounding
        rows, classes = self._standardize(features), torch.from_numpy(labels)
        labeled, pool = rows[~free], rows[free]
        with one_thread():
            own = labeled[held.training].float(), classes[held.training]
            model = self._train(*own, pool.float(), seed)
            clusters = self.n_novel_ > 0
            self.calibrated_model_ = CalibratedModel(
                model, len(self.classes_), clusters=clusters
            ).double()
            _fold_standardization(cast(Adapter, model.backbone))
            self._calibrate(labeled[held.calibrating], labels[held.calibrating])
            use = slot_use(self.calibrated_model_, self._judge(rows)).double()
            self.subclass_usage_ = (use / use.sum(1, keepdim=True).clamp_min(1)).numpy()
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
        """(n,): higher is more like a known class; a row is accepted from `threshold_` on."""
        return cast(Floats, self._judge(self._rows(X)).id_scores.numpy())

    def predict_subclass(self, X: ArrayLike) -> Ints:  # noqa: N803
        """(n,): the number of the nearest prototype of the likeliest known class."""
        return cast(Ints, self._judge(self._rows(X)).subclasses.numpy())

    def predict_cluster(self, X: ArrayLike) -> Ints:  # noqa: N803
        """(n,): the novel class of each row, in [0, n_novel); -1 where it is of a known class."""
        rows = self._rows(X)
        require(
            self.n_novel_ > 0, "No novel class was looked for: set n_novel above 0 and fit again."
        )
        return cast(Ints, self._judge(rows).clusters.numpy())

    def transform(self, X: ArrayLike) -> Floats:  # noqa: N803
        """(n, width): the features in which rows are compared with prototypes."""
        rows = self._rows(X)
        return cast(Floats, compute_rows(self.calibrated_model_.model.backbone, rows).numpy())

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
        return self.calibrated_model_.model.backbone.num_features

    def _check_options(self) -> None:
        for name, least in {"n_novel": 0, "prototypes": 1, "width": 1, "steps": 1}.items():
            value = getattr(self, name)
            require(
                isinstance(value, Integral) and least <= int(value) <= LARGEST_COUNT,
                f"{name} = {value!r} must be a whole number from {least} to {LARGEST_COUNT:,}.",
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

    def _unlabeled_in(self, targets: NDArray[Any]) -> Bools:
        """(n,): mask of the rows without a label."""
        return np.asarray((targets == self.unlabeled) | (targets == str(self.unlabeled)), bool)

    def _rows(self, X: ArrayLike) -> Tensor:  # noqa: N803
        """(n, D): rows from a user, checked and standardized."""
        check_is_fitted(self)
        return self._standardize(validate_data(self, X, dtype=np.float64, reset=False))

    def _standardize(self, features: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray((features - self.mean_) / self.scale_))

    def _train(self, labeled: Tensor, labels: Tensor, pool: Tensor, seed: int) -> Model:
        """Train ORCA with fission on labels and a pool, or without a pool a supervised method."""
        known = len(self.classes_)
        if len(pool):
            self.method_, heads = "orca+pf", known + (self.n_novel_ or known)  # room for strangers
        else:
            self.method_, heads = "supervised+pf", known
        # training wants a pool, even of a method that does not look at it
        data = TrainingData(labeled, labels, pool if len(pool) else labeled, known, heads)
        sizes = (int(self.prototypes), int(self.width), int(self.steps))
        settings = QuickTraining(self.method_, *sizes, seed)
        return train_quickly(settings, data, FeatureViews.of(labeled, pool))

    def _calibrate(self, rows: Tensor, labels: Ints) -> None:
        """Set temperature and threshold by rows that were not learned from."""
        self.n_held_out_ = len(labels)
        logits, scores = np.zeros((0, len(self.classes_))), np.zeros(0)
        if len(labels):
            logits, scores = self._logits(rows).numpy(), self._judge(rows).id_scores.numpy()
        promised = calibrate(self.calibrated_model_, logits, labels, scores, float(self.keep))
        self.temperature_ = float(self.calibrated_model_.temperature)
        self.threshold_ = float(self.calibrated_model_.threshold)
        if not promised.rank:
            then = (
                "novel is what is nearest to a novel class" if self.n_novel_ else "none is rejected"
            )
            warnings.warn(
                f"{len(labels)} labels could be held out, too few to promise keep = {self.keep}: "
                f"{then}; label more rows, or lower keep.",
                UserWarning,
                stacklevel=3,
            )

    def _logits(self, rows: Tensor) -> Tensor:
        """(n, classes): of the known classes, before the temperature."""
        model, known = self.calibrated_model_.model, len(self.classes_)
        return compute_rows(lambda some: model(some).logits[:, :known], rows)

    def _judge(self, rows: Tensor) -> Verdicts:
        with row_by_row():
            return judge(self.calibrated_model_, torch.split(rows, JUDGED_AT_ONCE))


@torch.no_grad()
def _fold_standardization(adapter: Adapter) -> None:
    """Fold an adapter's mean and deviation into its linear map; they become 0 and 1."""
    layer = cast(nn.Linear, adapter.layers[0])
    layer.weight.div_(adapter.deviation)
    layer.bias.sub_(layer.weight @ adapter.mean)
    adapter.mean.zero_()
    adapter.deviation.fill_(1)
