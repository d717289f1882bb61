"""OOD scores by distance in the evaluation of any method."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from protofission.core.distance_scores import DISTANCE_SCORES, held_out_scores
from protofission.core.errors import InputError
from protofission.core.options import override
from protofission.core.records import Output, Prototypes
from protofission.data.image_sets import TestData, TrainingData
from protofission.training import evaluate
from protofission.training.predictions import NO_SLOT, Predictions
from protofission.training.presets import preset
from protofission.training.run import perform
from protofission.training.run_folder import RunFolder
from protofission.training.run_metrics import compute_metrics
from runs import digits, small

KNOWN, TRUE = [0, 1, 2] * 14, [0, 1, 2, 3, 4] * 12
WIDTH = 8


class Ready(nn.Module):
    """A model whose inputs are features; its similarities are some of them."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.backbone, self.head, self.heads = nn.Identity(), self.forward, heads

    def forward(self, features: Tensor) -> Output:
        sims = features[:, : self.heads, None]
        vectors = torch.eye(self.heads, WIDTH)[:, None]
        return Output(
            features, sims, sims[..., 0], Prototypes(vectors, vectors, torch.zeros(self.heads, 1))
        )


def blobs(classes: list[int], seed: int) -> Tensor:
    noise = torch.randn(len(classes), WIDTH, generator=torch.Generator().manual_seed(seed))
    return 6 * torch.eye(WIDTH)[classes] + noise


def judged(name: str, *assignments: str) -> Predictions:
    """Predictions for five classes, of which three are labeled."""
    experiment = preset("digits", name)
    for assignment in assignments:
        experiment = override(experiment, assignment)
    experiment.check()
    training = TrainingData(blobs(KNOWN, 0), torch.tensor(KNOWN), blobs(TRUE, 1), 3, 5)
    test = TestData(blobs(TRUE, 2), np.array(TRUE))
    memory = nn.ModuleDict({"base": nn.Module()})
    model = Ready(5 if experiment.method.traits.has_novel_heads else 3)
    return evaluate.predict(model, memory, experiment, training, test)  # type: ignore[arg-type]


@pytest.mark.parametrize("score", DISTANCE_SCORES)
@pytest.mark.parametrize("name", ["orca", "gcd"])
def test_a_score_by_distance_changes_the_ood_scores_alone(name: str, score: str) -> None:
    """Also of a method without class logits."""
    usual, found = judged(name), judged(name, f"judging.ood_score={score}")
    expected = DISTANCE_SCORES[score](blobs(KNOWN, 0), torch.tensor(KNOWN), blobs(TRUE, 1), 3)
    np.testing.assert_allclose(found.ood_scores, expected(blobs(TRUE, 2)).numpy(), rtol=1e-5)
    assert compute_metrics(found).auc > 0.95
    for part in fields(Predictions):
        if part.name != "ood_scores":
            np.testing.assert_array_equal(getattr(found, part.name), getattr(usual, part.name))


def test_what_is_rejected_is_farther_than_labels_that_were_held_out() -> None:
    found = judged("fixmatch", "judging.ood_score=relative_mahalanobis", "judging.keep=0.9")
    parts = blobs(KNOWN, 0), torch.tensor(KNOWN), blobs(TRUE, 1), 3
    kept = held_out_scores(DISTANCE_SCORES["relative_mahalanobis"], *parts)
    expected = found.ood_scores > kept.quantile(0.9).item()
    assert 0 < expected.sum() < len(expected)
    np.testing.assert_array_equal(found.slots == NO_SLOT, expected)


def test_of_many_images_distances_are_fitted_to_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every class keeps its share, in whatever order the labels are."""
    monkeypatch.setattr(evaluate, "DISTANCE_LABELS", 14)
    monkeypatch.setattr(evaluate, "DISTANCE_POOL", 30)
    found = judged("orca", "judging.ood_score=mahalanobis")
    kept = [3 * i + c for i in range(14) for c in range(3) if (14 * c + i) % 3 == 0]
    score = DISTANCE_SCORES["mahalanobis"](
        blobs(KNOWN, 0)[kept], torch.tensor(KNOWN)[kept], blobs(TRUE, 1)[::2], 3
    )
    np.testing.assert_allclose(found.ood_scores, score(blobs(TRUE, 2)).numpy(), rtol=1e-5)


def test_a_method_that_predicts_nothing_has_no_ood_score() -> None:
    with pytest.raises(InputError, match=r"^judging.ood_score = mahalanobis .* simclr makes none"):
        judged("simclr", "judging.ood_score=mahalanobis")


def test_a_run_is_judged_by_distance(tmp_path: Path) -> None:
    experiment = small("fixmatch", "judging.ood_score=pool_filter", "judging.every=2")
    folder = RunFolder(tmp_path / "run")
    for _ in perform(experiment, digits(), folder):
        pass
    assert np.isfinite(folder.predictions().ood_scores).all()
    assert 0 < folder.metrics().auc < 1
