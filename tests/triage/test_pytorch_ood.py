"""Detectors of pytorch-ood: signs, shapes, and numbers of ours and of theirs.

pytorch-ood wants torchvision, so most machines of developers have neither: its EnergyBased and
Mahalanobis are written anew below from their papers' formulas, with the functions of its detectors.
Where it is installed (version 0.4, with torchvision), its own detectors are tested too.
"""

import pytest
import torch
from torch import Tensor

from protofission.core.distance_scores import DISTANCE_SCORES, held_out_scores
from protofission.core.errors import InputError
from protofission.core.scores import SCORES
from protofission.triage.pytorch_ood import (
    ModelDetector,
    ScoreDetector,
    distance_score_of,
    score_of,
)
from small_bundles import WIDTH, bundle_of, features


class Energy:
    """- log sum exp of the logits, higher is more outlying."""

    def predict_logits(self, logits: Tensor) -> Tensor:
        return -torch.stack([row.exp().sum().log() for row in logits])


class EarlyEnergy:
    """The same with the name that the function had before version 0.4."""

    def predict_features(self, x: Tensor) -> Tensor:
        return Energy().predict_logits(x)


class Mahalanobis:
    """The distance to the nearest class mean, under one covariance."""

    def fit_features(self, x: Tensor, y: Tensor) -> "Mahalanobis":
        self.means = torch.stack([x[y == c].mean(0) for c in y.unique()])
        gaps = x - self.means[y]
        self.precision = torch.linalg.pinv(gaps.T @ gaps / len(x))
        return self

    def predict_features(self, x: Tensor) -> Tensor:
        gaps = x[:, None] - self.means
        return ((gaps @ self.precision) * gaps).sum(-1).amin(1)


def blobs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(60) % 3
    labeled = 4 * torch.eye(6)[labels] + 0.3 * torch.randn(60, 6, generator=draw)
    pool = 2 * torch.randn(80, 6, generator=draw)
    return labeled, labels, pool


@pytest.mark.parametrize("detector", [Energy(), EarlyEnergy()])
def test_a_detector_of_logits_is_a_score_with_our_sign(detector: Energy | EarlyEnergy) -> None:
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    found = score_of(detector)(logits, logits.softmax(-1))
    assert torch.allclose(found, SCORES["energy"](logits, logits.softmax(-1)), atol=1e-6)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("EnergyBased", "energy"),
        ("Entropy", "entropy"),
        ("MaxLogit", "max_logit"),
        ("MaxSoftmax", "max_probability"),
    ],
)
def test_detectors_of_logits_of_the_package_agree_with_ours(theirs: str, ours: str) -> None:
    pytest.importorskip("torchvision")
    library = pytest.importorskip("pytorch_ood.detector")
    logits = 3 * torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    found = score_of(getattr(library, theirs)(None))(logits, logits.softmax(-1))
    expected = SCORES[ours](logits, logits.softmax(-1))
    assert torch.equal(found.argsort(), expected.argsort())
    between = found - expected  # a detector may leave out a constant
    assert torch.allclose(between, between[:1].expand(20), atol=1e-5)


@pytest.mark.parametrize("theirs", ["Mahalanobis", "RMD"])
def test_detectors_of_features_of_the_package_score_strangers_higher(theirs: str) -> None:
    pytest.importorskip("torchvision")
    make = getattr(pytest.importorskip("pytorch_ood.detector"), theirs)
    labeled, labels, pool = blobs()
    score = distance_score_of(lambda: make(None))(labeled, labels, pool, 3)
    assert score(-4 * torch.eye(6)[[3, 4, 5]]).min() > score(labeled).max()


def test_a_detector_of_features_is_a_distance_score_and_strangers_score_higher() -> None:
    labeled, labels, pool = blobs()
    score = distance_score_of(Mahalanobis)(labeled, labels, pool, 3)
    strangers = -4 * torch.eye(6)[[3, 4, 5]]
    assert score(strangers).min() > score(labeled).max()
    held_out = held_out_scores(distance_score_of(Mahalanobis), labeled, labels, pool, 3)
    assert held_out.shape == (60,)
    assert held_out.mean() > score(labeled).mean()  # a fit that saw them calls them more ID


@pytest.mark.parametrize("name", sorted(SCORES))
def test_a_score_of_logits_is_a_detector_without_a_fit(name: str) -> None:
    logits = torch.tensor([[9.0, 0.0, 0.0], [0.2, 0.1, 0.0]])
    detector = ScoreDetector(name)
    sure, unsure = detector.fit_features(logits, torch.tensor([0, 1]))(logits)
    assert sure <= unsure
    for predict in (detector.predict, detector.predict_logits):
        assert torch.equal(predict(logits), SCORES[name](logits, logits.softmax(-1)))


@pytest.mark.parametrize("name", sorted(DISTANCE_SCORES))
def test_a_distance_score_is_a_detector_that_is_fitted(name: str) -> None:
    labeled, labels, pool = blobs()
    detector = ScoreDetector(name, pool)
    with pytest.raises(InputError, match="is not fitted"):
        detector(labeled)
    expected = DISTANCE_SCORES[name](labeled, labels, pool, 3)(pool)
    assert torch.equal(detector.fit_features(labeled, labels)(pool), expected)


def test_a_model_is_a_detector_of_one_minus_its_id_score() -> None:
    bundle, rows = bundle_of("fission"), features(30)
    scores = ModelDetector(bundle).predict_features(rows)
    assert torch.equal(scores, 1 - bundle.predict_features(rows.numpy()).id_scores)
    threshold = float(bundle.calibrated_model.threshold)
    accepted = bundle.predict_features(rows.numpy()).decisions == 0
    assert torch.equal(accepted, 1 - scores >= threshold)
    assert rows.shape[1] == WIDTH


def test_what_cannot_be_right_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"^Unknown score 'enrgy'\. Did you mean 'energy'\?"):
        ScoreDetector("enrgy")
    with pytest.raises(InputError, match=r"wants the features of a pool: give pool\.$"):
        ScoreDetector("mahalanobis")

    class Wrong:
        def predict_features(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(InputError, match=r"shape \(2, 3\) for 2 rows"):
        score_of(Wrong())(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(InputError, match=r"^str has neither predict_logits nor predict_features"):
        score_of("EnergyBased")  # type: ignore[arg-type]
