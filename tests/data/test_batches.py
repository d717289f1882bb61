"""Batches: functions of (seed, step) that cover epochs; views keep their rows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protofission.core.records import Layout, Views
from protofission.core.rng import step_rng
from protofission.data.augment.affine_views import DIGITS, Augmentation
from protofission.data.batches import Batches, IndexStream
from protofission.data.image_sets import TrainingData
from protofission.methods import METHODS


@given(size=st.integers(1, 50), batch=st.integers(1, 70), seed=st.integers(0, 99))
def test_every_epoch_has_each_index_once(size: int, batch: int, seed: int) -> None:
    stream = IndexStream(size, batch, seed, "x")
    drawn = torch.cat([stream.at(step) for step in range(3 * size // batch + 2)]).tolist()
    for epoch in range(len(drawn) // size):
        assert sorted(drawn[epoch * size : (epoch + 1) * size]) == list(range(size))


@given(size=st.integers(2, 50), batch=st.integers(1, 70), step=st.integers(0, 200))
def test_a_step_does_not_depend_on_the_steps_before_it(size: int, batch: int, step: int) -> None:
    walked = IndexStream(size, batch, 0, "x")
    for earlier in range(min(step, 5)):
        walked.at(earlier)
    assert torch.equal(walked.at(step), IndexStream(size, batch, 0, "x").at(step))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    stream = IndexStream(100, 100, 0, "x")
    orders = [stream.at(0), stream.at(1), IndexStream(100, 100, 1, "x").at(0)]
    orders.append(IndexStream(100, 100, 0, "y").at(0))
    assert all(not torch.equal(a, b) for i, a in enumerate(orders) for b in orders[i + 1 :])


def data(labeled: int = 6, unlabeled: int = 9) -> TrainingData:
    """Images that are constant, each with a value of its own."""
    values = torch.arange(labeled + unlabeled, dtype=torch.float32).view(-1, 1, 1, 1) / 100
    images = values.expand(-1, 1, 8, 8)
    return TrainingData(images[:labeled], torch.arange(labeled) % 2, images[labeled:], 2, 4)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_rows_of_a_batch_are_where_the_layout_says(name: str) -> None:
    views = METHODS[name].traits.views
    plain = Views(("plain",) * len(views.labeled), ("plain",) * len(views.unlabeled))
    batch = Batches(data(), plain, DIGITS, 4, 5, seed=3).at(2)
    values = (batch.inputs[:, 0, 0, 0] * 100).round().long()
    assert len(values) == batch.layout.rows
    for view in range(len(views.labeled)):
        rows = values[batch.layout.labeled_rows(view)]
        assert (rows < 6).all()
        assert torch.equal(rows % 2, batch.labels)
    for view in range(len(views.unlabeled)):
        rows = values[batch.layout.unlabeled_rows(view)]
        assert (rows >= 6).all()
        assert torch.equal(rows, values[batch.layout.unlabeled_rows(0)])


@given(
    labeled=st.integers(1, 5),
    unlabeled=st.integers(1, 5),
    labeled_views=st.integers(0, 3),
    unlabeled_views=st.integers(0, 3),
)
def test_a_layout_gives_each_row_to_one_view(
    labeled: int, unlabeled: int, labeled_views: int, unlabeled_views: int
) -> None:
    layout = Layout(labeled, unlabeled, labeled_views, unlabeled_views)
    rows = [list(range(layout.rows))[layout.labeled_rows(v)] for v in range(labeled_views)]
    rows += [list(range(layout.rows))[layout.unlabeled_rows(v)] for v in range(unlabeled_views)]
    assert sorted(row for part in rows for row in part) == list(range(layout.rows))


def test_a_batch_without_labeled_images_is_refused() -> None:
    with pytest.raises(ValueError, match="no labeled image"):
        Batches(data(), METHODS["orca"].traits.views, DIGITS, 0, 5, seed=0)
    with pytest.raises(ValueError, match="no unlabeled image"):
        Batches(data(), METHODS["orca"].traits.views, DIGITS, 4, 0, seed=0)
    with pytest.raises(ValueError, match="no unlabeled image, but a batch wants 5"):
        Batches(data(unlabeled=0), METHODS["orca"].traits.views, DIGITS, 4, 5, seed=0)


def test_training_data_names_what_is_wrong() -> None:
    images = torch.zeros(4, 1, 8, 8)
    with pytest.raises(ValueError, match="Seen class 1 has no labeled image"):
        TrainingData(images, torch.tensor([0, 0, 2, 2]), images, 3, 5)
    with pytest.raises(ValueError, match="A label is 3, but there are 2 seen classes"):
        TrainingData(images, torch.tensor([0, 1, 2, 3]), images, 2, 5)
    with pytest.raises(ValueError, match="3 labels for 4 labeled images"):
        TrainingData(images, torch.tensor([0, 1, 1]), images, 2, 5)
    bad = images.clone()
    bad[2, 0, 3, 3] = torch.nan
    with pytest.raises(ValueError, match="1 unlabeled inputs hold NaN"):
        TrainingData(images, torch.tensor([0, 1, 1, 0]), bad, 2, 5)


def test_views_are_functions_of_the_generator() -> None:
    images = torch.rand(5, 1, 8, 8, generator=step_rng(0, 0, "test"))
    for augmentation in (DIGITS.weak, DIGITS.strong, DIGITS.simclr):
        first = augmentation(images, step_rng(0, 1, "a"))
        assert torch.equal(first, augmentation(images, step_rng(0, 1, "a")))
        assert not torch.equal(first, augmentation(images, step_rng(0, 2, "a")))
        assert first.min() >= 0
        assert first.max() <= 1


def test_each_image_draws_its_own_parameters() -> None:
    images = torch.rand(1, 1, 8, 8).expand(6, -1, -1, -1)
    views = DIGITS.weak(images, step_rng(0, 0, "a"))
    assert len({tuple(view.flatten().tolist()) for view in views}) == 6


def test_no_augmentation_leaves_images_as_they_are() -> None:
    images = torch.rand(3, 2, 9, 7)
    assert torch.equal(Augmentation()(images, step_rng(0, 0, "a")), images)


def test_a_turn_by_a_quarter_is_the_transposed_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda *shape, generator: torch.ones(*shape))
    images = torch.arange(16.0).view(1, 1, 4, 4) / 16
    turned = Augmentation(rotate=90)(images, step_rng(0, 0, "a"))
    torch.testing.assert_close(turned, images.rot90(1, (2, 3)), atol=1e-5, rtol=0)


def test_a_shift_moves_by_its_share_of_the_side(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(1, 1, 8, 8)
    monkeypatch.setattr(torch, "rand", lambda *shape, generator: torch.ones(*shape))
    moved = Augmentation(shift=0.25)(images, step_rng(0, 0, "a"))
    torch.testing.assert_close(moved[..., :6, :6], images[..., 2:, 2:], atol=1e-5, rtol=0)
    assert moved[..., 6:, :].abs().max() < 1e-5


def test_cutout_blanks_a_square_of_the_stated_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda *shape, generator: torch.full(shape, 0.5))
    view = Augmentation(cutout=0.5)(torch.ones(1, 1, 8, 8), step_rng(0, 0, "a"))
    blank = (view[0, 0] == 0).nonzero()
    assert blank.min() == 2
    assert blank.max() == 5
    assert len(blank) == 16
