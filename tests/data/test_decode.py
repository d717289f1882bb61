"""Image files of every kind become the pixels that they show; garbage becomes a reason."""

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from pictures import encoded, noise
from protofission.core.errors import InputError
from protofission.data.readers.decode import (
    Decoding,
    decode,
    height_and_width,
    quiet_pillow,
)
from protofission.data.readers.image_formats import RefusedError

PICTURE = noise(6, 6)
SMOOTH = np.stack(np.broadcast_arrays(*np.ogrid[0:128:2, 0:256:4], 90), -1).astype(np.uint8)


def hwc(content: bytes, height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    with quiet_pillow():
        return decode(content, Decoding(height, width, channels)).transpose(1, 2, 0)


def png(width: int, height: int, bits: int, color: int, rows: bytes) -> bytes:
    """A PNG file, chunk by chunk, of a kind that Pillow cannot write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


def png_header(width: int, height: int) -> bytes:
    return png(width, height, 8, 2, b"\0" * 100)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("PNG", {}), ("BMP", {}), ("WEBP", {"lossless": True}), ("PNG", {"compress_level": 0})],
)
def test_lossless_files_give_their_exact_pixels(kind: str, options: dict[str, object]) -> None:
    assert np.array_equal(hwc(encoded(PICTURE, kind, **options), 6, 6), PICTURE)


@pytest.mark.parametrize(("kind", "tolerance"), [("JPEG", 6), ("WEBP", 12), ("GIF", 40)])
def test_lossy_files_give_nearly_their_pixels(kind: str, tolerance: int) -> None:
    error = np.abs(hwc(encoded(SMOOTH, kind), 64, 64).astype(int) - SMOOTH)
    assert error.mean() < tolerance / 2
    assert error.max() <= 3 * tolerance


def test_gray_files_have_equal_channels_and_one_if_wanted() -> None:
    gray = PICTURE[..., 0]
    for image in (Image.fromarray(gray), Image.fromarray(gray).convert("LA")):
        assert np.array_equal(hwc(encoded(image), 6, 6), np.stack([gray] * 3, -1))
        assert np.array_equal(hwc(encoded(image), 6, 6, 1)[..., 0], gray)


def test_color_becomes_gray_by_luma() -> None:
    luma = PICTURE @ np.array([0.299, 0.587, 0.114])
    assert np.abs(hwc(encoded(PICTURE), 6, 6, 1)[..., 0] - luma).max() <= 1


def test_one_bit_files_are_black_and_white() -> None:
    bits = PICTURE[..., 0] > 127
    assert np.array_equal(hwc(encoded(Image.fromarray(bits)), 6, 6)[..., 1], bits * 255)


def test_palette_files_give_their_colors() -> None:
    image = Image.fromarray(np.array([[0, 1], [2, 1]], np.uint8)).copy()
    image = Image.frombytes("P", (2, 2), image.tobytes())
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    colors = [[[10, 20, 30], [40, 50, 60]], [[70, 80, 90], [40, 50, 60]]]
    for kind in ("PNG", "GIF", "BMP"):
        assert hwc(encoded(image, kind), 2, 2).tolist() == colors
    transparent = encoded(image, "PNG", transparency=1)
    colors[0][1] = colors[1][1] = [255, 255, 255]
    assert hwc(transparent, 2, 2).tolist() == colors


def test_transparency_is_put_on_white() -> None:
    alpha = noise(6, 6, 1)[..., :1]
    rgba = Image.fromarray(np.concatenate([PICTURE, alpha], -1))
    share = alpha / 255
    expected = PICTURE * share + 255 * (1 - share)
    for kind, options in (("PNG", {}), ("WEBP", {"lossless": True, "exact": True})):
        assert np.abs(hwc(encoded(rgba, kind, **options), 6, 6) - expected).max() <= 1


def test_cmyk_files_show_what_they_print() -> None:
    cmyk = Image.new("CMYK", (16, 16), (0, 255, 255, 0))  # no cyan, all magenta and yellow: red
    red = hwc(encoded(cmyk, "JPEG"), 16, 16)
    assert red[..., 0].min() > 240
    assert red[..., 1:].max() < 15


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    values = np.array([[0, 128, 129, 257], [32768, 40000, 65406, 65535]], np.uint16)
    content = encoded(Image.fromarray(values))
    assert Image.open(io.BytesIO(content)).mode.startswith("I")
    assert hwc(content, 2, 4, 1)[..., 0].tolist() == [[0, 0, 1, 1], [128, 156, 254, 255]]


def test_sixteen_bits_of_color_and_of_transparency() -> None:
    values = (0, 128 * 257, 65535)
    color = png(1, 1, 16, 2, b"\0" + struct.pack(">3H", *values))
    assert hwc(color, 1, 1).tolist() == [[[0, 128, 255]]]
    gray = png(2, 1, 16, 4, b"\0" + struct.pack(">4H", 128 * 257, 65535, 128 * 257, 0))
    assert hwc(gray, 1, 2).tolist() == [[[128] * 3, [255] * 3]]  # the second is transparent


def test_a_telephones_multi_picture_file_shows_its_first() -> None:
    colors = [Image.new("RGB", (16, 16), color) for color in ("red", "blue")]
    content = encoded(colors[0], "MPO", save_all=True, append_images=colors[1:])
    assert np.abs(hwc(content, 16, 16).astype(int) - [254, 0, 0]).max() <= 3


def test_a_gif_or_webp_shows_its_first_frame() -> None:
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "blue")]
    for kind in ("GIF", "WEBP", "PNG"):
        options = {"lossless": True} if kind == "WEBP" else {}
        content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert (hwc(content, 4, 4) == [255, 0, 0]).all()


# Where the first row and the first column of the stored image belong, as EXIF 2.3 words it.
PLACES = {
    1: lambda p: p,
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.transpose(1, 0, 2),
    6: lambda p: p.transpose(1, 0, 2)[:, ::-1],
    7: lambda p: p.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda p: p.transpose(1, 0, 2)[::-1],
}


@pytest.mark.parametrize("orientation", PLACES)
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_images_are_turned_as_the_camera_was_held(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = noise(4, 7)
    options = {"lossless": True} if kind == "WEBP" else {}
    shown = PLACES[orientation](stored)
    content = encoded(stored, kind, exif=exif, **options)
    assert np.array_equal(hwc(content, *shown.shape[:2]), shown)


def test_broken_exif_does_not_cost_the_image() -> None:
    for exif in (
        b"Exif\0\0garbage",
        b"Exif\0\0MM\0*\0\0\0\x08\xff\xff",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
    ):
        assert hwc(encoded(SMOOTH, "JPEG", exif=exif), 64, 64).shape == (64, 64, 3)


@pytest.mark.parametrize(("height", "width"), [(20, 100), (100, 20), (40, 40), (30, 20)])
def test_larger_images_are_resized_to_cover_and_cropped_to_the_center(
    height: int, width: int
) -> None:
    stored, shorter = noise(height, width), min(height, width)
    resized = Image.fromarray(stored).resize(
        (10 * width // shorter, 10 * height // shorter), Image.Resampling.BICUBIC
    )
    left, top = (resized.width - 10) / 2, (resized.height - 10) / 2
    if left.is_integer() and top.is_integer():
        expected = np.asarray(resized.crop((int(left), int(top), int(left) + 10, int(top) + 10)))
        assert np.array_equal(hwc(encoded(stored), 10, 10), expected)
    else:  # the center lies between two pixels, and the image is sampled there
        found = hwc(encoded(stored), 10, 10)
        assert np.array_equal(found[::-1], hwc(encoded(stored[::-1].copy()), 10, 10))
        assert np.array_equal(found[:, ::-1], hwc(encoded(stored[:, ::-1].copy()), 10, 10))


def test_an_image_that_is_not_square_keeps_its_proportions() -> None:
    halves = np.zeros((20, 100, 3), np.uint8)
    halves[:, 40:60] = 200
    found = hwc(encoded(halves), 20, 60)
    assert (found[:, 20:40] == 200).all()
    assert (found[:, :20] == 0).all()
    assert (found[:, 40:] == 0).all()


def test_resizing_is_antialiased() -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    assert np.abs(hwc(encoded(stripes), 8, 8).astype(int) - 127).max() <= 5


def test_small_images_are_enlarged() -> None:
    assert (hwc(encoded(np.full((1, 1, 3), 77, np.uint8)), 5, 9) == 77).all()
    assert hwc(encoded(noise(1, 300)), 8, 8).shape == (8, 8, 3)


def test_a_large_jpeg_is_the_same_picture_at_a_small_size() -> None:
    big = np.kron(SMOOTH, np.ones((16, 16, 1), np.uint8))
    error = np.abs(hwc(encoded(big, "JPEG", quality=95), 64, 64).astype(int) - SMOOTH)
    assert error.max() <= 6


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "an empty file"),
        (b"hello", "not a JPEG, PNG, WebP, BMP, GIF, PNM, TIFF, AVIF or HEIC image"),
        (b"%PDF-1.7\n", "not a JPEG"),
        (encoded(PICTURE, "ICO"), "not a JPEG"),
        (encoded(PICTURE, "TGA"), "not a JPEG"),
        (encoded(noise(64, 64), "JPEG")[:1500], "truncated"),
        (encoded(PICTURE)[:60], "corrupt or truncated"),
        (encoded(PICTURE, "BMP")[:80], "truncated"),
        (png_header(20_000, 20_000), "huge: more pixels"),  # more than twice Pillow's limit
        (png_header(10_000, 10_000), "huge: more pixels"),  # Pillow alone would only warn
        (png_header(2**31 - 1, 2**31 - 1), "huge"),
        (b"x" * (2**28 + 1), "huge: more than 268,435,456 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_read_has_a_reason(content: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason), quiet_pillow():
        decode(content, Decoding(4, 4))


def test_the_pixel_limit_is_ours_whatever_pillows_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(RefusedError, match="huge: 10000 x 10000 pixels"):
        decode(png_header(10_000, 10_000), Decoding(4, 4))
    assert decode(encoded(PICTURE), Decoding(4, 4, pixel_limit=36)).shape == (3, 4, 4)
    with pytest.raises(RefusedError, match="huge: 6 x 6 pixels"):
        decode(encoded(PICTURE), Decoding(4, 4, pixel_limit=35))


SEEDS = [
    encoded(SMOOTH, "JPEG"),
    encoded(SMOOTH, "JPEG", progressive=True),
    encoded(noise(12, 12)),
    encoded(Image.fromarray(PICTURE).quantize(8), "PNG"),
    encoded(PICTURE, "GIF"),
    encoded(PICTURE, "WEBP"),
    encoded(PICTURE, "BMP"),
    encoded(Image.fromarray(np.arange(16, dtype=np.uint16).reshape(4, 4) * 4000)),
]


@settings(max_examples=400)
@given(
    seed=st.sampled_from(SEEDS),
    cut=st.floats(0, 1),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8),
    tail=st.binary(max_size=8),
)
def test_no_damage_raises_anything_but_a_reason(
    seed: bytes, cut: float, flips: list[tuple[float, int]], tail: bytes
) -> None:
    content = bytearray(seed)
    for place, value in flips:
        content[int(place * len(content))] = value
    damaged = bytes(content[: int(cut * len(content))]) + tail
    with quiet_pillow():
        try:
            found = decode(damaged, Decoding(5, 7, pixel_limit=10**6))
        except RefusedError:
            return
        assert (found.shape, found.dtype) == ((3, 5, 7), np.uint8)


@given(
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"RIFF"]),
    st.binary(),
)
def test_garbage_is_never_an_image(start: bytes, rest: bytes) -> None:
    with pytest.raises(RefusedError), quiet_pillow():
        decode(start + rest, Decoding(5, 7, pixel_limit=10**6))


@pytest.mark.parametrize(
    ("size", "sentence"),
    [((0, 4), "height = 0"), ((4, -1), "width = -1"), ((4, 5000), "width = 5000")],
)
def test_a_size_that_cannot_be_is_refused(size: tuple[int, int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Decoding(*size)


def test_channels_are_one_or_three() -> None:
    with pytest.raises(InputError, match="channels = 4: give 3, or 1 for gray"):
        Decoding(4, 4, 4)


def test_a_size_is_one_number_or_two() -> None:
    assert height_and_width(5) == (5, 5)
    assert height_and_width((5, 6)) == (5, 6)
    with pytest.raises(InputError, match=r"size = \(1, 2, 3\): give \(height, width\)"):
        height_and_width((1, 2, 3))  # type: ignore[arg-type]
