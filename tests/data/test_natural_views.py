"""Views of natural images: PIL's bytes for the same draws, and draws of the right frequencies."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from protofission.core.errors import InputError
from protofission.core.options import options, override
from protofission.core.records import ViewName, Views
from protofission.core.rng import step_rng
from protofission.data.augment import natural_views as views
from protofission.data.augment.natural_views import (
    NATURAL,
    NATURAL_24,
    NATURAL_ORCA,
    NATURAL_USB,
    NaturalViews,
    Weak,
)
from protofission.data.augment.randaugment import (
    FIXMATCH,
    NAMES,
    USB,
    RandAugment,
    RandAugmentDraws,
)
from protofission.data.augment.simclr_view import SimCLRView, crop_boxes
from protofission.data.batches import Batches
from protofission.data.datasets import VIEWS as BY_NAME
from protofission.data.image_sets import TrainingData
from reference import pil_operations as pil
from tensor_pictures import natural, picture, tensor

VIEWS: tuple[ViewName, ...] = ("weak", "strong", "simclr")
MANY = torch.Size((40_000, 3, 32, 32))


def batch(height: int, width: int, channels: int = 3, repeats: int = 6) -> Tensor:
    return torch.cat([natural(height, width, seed, channels) for seed in range(repeats)])


def rows(draws: RandAugmentDraws) -> Iterator[tuple[list[tuple[str, float]], list[int]]]:
    for chosen, levels, box in zip(draws.operations, draws.levels, draws.boxes, strict=True):
        names = [NAMES[place] for place in chosen.tolist()]
        yield list(zip(names, levels.tolist(), strict=True)), box.tolist()


def close_to(share: float, wanted: float, n: int) -> bool:
    """Within five standard deviations of a frequency."""
    return abs(share - wanted) <= 5 * (wanted * (1 - wanted) / n) ** 0.5


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (1, 1), (2, 3)])
@pytest.mark.parametrize("which", [NATURAL, NATURAL_ORCA, NATURAL_USB])
def test_weak_and_strong_views_are_pils(which: NaturalViews, size: tuple[int, int]) -> None:
    images = batch(*size, repeats=20)
    generator = step_rng(0, 7, "views")
    shift = which.weak.draw(images.shape, generator)
    draws = which.strong.draw(images.shape, generator)
    padding = [int(side * which.weak.padding) for side in size]
    places = zip(shift.down.tolist(), shift.right.tolist(), shift.flips.tolist(), strict=True)
    weak = [
        pil.shift(picture(image), *place, padding, which.weak.border)
        for image, place in zip(images, places, strict=True)
    ]
    fills = which.strong.fill, which.strong.cutout_fill
    strong = [
        pil.randaugment(image, *row, *fills) for image, row in zip(weak, rows(draws), strict=True)
    ]
    for name, wanted in (("weak", weak), ("strong", strong)):
        got = which.view(name, images, step_rng(0, 7, "views"))
        assert torch.equal(got, torch.stack([tensor(image) for image in wanted]).float() / 255)


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_of_randaugment_is_pils_at_every_level(name: str) -> None:
    levels = torch.tensor([sign * level for level in range(1, 10) for sign in (1, -1)]).double()
    for size in ((32, 32), (33, 47), (100, 224)):
        images = natural(*size)[torch.arange(len(levels)) % 3]
        chosen = torch.full((len(levels), 1), NAMES.index(name))
        draws = RandAugmentDraws(
            chosen, levels[:, None], torch.zeros(len(levels), 4, dtype=torch.long)
        )
        wanted = [
            tensor(pil.randaugment(picture(image), *row))
            for image, row in zip(images, rows(draws), strict=True)
        ]
        assert torch.equal(FIXMATCH.apply(images, draws), torch.stack(wanted))


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (64, 70), (1, 1), (2, 3)])
def test_simclr_views_are_pils_but_for_hue_and_blur(size: tuple[int, int]) -> None:
    images = batch(*size)
    drawn = SimCLRView().draw(images.shape, step_rng(0, 3, "views"))
    factors = drawn.factors.clone()
    factors[:, 4] = 0
    drawn = dataclasses.replace(drawn, factors=factors, sigmas=drawn.sigmas * 0)
    jitter = [
        [(kind, own[kind]) for kind in order if kind != 4]
        for order, own in zip(drawn.order.tolist(), factors.tolist(), strict=True)
    ]
    wanted = [
        tensor(pil.simclr(picture(image), *row, 0))
        for image, *row in zip(
            images, drawn.boxes.tolist(), drawn.flips.tolist(), jitter, drawn.gray, strict=True
        )
    ]
    assert torch.equal(SimCLRView().apply(images, drawn), torch.stack(wanted))


def test_operations_are_drawn_evenly_and_applied_half_the_time() -> None:
    draws = FIXMATCH.draw(MANY, step_rng(0, 0, "draws"))
    n = draws.operations.numel()
    for name, count in zip(NAMES, draws.operations.flatten().bincount(minlength=14), strict=True):
        wanted = 1 / 28 + (0.5 if name == "Identity" else 0)
        assert close_to(count.item() / n, wanted, n), name
    levels = draws.levels.abs().long().flatten().bincount(minlength=11)
    assert levels[[0, 10]].tolist() == [0, 0]
    assert all(close_to(count / n, 1 / 9, n) for count in levels[1:10].tolist())
    assert close_to((draws.levels > 0).double().mean().item(), 0.5, n)


def test_operations_of_an_image_are_independent() -> None:
    draws = FIXMATCH.draw(MANY, step_rng(0, 1, "draws"))
    first, second = (draws.operations > 0).T
    assert close_to((first & second).double().mean().item(), (13 / 28) ** 2, len(first))
    assert close_to((first[1:] & first[:-1]).double().mean().item(), (13 / 28) ** 2, len(first))
    high, positive = draws.levels.abs() > 4.5, draws.levels > 0
    assert close_to((high[:, 0] & positive[:, 0]).double().mean().item(), 5 / 18, len(first))
    assert close_to((positive[:, 0] & positive[:, 1]).double().mean().item(), 1 / 4, len(first))
    assert close_to((first & high[:, 0]).double().mean().item(), 13 / 28 * 5 / 9, len(first))


def test_usb_applies_three_operations_at_any_level() -> None:
    draws = USB.draw(MANY, step_rng(0, 2, "draws"))
    assert draws.operations.shape[1] == 3
    n = draws.operations.numel()
    assert close_to((draws.operations == 0).double().mean().item(), 1 / 14, n)
    for level in (-9.5, -5, 0, 1, 8):
        assert close_to((draws.levels < level).double().mean().item(), (level + 10) / 20, n)
    sides = draws.boxes[:, 2].bincount(minlength=17)
    assert sides[16:].sum() == 0
    assert all(close_to(count / MANY[0], 1 / 16, MANY[0]) for count in sides[:16].tolist())


@pytest.mark.parametrize(("size", "side"), [((32, 32), 16), ((224, 224), 112), ((40, 33), 16)])
def test_a_cutout_is_gray_and_half_as_wide_as_the_image(size: tuple[int, int], side: int) -> None:
    images = torch.full((200, 1, *size), 255, dtype=torch.uint8)
    only = RandAugment(operations=0)
    drawn = only.draw(images.shape, step_rng(0, 0, "cutout"))
    cut = only.apply(images, drawn) == 127
    tall, wide = cut.any(3).sum(2).amax(), cut.any(2).sum(2).amax()
    assert (tall, wide) == (side, side)
    assert (only.apply(images, drawn)[~cut] == 255).all()
    centers = drawn.boxes[:, :2] + side // 2
    assert centers.amin() == 0  # it may lie half over the edge
    assert (centers.amax(0) > torch.tensor(size) * 0.97 - 1).all()


def test_shifts_and_flips_are_even() -> None:
    shift = Weak().draw(torch.Size((40_000, 3, 32, 47)), step_rng(0, 0, "draws"))
    for places, most in ((shift.down, 4), (shift.right, 5)):
        counts = (places + most).bincount()
        assert len(counts) == 2 * most + 1
        assert all(close_to(count / 40_000, 1 / len(counts), 40_000) for count in counts.tolist())
    assert close_to(shift.flips.double().mean().item(), 0.5, 40_000)
    both = (shift.flips & (shift.down > 0)).double().mean().item()
    assert close_to(both, 0.5 * 4 / 9, 40_000)


def test_distortions_are_as_frequent_as_simclr_wants() -> None:
    drawn = SimCLRView(strength=0.5).draw(torch.Size((40_000, 3, 64, 64)), step_rng(0, 0, "draws"))
    used = drawn.order[drawn.order[:, 0] > 0]
    assert close_to(len(used) / 40_000, 0.8, 40_000)
    assert torch.equal(used.sort(1).values, torch.tensor([1, 2, 3, 4]).expand_as(used))
    codes = (used * torch.tensor([1000, 100, 10, 1])).sum(1).unique(return_counts=True)[1]
    assert len(codes) == 24
    assert all(close_to(count / len(used), 1 / 24, len(used)) for count in codes.tolist())
    assert close_to(drawn.gray.double().mean().item(), 0.2, 40_000)
    assert close_to(drawn.flips.double().mean().item(), 0.5, 40_000)
    blurred = drawn.sigmas[drawn.sigmas > 0]
    assert close_to(len(blurred) / 40_000, 0.5, 40_000)
    for values, low, high in (
        (drawn.factors[:, 1:4], 0.6, 1.4),
        (drawn.factors[:, 4], -0.1, 0.1),
        (blurred, 0.1, 2.0),
    ):
        assert values.min() >= low
        assert values.max() <= high
        quarter = (values < low + (high - low) / 4).double().mean().item()
        assert close_to(quarter, 1 / 4, values.numel())


@given(height=st.integers(1, 60), width=st.integers(1, 60), smallest=st.sampled_from([0.08, 0.9]))
def test_crops_lie_in_the_image(height: int, width: int, smallest: float) -> None:
    top, left, tall, wide = crop_boxes(50, height, width, smallest, step_rng(0, 0, "c")).unbind(1)
    assert min(top.min(), left.min()) >= 0
    assert min(tall.min(), wide.min()) >= 1
    assert (top + tall).max() <= height
    assert (left + wide).max() <= width


def test_crops_have_the_areas_and_shapes_that_simclr_wants() -> None:
    boxes = crop_boxes(40_000, 512, 512, 0.08, step_rng(0, 0, "crops")).double()
    area, ratio = boxes[:, 2] * boxes[:, 3] / 512**2, boxes[:, 3] / boxes[:, 2]
    assert 0.079 < area.min() < 0.085
    assert area.max() > 0.99
    assert 0.74 < ratio.min() < 0.76
    assert 1.32 < ratio.max() < 1.35
    small = area < 0.5  # these fit whatever their ratio, so the first try counts
    assert close_to((area[small] < 0.29).double().mean().item(), 0.5, int(small.sum()))
    assert close_to((ratio[small] < 1).double().mean().item(), 0.5, int(small.sum()))
    assert close_to((ratio[small].log() < -0.1438).double().mean().item(), 0.25, int(small.sum()))
    spread = boxes[small][:, 0] / (512 - boxes[small][:, 2])
    assert close_to((spread < 0.25).double().mean().item(), 0.25, int(small.sum()))


def test_crops_are_anywhere_in_the_image() -> None:
    boxes = crop_boxes(40_000, 4, 4, 0.08, step_rng(0, 0, "crops"))
    for start, length in ((0, 2), (1, 3)):
        places = boxes[boxes[:, length] == 2][:, start]
        counts = places.bincount() / len(places)
        assert len(counts) == 3
        assert all(close_to(count, 1 / 3, len(places)) for count in counts.tolist())


def test_a_crop_that_cannot_fit_is_central() -> None:
    boxes = crop_boxes(50, 10, 200, 0.9, step_rng(0, 0, "crops"))
    assert boxes.unique(dim=0).tolist() == [[0, 93, 10, 13]]
    assert crop_boxes(50, 200, 10, 0.9, step_rng(0, 0, "c")).unique(dim=0).tolist() == [
        [93, 0, 13, 10]
    ]


@pytest.mark.parametrize("which", [NATURAL, NATURAL_ORCA, NATURAL_USB])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_a_function_of_generator_and_place(which: NaturalViews, name: ViewName) -> None:
    images = batch(16, 20)
    first = which.view(name, images, step_rng(3, 1, "views"))
    assert torch.equal(first, which.view(name, images, step_rng(3, 1, "views")))
    assert not torch.equal(first, which.view(name, images, step_rng(3, 2, "views")))
    others = images.clone()
    others[1:] = others[1:].flip(0)
    assert torch.equal(first[0], which.view(name, others, step_rng(3, 1, "views"))[0])
    same = which.view(name, images[:1].expand(36, -1, -1, -1), step_rng(3, 1, "views"))
    assert len(same.unique(dim=0)) > 20  # each image draws for itself


@pytest.mark.parametrize("name", VIEWS)
def test_a_batch_may_be_done_in_parts(name: ViewName, monkeypatch: pytest.MonkeyPatch) -> None:
    images = batch(66, 64, repeats=2)
    whole = NATURAL.view(name, images, step_rng(0, 0, "views"))
    monkeypatch.setattr(views, "CHUNK_BYTES", 5 * images[0].numel())
    assert torch.equal(NATURAL.view(name, images, step_rng(0, 0, "views")), whole)


@settings(max_examples=40)
@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    channels=st.sampled_from([1, 3]),
    n=st.integers(0, 9),
    name=st.sampled_from(["plain", *VIEWS]),
    seed=st.integers(0, 10**6),
)
def test_a_view_has_the_images_shape_and_bytes_over_255(
    height: int, width: int, channels: int, n: int, name: ViewName, seed: int
) -> None:
    images = batch(height, width, channels, repeats=2)[:n]
    kept, blurry = (
        images.clone(),
        dataclasses.replace(NATURAL, simclr=SimCLRView(blur_from=1, blur=1)),
    )
    view = blurry.view(name, images, step_rng(seed, 0, "views"))
    assert view.shape == images.shape
    assert view.dtype == torch.float32
    assert torch.equal((view * 255).round().clamp(0, 255) / 255, view)
    assert torch.equal(images, kept)
    again = blurry.view(name, images.float() / 255, step_rng(seed, 0, "views"))
    assert torch.equal(view, again)  # floats or bytes


def test_plain_floats_are_left_alone() -> None:
    images = torch.rand(2, 3, 5, 5)
    assert NATURAL.view("plain", images, step_rng(0, 0, "views")) is images


def test_floats_are_rounded_to_bytes() -> None:
    images = batch(8, 9)[:4]
    wanted = NATURAL.view("weak", images, step_rng(0, 0, "views"))
    for off in (-0.4, 0.4):
        floats = ((images.float() + off) / 255).clamp(0, 1)
        assert torch.equal(NATURAL.view("weak", floats, step_rng(0, 0, "views")), wanted)


def test_small_images_are_not_blurred() -> None:
    for side, least in ((63, 0), (64, 1)):
        drawn = SimCLRView(blur=1).draw(torch.Size((50, 3, side, 80)), step_rng(0, 0, "views"))
        assert (drawn.sigmas > 0).double().mean() == least


def test_an_augmentation_of_chance_0_is_none() -> None:
    images = batch(16, 20)
    still = NaturalViews(
        Weak(flip=0, padding=0), RandAugment(chance=0, cutout=0), SimCLRView(1, 0, 0, 0, 0, 0)
    )
    for name in ("weak", "strong"):
        assert torch.equal(still.view(name, images, step_rng(0, 0, "views")), images.float() / 255)


def test_options_are_reached_by_their_keys() -> None:
    changed = override(NATURAL, "strong.operations=3")
    changed = override(changed, "weak.border=zero")
    changed = override(changed, "strong.cutout_fill=1,2,3")
    changed = override(changed, "strong.levels=none")
    assert (changed.strong.operations, changed.weak.border) == (3, "zero")
    assert (changed.strong.cutout_fill, changed.strong.levels) == ((1, 2, 3), None)
    assert all(option.meaning for option in options(NATURAL).values())


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("weak.padding=1", "padding = 1.0 must be at least 0 and below 1"),
        ("weak.flip=2", "flip = 2.0 must be between 0 and 1"),
        ("strong.chance=-1", "chance = -1.0 must be between 0 and 1"),
        ("strong.levels=11", "levels = 11 must be between 1 and 10, or none"),
        ("strong.operations=-1", "operations = -1 must not be negative"),
        ("strong.cutout=1.5", "cutout = 1.5 must be between 0 and 1"),
        ("strong.cutout_fill=300", "A fill is 300: it must be between 0 and 255"),
        ("simclr.smallest=0", "smallest = 0.0 must be above 0"),
        ("simclr.strength=3", "strength = 3.0 must be from 0 to 2.5"),
        ("simclr.gray=7", "gray = 7.0 must be between 0 and 1"),
    ],
)
def test_options_out_of_range_are_named(assignment: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        override(NATURAL, assignment)


def test_images_that_cannot_be_augmented_are_refused() -> None:
    for shape in ((2, 4, 8, 8), (3, 8, 8)):
        with pytest.raises(InputError, match="1 or 3 channels"):
            NATURAL.view("weak", torch.zeros(shape), step_rng(0, 0, "views"))
    with pytest.raises(InputError, match="does not fit 1 channels"):
        NATURAL_USB.view("strong", torch.zeros(2, 1, 8, 8), step_rng(0, 0, "views"))


def test_batches_take_natural_views() -> None:
    images = batch(8, 8).float() / 255
    data = TrainingData(images[:6], torch.arange(6) % 2, images[6:], 2, 4)
    wanted = Views(("weak",), ("weak", "strong", "simclr", "plain"))
    inputs = Batches(data, wanted, NATURAL, 4, 5, seed=3).at(2).inputs
    assert inputs.shape == (4 + 4 * 5, 3, 8, 8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", VIEWS)
def test_a_gpu_gives_the_same_views(name: ViewName) -> None:
    images = batch(33, 47)
    here, there = (
        NATURAL.view(name, images.to(device), step_rng(0, 0, "views")).cpu()
        for device in ("cpu", "cuda")
    )
    assert torch.equal(here, there)


def test_a_store_s_fingerprint_does_not_change_with_names_in_the_code() -> None:
    """`embed` fingerprints the text of its views: another text would refuse all stores so far."""
    weak = "weak=Weak(flip=0.5, padding=0.125, border='reflect')"
    strong = (
        "strong=RandAugment(operations=2, chance=0.5, levels=9, fill=0, cutout=0.5, "
        "cutout_varies=False, cutout_fill=(127,))"
    )
    simclr = (
        "simclr=SimCLR(smallest=0.08, flip=0.5, strength=0.5, jitter=0.8, grey=0.2, blur=0.5, "
        "blur_from=64, size=24)"
    )
    assert repr(NATURAL_24) == f"NaturalViews({weak}, {strong}, {simclr})"
    texts = json.dumps({name: repr(views) for name, views in BY_NAME.items()}, sort_keys=True)
    assert (
        hashlib.sha256(texts.encode()).hexdigest()
        == "fe7ac3e9cacab6fd790bef90e0edb41acd2cd2a1867ffc462a6a4b06305e6a2f"
    )
