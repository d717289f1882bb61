"""What a competent user writes on the same features, with scikit-learn and numpy."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from inspect import signature

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.preprocessing import StandardScaler

from practice_parts.cells import Floats, Ints, Scene
from practice_parts.measures import Judged

warnings.filterwarnings("ignore", category=ConvergenceWarning)
warnings.filterwarnings("ignore", category=FutureWarning)

# The attributes as they will be, where scikit-learn knows both.
_LEGACY = "use_legacy_attributes"
_OPTIONS = {_LEGACY: False} if _LEGACY in signature(LogisticRegressionCV).parameters else {}
ChosenRegression = partial(LogisticRegressionCV, **_OPTIONS)

STRENGTHS = (0.001, 0.01, 0.1, 1.0)
"""C of logistic regression, chosen by cross-validation."""
FEW_LABELS = 30
"""Below so many labels of a class, the shrinkage of relative Mahalanobis is 0.3, else 0.1."""
NEIGHBORS = 5
SURE = 0.9
"""Probability from which on self-training takes a class for a label."""


def unit(rows: Floats) -> Floats:
    found: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return found


def shrunk_inverse(covariance: Floats, share: float) -> Floats:
    width = len(covariance)
    level = np.trace(covariance) / width
    found: Floats = np.linalg.inv((1 - share) * covariance + share * level * np.eye(width))
    return found


def squared(rows: Floats, means: Floats, precision: Floats) -> Floats:
    """(N, S): squared Mahalanobis distances."""
    moved = rows @ precision
    return (
        (moved * rows).sum(1)[:, None] - 2 * moved @ means.T + ((means @ precision) * means).sum(1)
    )


class Baselines:
    """The baselines of one scene; what several of them share is computed once."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.labels, self.known = scene.labels, scene.known
        self.scaler = StandardScaler().fit(np.concatenate([scene.labeled, scene.pool]))
        parts = (scene.labeled, scene.pool, scene.test)
        self.labeled, self.pool, self.test = (self.scaler.transform(p.astype(float)) for p in parts)

    @cached_property
    def logistic(self) -> tuple[Floats, Floats, float]:
        """Logits of test and pool images by logistic regression on the labels, and its seconds.

        In the span of the labels, which gives the same model in less time.
        """
        start = time.process_time()
        directions = np.linalg.svd(self.labeled, full_matrices=False)[2]
        model = ChosenRegression(Cs=STRENGTHS, cv=3, scoring="neg_log_loss", max_iter=300).fit(
            self.labeled @ directions.T, self.labels
        )
        found = [_logits(model, rows @ directions.T) for rows in (self.test, self.pool)]
        return found[0], found[1], time.process_time() - start

    def _with_logistic(self, score: Callable[[Floats, Floats], Floats]) -> tuple[Judged, float]:
        """Classes by logistic regression, with a score from logits and standardized rows."""
        test, pool, seconds = self.logistic
        start = time.process_time()
        scores, pool_scores = score(test, self.test), score(pool, self.pool)
        judged = Judged(scores, test.argmax(1), softmax(test, 1), pool_scores)
        return judged, seconds + time.process_time() - start

    def probability(self) -> tuple[Judged, float]:
        """Logistic regression, largest probability."""
        return self._with_logistic(lambda logits, rows: softmax(logits, 1).max(1))

    def energy(self) -> tuple[Judged, float]:
        """Logistic regression, energy."""
        return self._with_logistic(lambda logits, rows: logsumexp(logits, axis=1))

    def neighbors(self) -> tuple[Judged, float]:
        """Logistic regression, cosine to the 5th nearest label."""
        labels = unit(self.labeled)
        return self._with_logistic(
            lambda logits, rows: np.sort(unit(rows) @ labels.T, axis=1)[:, -NEIGHBORS]
        )

    def labels_against_pool(self) -> tuple[Judged, float]:
        """Logistic regression, and another one that tells labels from pool."""

        start = time.process_time()
        both = np.concatenate([self.labeled, self.pool])
        from_label = np.arange(len(both)) < len(self.labeled)
        reduced = PCA(min(128, *both.shape), random_state=0).fit(both)
        model = ChosenRegression(
            Cs=STRENGTHS,
            cv=3,
            scoring="roc_auc",
            class_weight="balanced",
            max_iter=300,
        ).fit(reduced.transform(both), from_label)
        judged, seconds = self._with_logistic(
            lambda logits, rows: model.decision_function(reduced.transform(rows))
        )
        return judged, seconds + time.process_time() - start

    def relative_mahalanobis(self) -> tuple[Judged, float]:
        """Relative Mahalanobis on unit vectors with the pool as background; no training."""
        start = time.process_time()
        both = unit(np.concatenate([self.labeled, self.pool]))
        reduced = PCA(min(128, *both.shape), random_state=0).fit(both)
        labeled, pool, test = (
            reduced.transform(unit(rows)) for rows in (self.labeled, self.pool, self.test)
        )
        means = np.stack([labeled[self.labels == c].mean(0) for c in range(self.known)])
        apart = labeled - means[self.labels]
        few = len(labeled) / self.known < FEW_LABELS
        within = apart.T @ apart / max(len(labeled) - self.known, 1)
        precision = shrunk_inverse(within, 0.3 if few else 0.1)
        center = pool.mean(0, keepdims=True)
        background = shrunk_inverse(np.cov(pool.T), 0.1)

        def judge(rows: Floats) -> tuple[Floats, Floats]:
            own = squared(rows, means, precision)
            return squared(rows, center, background)[:, 0] - own.min(1), own

        scores, own = judge(test)
        judged = Judged(scores, own.argmin(1), softmax(-own / 2, 1), judge(pool)[0])
        return judged, time.process_time() - start

    def known_and_free(self) -> tuple[Judged, float]:
        """K + M: K known and K free centers by spherical k-means, then logistic regression.

        Rows are whitened by the scatter within classes, reduced to 64 dimensions, and of length 1.
        """
        start = time.process_time()
        both = np.concatenate([self.labeled, self.pool])
        reduced = PCA(min(256, *both.shape), random_state=0).fit(both)
        labeled = reduced.transform(self.labeled)
        means = np.stack([labeled[self.labels == c].mean(0) for c in range(self.known)])
        apart = labeled - means[self.labels]
        within = apart.T @ apart / max(len(labeled) - self.known, 1)
        whitening = np.linalg.cholesky(shrunk_inverse(within, 0.3))
        white = reduced.transform(both) @ whitening
        second = PCA(min(64, *white.shape), random_state=0).fit(white)

        def rows_of(rows: Floats) -> Floats:
            return unit(second.transform(reduced.transform(rows) @ whitening))

        labeled, pool, test = (rows_of(rows) for rows in (self.labeled, self.pool, self.test))
        places = self._semi_supervised_k_means(labeled, pool)
        model = LogisticRegression(C=10.0, max_iter=300).fit(
            np.concatenate([labeled, pool]), np.concatenate([self.labels, places])
        )
        logits = [np.full((len(rows), 2 * self.known), -np.inf) for rows in (test, pool)]
        for found, rows in zip(logits, (test, pool), strict=True):
            found[:, model.classes_] = _logits(model, rows)
        scores = [logsumexp(f[:, : self.known], 1) - _log_sum(f[:, self.known :]) for f in logits]
        own = logits[0][:, : self.known]
        judged = Judged(scores[0], own.argmax(1), softmax(own, 1), scores[1])
        return judged, time.process_time() - start

    def _semi_supervised_k_means(self, labeled: Floats, pool: Floats, rounds: int = 50) -> Ints:
        """(U,): the nearest of K known and K free centers; labels stay with their own."""
        known = unit(np.stack([labeled[self.labels == c].mean(0) for c in range(self.known)]))
        random = np.random.default_rng(0)
        centers = known
        for _ in range(self.known):  # k-means++: far from all centers so far
            far = np.maximum(1 - (pool @ centers.T).max(1), 0) + 1e-12
            centers = np.vstack([centers, pool[random.choice(len(pool), p=far / far.sum())]])
        places = (pool @ centers.T).argmax(1)
        for _ in range(rounds):
            rows, owners = np.concatenate([labeled, pool]), np.concatenate([self.labels, places])
            sums = np.zeros_like(centers)
            np.add.at(sums, owners, rows)
            empty = np.bincount(owners, minlength=len(centers)) == 0
            centers = np.where(empty[:, None], centers, unit(sums))
            before, places = places, (pool @ centers.T).argmax(1)
            if (before == places).all():
                break
        found: Ints = places
        return found

    def self_training(self) -> tuple[Judged, float]:
        """Self-training: pool images of which logistic regression is sure become labels."""
        start = time.process_time()
        both = np.concatenate([self.labeled, self.pool])
        reduced = PCA(min(128, *both.shape), random_state=0).fit(both)
        labeled, pool, test = (reduced.transform(r) for r in (self.labeled, self.pool, self.test))
        strength = ChosenRegression(Cs=STRENGTHS, cv=3, scoring="neg_log_loss", max_iter=300).fit(
            labeled, self.labels
        )
        model = LogisticRegression(C=float(np.ravel(strength.C_)[0]), max_iter=300).fit(
            labeled, self.labels
        )
        sure = np.zeros(len(pool), bool)
        for _ in range(5):
            probs = model.predict_proba(pool)
            before, sure = sure, probs.max(1) >= SURE
            if (before == sure).all():
                break
            model.fit(
                np.concatenate([labeled, pool[sure]]),
                np.concatenate([self.labels, probs[sure].argmax(1)]),
            )
        probs = model.predict_proba(test)
        pool_scores = model.predict_proba(pool).max(1)
        return Judged(
            probs.max(1), probs.argmax(1), probs, pool_scores
        ), time.process_time() - start


def _logits(model: LogisticRegression, rows: Floats) -> Floats:
    """(N, S) logits; for two classes too."""
    found: Floats = model.decision_function(rows)
    return found if found.ndim == 2 else np.stack([-found / 2, found / 2], axis=1)


def _log_sum(logits: Floats) -> Floats:
    """Log of the sum of exponentials, finite where all are -inf."""
    found: Floats = np.maximum(logsumexp(logits, axis=1), -1e3)
    return found


BASELINES: dict[str, Callable[[Baselines], tuple[Judged, float]]] = {
    "logistic regression, probability": Baselines.probability,
    "logistic regression, energy": Baselines.energy,
    "logistic regression, nearest neighbors": Baselines.neighbors,
    "labels against pool": Baselines.labels_against_pool,
    "relative Mahalanobis": Baselines.relative_mahalanobis,
    "K + M": Baselines.known_and_free,
    "self-training": Baselines.self_training,
}
