"""Batched operations give PIL's bytes, for any size, image by image."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from protofission.core.rng import step_rng
from protofission.data.augment import color, geometry
from protofission.data.augment.operations import IDENTITY, Operation, apply_each, same_values
from reference import pil_operations as pil
from tensor_pictures import natural, picture, tensor

SIZES = [(32, 32), (33, 47), (224, 224), (1, 1), (2, 3), (3, 3), (5, 1)]


def by_pil(images: Tensor, operation: Callable[..., Image.Image], values: Sequence) -> Tensor:
    made = [operation(picture(i), *v) for i, v in zip(images, values, strict=True)]
    return torch.stack([tensor(image) for image in made])


def table(make: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda images, values: color.look_up(images, make(images, values))


def full(images: Tensor, value: float) -> Tensor:
    return torch.full((len(images),), value, dtype=torch.float64)


def mapped(make: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda images, values: geometry.affine(images, make(images, values))


FACTORS = [0.0, 0.05, 0.14, 0.5, 0.77, 0.95, 1.0, 1.3, 1.9]
SLOPES = [-0.3, -0.27, -0.03, 0.0, 0.06, 0.15, 0.21, 0.3]
TWINS: dict[str, tuple] = {
    "brightness": (table(color.brightness_tables), pil.brightness, FACTORS),
    "contrast": (table(color.contrast_tables), pil.contrast, FACTORS),
    "color": (color.saturate, pil.color, FACTORS),
    "sharpness": (color.sharpen, pil.sharpness, FACTORS),
    "posterize": (table(color.posterize_tables), pil.posterize, range(1, 9)),
    "solarize": (table(color.solarize_tables), pil.solarize, [0, 1, 26, 77, 128, 231, 255, 256]),
    "rotate": (mapped(geometry.rotation), pil.rotate, [-30, -27, -3, 0, 6, 15, 29.5, 90, 180]),
    "shear_x": (mapped(geometry.shear_x), pil.shear_x, SLOPES),
    "shear_y": (mapped(geometry.shear_y), pil.shear_y, SLOPES),
    "translate_x": (mapped(geometry.translation_x), pil.translate_x, [-9, -1, 0, 1, 4, 9, 0.3]),
    "translate_y": (mapped(geometry.translation_y), pil.translate_y, [-9, -1, 0, 1, 4, 9, -0.7]),
}
FREE = {
    "auto_contrast": (table(color.autocontrast_tables), pil.auto_contrast),
    "equalize": (table(color.equalize_tables), pil.equalize),
    "gray": (color.to_gray, pil.gray),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TWINS)
def test_an_operation_gives_pils_bytes(name: str, size: tuple[int, int], channels: int) -> None:
    ours, theirs, values = TWINS[name]
    images = natural(*size, channels=channels)
    for value in values:
        got = ours(images, full(images, value))
        assert torch.equal(got, by_pil(images, theirs, [(value,)] * len(images))), value


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FREE)
def test_an_operation_without_parameter_gives_pils_bytes(
    name: str, size: tuple[int, int], channels: int
) -> None:
    ours, theirs = FREE[name]
    for seed in range(4):
        images = natural(*size, seed=seed, channels=channels)
        got = ours(images, torch.zeros(len(images)))
        assert torch.equal(got, by_pil(images, theirs, [()] * len(images)))


def test_the_fill_is_what_lies_outside() -> None:
    images = natural(33, 47)
    maps = geometry.rotation(images, full(images, 25))
    theirs = by_pil(images, pil.rotate, [(25, 128)] * len(images))
    assert torch.equal(geometry.affine(images, maps, fill=128), theirs)


@given(data=st.data(), height=st.integers(1, 40), width=st.integers(1, 40))
def test_any_affine_map_gives_pils_bytes(data: st.DataObject, height: int, width: int) -> None:
    images = natural(height, width)[:2]
    entries = st.sampled_from([-1.5, -1.0, -0.37, -0.1, 0.0, 0.2, 0.73, 1.0, 1.41, 3.3])
    maps = data.draw(st.lists(entries, min_size=12, max_size=12))
    ours = geometry.affine(images, torch.tensor(maps, dtype=torch.float64).view(2, 6))
    assert torch.equal(ours, by_pil(images, pil.affine, [(maps[:6],), (maps[6:],)]))


@given(data=st.data(), height=st.integers(1, 40), width=st.integers(1, 40))
def test_a_resized_crop_gives_pils_bytes(data: st.DataObject, height: int, width: int) -> None:
    images = natural(height, width)[:3]
    boxes, flips = [], data.draw(st.lists(st.booleans(), min_size=3, max_size=3))
    for _ in images:
        top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
        tall, wide = (data.draw(st.integers(1, m)) for m in (height - top, width - left))
        boxes.append((top, left, tall, wide))
    ours = geometry.resized_crop(images, torch.tensor(boxes), torch.tensor(flips))
    assert torch.equal(ours, by_pil(images, pil.resized_crop, list(zip(boxes, flips, strict=True))))


@given(
    data=st.data(),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    border=st.sampled_from(["reflect", "zero"]),
)
def test_a_shift_gives_pils_bytes(
    data: st.DataObject, height: int, width: int, border: geometry.Border
) -> None:
    images, padding = natural(height, width)[:3], (height // 2, width // 2)
    drawn = [
        (
            data.draw(st.integers(-padding[0], padding[0])),
            data.draw(st.integers(-padding[1], padding[1])),
            data.draw(st.booleans()),
        )
        for _ in images
    ]
    down, right, flips = (torch.tensor(part) for part in zip(*drawn, strict=True))
    ours = geometry.shift(images, down, right, flips, border)
    assert torch.equal(ours, by_pil(images, pil.shift, [(*d, padding, border) for d in drawn]))


def test_a_shift_by_hand() -> None:
    images = torch.tensor([[[[1, 2, 3, 4]]]], dtype=torch.uint8).expand(4, 1, 1, 4)
    right, flips = torch.tensor([-2, 1, 1, -2]), torch.tensor([False, False, True, True])
    down = torch.zeros(4, dtype=torch.long)
    mirrored = geometry.shift(images, down, right, flips, "reflect")[:, 0, 0].tolist()
    assert mirrored == [[3, 2, 1, 2], [2, 3, 4, 3], [3, 2, 1, 2], [2, 3, 4, 3]]
    zeros = geometry.shift(images, down, right, flips, "zero")[:, 0, 0].tolist()
    assert zeros == [[0, 0, 1, 2], [2, 3, 4, 0], [3, 2, 1, 0], [0, 0, 4, 3]]


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (1, 1), (2, 3)])
def test_a_cutout_gives_pils_bytes(size: tuple[int, int]) -> None:
    images = natural(*size)
    boxes = [(0, 0, 1, 1), (-3, -2, 8, 8), (20, 25, 16, 16), (1, 0, 0, 0), (40, 9, 5, 5)]
    boxes.append((0, 0, *size))
    for fill in ((127,), (125, 123, 114)):
        ours = geometry.cutout(images, torch.tensor(boxes), fill)
        assert torch.equal(ours, by_pil(images, pil.cutout, [(box, fill) for box in boxes]))


@pytest.mark.parametrize("size", [(16, 16), (7, 9), (1, 1), (2, 3)])
def test_hues_turn_as_in_colorsys_to_one_level(size: tuple[int, int]) -> None:
    images = natural(*size)
    for turn in (-0.5, -0.2, -0.03, 0.0, 0.1, 1 / 3, 0.5):
        ours = color.turn_hue(images, full(images, turn))
        exact = by_pil(images, pil.hue_of_colorsys, [(turn,)] * len(images))
        assert (ours.int() - exact.int()).abs().max() <= (1 if turn else 0)


def test_hues_turn_as_in_pil_to_the_steps_of_its_bytes() -> None:
    images = natural(33, 47)
    for turn in (-0.5, -0.1, 0.04, 0.2):
        ours = color.turn_hue(images, full(images, turn)).int()
        off = (ours - by_pil(images, pil.hue, [(turn,)] * len(images)).int()).abs().float()
        assert off.max() <= 15
        assert off.mean() < 3


def test_a_third_of_the_circle_turns_red_into_green() -> None:
    red = torch.tensor([200, 10, 10], dtype=torch.uint8).view(1, 3, 1, 1)
    turned = color.turn_hue(red, full(red, 1 / 3)).flatten().tolist()
    assert turned == [10, 200, 10]
    assert color.turn_hue(red, full(red, -1 / 3)).flatten().tolist() == [10, 10, 200]


def test_a_blur_is_gaussian_to_half_a_level() -> None:
    images = natural(40, 43, channels=1)[:3]
    sigmas = torch.tensor([0.1, 0.8, 2.0], dtype=torch.float64)
    ours = color.blur(images, sigmas)
    for image, sigma, made in zip(images, sigmas.tolist(), ours, strict=True):
        exact = torch.tensor(pil.gaussian_blur(image[0].tolist(), sigma, reach=2))
        assert (made[0] - exact).abs().max() <= 0.501


def test_a_blur_is_close_to_pils() -> None:
    images = natural(224, 224)[1:]  # on noise PIL's three boxes are no Gaussian
    for sigma in (0.1, 0.3, 0.7, 1.3, 2.0):
        ours = color.blur(images, full(images, sigma)).int()
        off = (ours - by_pil(images, pil.blur, [(sigma,)] * len(images)).int()).abs()
        assert off.max() <= 2


def test_tables_by_hand() -> None:
    image = torch.tensor([10, 20, 30, 60], dtype=torch.uint8).view(1, 1, 2, 2)
    no_value = torch.zeros(1)

    def looked_up(tables: Tensor) -> list[int]:
        return color.look_up(image, tables).flatten().tolist()

    assert looked_up(color.autocontrast_tables(image, no_value)) == [0, 51, 102, 255]
    assert looked_up(color.posterize_tables(image, full(image, 4))) == [0, 16, 16, 48]
    assert looked_up(color.solarize_tables(image, full(image, 30))) == [10, 20, 225, 195]
    assert looked_up(color.brightness_tables(image, full(image, 0.55))) == [5, 11, 16, 33]
    assert looked_up(color.contrast_tables(image, full(image, 0.5))) == [20, 25, 30, 45]  # mean 30


def test_equalizing_an_even_ramp_changes_no_order() -> None:
    ramp = torch.arange(512).div(4, rounding_mode="floor").byte().view(1, 1, 16, 32)
    even = color.look_up(ramp, color.equalize_tables(ramp, torch.zeros(1)))
    assert even.flatten().tolist() == [min(255, (0 + 4 * v) // 1) for v in ramp.flatten().tolist()]


COLORS = {name: TWINS[name] for name in ("brightness", "contrast", "color", "sharpness")}


@given(
    height=st.integers(1, 20),
    width=st.integers(1, 20),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
)
def test_what_must_hold_for_any_image(height: int, width: int, channels: int, seed: int) -> None:
    images = natural(height, width, seed, channels)
    kept = images.clone()
    for name, (ours, _) in FREE.items():
        once = ours(images, torch.zeros(len(images)))
        assert once.shape == images.shape
        assert once.dtype == torch.uint8
        if name != "equalize":  # twice is once, but that PIL cuts 254.99... to 254
            twice = ours(once, torch.zeros(len(images)))
            assert (twice.int() - once.int()).abs().max() <= (name == "auto_contrast")
        assert torch.equal(once[3:], images[3:])  # constant images stay
    for ours, _, _ in COLORS.values():
        assert torch.equal(ours(images, full(images, 1)), images)
    for name in ("rotate", "shear_x", "shear_y", "translate_x", "translate_y"):
        assert torch.equal(TWINS[name][0](images, full(images, 0)), images)
    assert torch.equal(TWINS["posterize"][0](images, full(images, 8)), images)
    assert torch.equal(TWINS["solarize"][0](images, full(images, 256)), images)
    assert torch.equal(color.turn_hue(images, full(images, 0)), images)
    assert torch.equal(color.blur(images, full(images, 0.1)), images)
    assert torch.equal(images, kept)  # nothing is done in place


@given(chosen=st.lists(st.integers(0, 4), min_size=6, max_size=6), seed=st.integers(0, 99))
def test_a_batch_is_done_as_its_images_are(chosen: list[int], seed: int) -> None:
    pool = (
        IDENTITY,
        Operation(color.look_up, color.brightness_tables),
        Operation(color.look_up, color.contrast_tables),
        Operation(color.sharpen, same_values),
        Operation(geometry.affine, geometry.rotation),
    )
    images = natural(9, 7, seed)
    values = torch.rand(6, generator=step_rng(seed, 0, "values"), dtype=torch.float64)
    whole = apply_each(images, torch.tensor(chosen), values, pool)
    for i, place in enumerate(chosen):
        own, value = images[i : i + 1], values[i : i + 1]
        assert torch.equal(whole[i : i + 1], pool[place].run(own, pool[place].argument(own, value)))
