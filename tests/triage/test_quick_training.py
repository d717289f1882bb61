"""Labels that are held out, and a method trained on what is at hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protofission.data.augment.feature_views import FeatureViews
from protofission.data.image_sets import TrainingData
from protofission.triage.quick_training import Learning, held_out, learned


@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    wanted=st.integers(1, 120),
    seed=st.integers(0, 99),
)
def test_as_many_are_held_out_as_can_be_of_each_class_its_share(counts, wanted, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    held, total = held_out(labels, wanted, seed), len(labels)
    assert held.sum() == min(wanted, total // 2, total - len(counts))
    assert set(labels[~held]) == set(range(len(counts)))
    shares = [held[labels == own].mean() - held.mean() for own in range(len(counts))]
    sizes = np.array(counts)
    if sizes.min() > 2:
        assert (np.abs(shares) <= 1 / sizes + 0.05).all()


@pytest.mark.parametrize("method", ["supervised+pf", "orca+pf"])
def test_few_images_make_small_batches_and_are_learned(method):
    rows = 3 * torch.eye(4)[torch.arange(12) % 4]
    novel = 2 if method == "orca+pf" else 0
    data = TrainingData(rows[[0, 1, 4, 5]], torch.tensor([0, 1, 0, 1]), rows[6:], 2, 2 + novel)
    steps = []
    model = learned(
        Learning(method, prototypes=2, width=4, steps=30),
        data,
        FeatureViews.of(rows),
        lambda done, total: steps.append((done, total)),
    )
    assert steps[-1] == (30, 30)
    found = model(data.labeled).logits[:, :2].argmax(-1)
    assert torch.equal(found, data.labels)
    assert not model.training
