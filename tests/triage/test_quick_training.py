"""A method trained on what is at hand."""

import pytest
import torch

from protofission.data.augment.feature_views import FeatureViews
from protofission.data.image_sets import TrainingData
from protofission.triage.quick_training import QuickTraining, train_quickly


@pytest.mark.parametrize("method", ["supervised+pf", "orca+pf"])
def test_few_images_make_small_batches_and_are_learned(method):
    rows = 3 * torch.eye(4)[torch.arange(12) % 4]
    novel = 2 if method == "orca+pf" else 0
    data = TrainingData(rows[[0, 1, 4, 5]], torch.tensor([0, 1, 0, 1]), rows[6:], 2, 2 + novel)
    steps = []
    model = train_quickly(
        QuickTraining(method, prototypes=2, width=4, steps=30),
        data,
        FeatureViews.of(rows),
        lambda done, total: steps.append((done, total)),
    )
    assert steps[-1] == (30, 30)
    found = model(data.labeled).logits[:, :2].argmax(-1)
    assert torch.equal(found, data.labels)
    assert not model.training


def test_a_share_of_strangers_is_given_to_orca_with_the_full_weight():
    found = QuickTraining("orca+pf", novel_share=0.3).experiment(20, 30).method.base
    assert (found.novel_share, found.entropy_weight) == (0.3, 1.0)
    assert QuickTraining("orca+pf").experiment(20, 30).method.base.novel_share is None
