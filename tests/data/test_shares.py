"""Shares of a batch, put together, are the batch; views smaller than the image; the full split."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from builders import rng
from protofission.core.errors import InputError
from protofission.core.records import WHOLE, Layout, Share, ViewName, Views
from protofission.core.rng import step_rng
from protofission.data.augment import geometry
from protofission.data.augment import natural_views as views
from protofission.data.augment.affine_views import DIGITS
from protofission.data.augment.natural_views import NATURAL, NATURAL_24
from protofission.data.augment.simclr_view import SimCLRView
from protofission.data.augment.views import Augmentations
from protofission.data.batches import Batches
from protofission.data.image_sets import ImageSet, ImageSets, TrainingData, divide
from protofission.data.splits.labeling import Labeling
from protofission.data.splits.registry import find_split, verify
from small_splits import small
from tensor_pictures import natural, picture, tensor

NAMES: tuple[ViewName, ...] = get_args(ViewName)


def pictures(height: int, width: int) -> Tensor:
    """Twelve images, none of a single color."""
    return torch.cat([natural(height, width, seed)[:3] for seed in range(4)])


KINDS: dict[str, tuple[Augmentations, Tensor]] = {
    "digits": (DIGITS, torch.randint(0, 256, (12, 1, 8, 8), generator=rng(0)).byte()),
    "natural": (NATURAL, pictures(32, 32)),
    "natural, blurred": (NATURAL, pictures(64, 65)),
    "natural-24": (NATURAL_24, pictures(32, 32)),
}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk", [views.CHUNK_BYTES, 8000])
def test_the_views_of_all_shares_are_those_of_the_whole_batch(name, kind, size, chunk, monkeypatch):
    monkeypatch.setattr(views, "CHUNK_BYTES", chunk)
    augmentations, images = KINDS[kind]
    for batch in (images, images.float() / 255):
        whole = augmentations.view(name, batch, rng(5))
        parts = [
            augmentations.view(name, batch[share.of(len(batch))], rng(5), share)
            for share in (Share(rank, size) for rank in range(size))
        ]
        assert torch.equal(torch.cat(parts), whole)
    own = Share(1, size).of(len(images))
    unshared = augmentations.view(name, images[own], rng(5))
    assert torch.equal(unshared, augmentations.view(name, images, rng(5))[own]) == (name == "plain")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_all_shares_leave_the_generator_where_the_whole_batch_does(name, kind):
    """The next view of a step begins with the same draws for every process."""
    augmentations, images = KINDS[kind]
    left = []
    for share in (WHOLE, Share(0, 3), Share(2, 3)):
        generator = rng(1)
        augmentations.view(name, images[share.of(len(images))], generator, share)
        left.append(generator.get_state())
    assert torch.equal(left[0], left[1])
    assert torch.equal(left[0], left[2])


@pytest.mark.parametrize(("total", "size"), [(12, 1), (12, 3), (10, 4), (3, 4), (0, 2), (1, 3)])
def test_shares_are_all_places_once_and_in_order(total, size):
    places = [list(range(total))[Share(rank, size).of(total)] for rank in range(size)]
    assert [place for part in places for place in part] == list(range(total))
    assert max(map(len, places)) == -(-total // size)
    if total % size == 0:
        assert {Share(rank, size).total(total // size) for rank in range(size)} == {total}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "wanted",
    [
        Views(("weak",), ("weak", "strong")),
        Views(("weak", "weak"), ("weak", "weak")),
        Views((), ("simclr", "simclr")),
        Views(("weak",), ()),
    ],
)
def test_the_batches_of_all_processes_are_one_batch(wanted, size):
    images = natural(16, 16).repeat(6, 1, 1, 1)
    data = TrainingData(images[:12], torch.arange(12) % 3, images[12:], 3, 5)

    def batches(share: Share) -> Batches:
        return Batches(data, wanted, NATURAL, 6, 12, seed=3, share=share)

    for step in (0, 5):
        whole = batches(WHOLE).at(step)
        parts = [batches(Share(rank, size)).at(step) for rank in range(size)]
        together = torch.cat([part.inputs for part in parts])
        assert torch.equal(together[whole.layout.places(size)], whole.inputs)
        assert all(torch.equal(part.labels, whole.labels) for part in parts)
        assert all(part.layout == whole.layout for part in parts)


def test_places_by_hand():
    """Two processes, one labeled view of 2 images, two unlabeled views of 4.

    Rows: l0 l1 | u0 u1 u2 u3 | v0 v1 v2 v3. The first process has l0 u0 u1 v0 v1.
    """
    found = Layout(2, 4, 1, 2).places(2).tolist()
    assert found == [0, 5, 1, 2, 6, 7, 3, 4, 8, 9]


# Views smaller than the image


@settings(max_examples=60)
@given(data=st.data(), side=st.integers(1, 40))
def test_a_crop_scaled_to_a_size_of_its_own_has_pil_s_bytes(data, side):
    """Where the box is no larger than the result; else PIL averages over more than two pixels."""
    images = natural(37, 44)[:3]
    boxes, flips = [], data.draw(st.lists(st.booleans(), min_size=3, max_size=3))
    width = data.draw(st.integers(1, 44))
    for _ in images:
        tall, wide = (data.draw(st.integers(1, m)) for m in (min(side, 37), min(width, 44)))
        top, left = (data.draw(st.integers(0, m)) for m in (37 - tall, 44 - wide))
        boxes.append((top, left, tall, wide))
    ours = geometry.resized_crop(images, torch.tensor(boxes), torch.tensor(flips), (side, width))
    assert ours.shape == (3, 3, side, width)
    for image, own, (top, left, tall, wide), flip in zip(images, ours, boxes, flips, strict=True):
        crop = picture(image).crop((left, top, left + wide, top + tall))
        scaled = crop.resize((width, side), Image.Resampling.BILINEAR)
        if flip:
            scaled = scaled.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        assert torch.equal(own, tensor(scaled))


def test_a_box_larger_than_the_result_is_sampled_between_two_pixels():
    """Four pixels to two: the places 0.5 and 2.5. To one: the place 1.5."""
    row = torch.tensor([0, 100, 200, 40], dtype=torch.uint8).view(1, 1, 1, 4)
    box, flips = torch.tensor([[0, 0, 1, 4]]), torch.tensor([False])
    assert geometry.resized_crop(row, box, flips, (1, 2)).flatten().tolist() == [50, 120]
    assert geometry.resized_crop(row, box, flips, (1, 1)).flatten().tolist() == [150]
    assert geometry.resized_crop(row, box, ~flips, (1, 2)).flatten().tolist() == [120, 50]
    column = row.transpose(2, 3)
    box = torch.tensor([[0, 0, 4, 1]])
    assert geometry.resized_crop(column, box, flips, (2, 1)).flatten().tolist() == [50, 120]


def test_simclr_s_view_of_24_pixels_is_24_pixels_wide_and_pil_s():
    images = natural(32, 32).repeat(8, 1, 1, 1)
    plain = SimCLRView(jitter=0, gray=0, blur=0, size=24)
    drawn = plain.draw(images.shape, step_rng(0, 0, "views"))
    ours = plain.apply(images, drawn)
    assert ours.shape == (48, 3, 24, 24)
    small_boxes = 0
    for image, own, box, flip in zip(images, ours, drawn.boxes.tolist(), drawn.flips, strict=True):
        top, left, tall, wide = box
        if max(tall, wide) > 24:
            continue
        small_boxes += 1
        crop = picture(image).crop((left, top, left + wide, top + tall))
        scaled = crop.resize((24, 24), Image.Resampling.BILINEAR)
        if flip:
            scaled = scaled.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        assert (own.int() - tensor(scaled).int()).abs().max() <= 1
    assert small_boxes > 10


def test_the_size_changes_the_view_and_not_what_is_drawn():
    shape = torch.Size((20, 3, 32, 32))
    usual, small_view = (s.draw(shape, rng(0)) for s in (SimCLRView(), SimCLRView(size=24)))
    for name, value in vars(usual).items():
        assert torch.equal(value, getattr(small_view, name)), name
    images = natural(32, 32)
    for name in NAMES:
        side = 24 if name == "simclr" else 32
        assert NATURAL_24.view(name, images, rng(0)).shape == (6, 3, side, side)
        same = torch.equal(
            NATURAL_24.view(name, images[:, :, :side, :side], rng(0)),
            NATURAL.view(name, images[:, :, :side, :side], rng(0)),
        )
        assert same  # at 24 pixels, 24 are the image's own size
    with pytest.raises(InputError, match="size = 0 must be at least 1"):
        SimCLRView(size=0)


# Every label


@pytest.mark.parametrize("extra", [0, 7])
def test_the_full_split_sees_all_classes_and_leaves_what_has_no_label(extra):
    data = small(extra)
    split = find_split("full").split(data)
    verify(split, data)
    assert split.seen_classes == (0, 1, 2, 3, 4, 5)
    assert split.novel_classes == ()
    assert (data.train[split.unlabeled] == -1).all()
    assert len(split.unlabeled) == extra
    assert sorted([*split.labeled, *split.unlabeled]) == list(range(240 + extra))
    assert split.test_on == "test"
    assert split.test.tolist() == list(range(60))
    assert np.array_equal(split.renumber(data.train), data.train)
    other = find_split("full", seed=3).split(data)
    assert np.array_equal(other.labeled, split.labeled)


def test_the_full_split_judges_on_test_images_that_have_a_label():
    test = np.array([0, -1, 1, 1])
    split = find_split("full").split(Labeling(np.array([0, 1, 0]), 2, test))
    assert split.test.tolist() == [0, 2, 3]
    with pytest.raises(InputError, match="no official test images"):
        find_split("full").split(Labeling(np.array([0, 1, 0]), 2))


def test_pretraining_on_the_full_split_has_every_training_image_in_its_pool():
    def images(number: int, start: int) -> ImageSet:
        pixels = np.arange(start, start + number, dtype=np.uint8).reshape(-1, 1, 1, 1)
        return ImageSet(pixels, np.arange(number) % 2, ("a", "b"))

    sets = ImageSets(images(6, 0), images(4, 100))
    split = find_split("full").split(Labeling.of(sets))
    training, test = divide(sets, split, pool_has_labeled=True)
    assert training.unlabeled.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert training.labeled.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert (training.num_seen, training.num_classes) == (2, 2)
    assert test.inputs.flatten().tolist() == [100, 101, 102, 103]
