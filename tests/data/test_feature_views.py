"""Views of features that come without images."""

import torch

from protofission.core.records import Share
from protofission.data.augment.feature_views import FeatureViews


def features(count=4000, width=3):
    drawn = torch.randn(count, width, generator=torch.Generator().manual_seed(0))
    return drawn * torch.tensor([1.0, 10.0, 0.0]) + torch.tensor([5.0, 0.0, 7.0])


def generator():
    return torch.Generator().manual_seed(1)


def test_a_plain_view_is_the_features():
    rows = features(5)
    views = FeatureViews.of(rows)
    assert torch.equal(views.plain(rows), rows)
    assert torch.equal(views.view("plain", rows, generator()), rows)


def test_noise_is_measured_in_deviations_and_a_constant_feature_has_none():
    rows = features()
    noise = FeatureViews.of(rows).view("weak", rows, generator()) - rows
    torch.testing.assert_close(noise.std(0), torch.tensor([0.1, 1.0, 0.0]), rtol=0.05, atol=1e-6)


def test_a_strong_view_loses_a_fifth_of_the_features_to_their_mean():
    rows = features()
    views = FeatureViews.of(rows)
    strong = views.view("strong", rows, generator())
    lost = (strong == views.mean).float().mean(0)
    torch.testing.assert_close(lost[:2], torch.tensor([0.2, 0.2]), rtol=0.1, atol=0)


def test_the_views_of_a_step_differ_and_repeat_with_its_generator():
    rows = features(50)
    views, drawn = FeatureViews.of(rows), generator()
    first, second = (views.view("weak", rows, drawn) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(first, views.view("weak", rows, generator()))


def test_shares_of_a_batch_are_parts_of_the_whole():
    rows = features(50)
    views = FeatureViews.of(rows)
    whole = views.view("strong", rows, generator())
    parts = [
        views.view("strong", rows[Share(rank, 2).of(50)], generator(), Share(rank, 2))
        for rank in range(2)
    ]
    assert torch.equal(torch.cat(parts), whole)
