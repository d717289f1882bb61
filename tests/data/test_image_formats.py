"""PNM, TIFF, AVIF and HEIC files: exact pixels, scaled 16 bits, and reasons for what is refused."""

import io
import struct
import sys
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from pictures import encoded, noise, write
from protofission.data.readers import image_formats
from protofission.data.readers.decode import Decoding, decode, quiet_pillow
from protofission.data.readers.image_folders import load_folder
from protofission.data.readers.image_formats import MOST_TAG_VALUES, RefusedError

PICTURE = noise(6, 6)
GRAYS = np.random.default_rng(0).integers(0, 65536, (5, 7)).astype(np.uint16)
GRAYS.flat[:6] = 0, 128, 129, 65406, 65407, 65535
HEIC_HEAD = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


def hwc(content: bytes, height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    with quiet_pillow():
        return decode(content, Decoding(height, width, channels)).transpose(1, 2, 0)


def reason(content: bytes, **limits: int) -> str:
    with pytest.raises(RefusedError) as refused, quiet_pillow():
        decode(content, Decoding(4, 4, **limits))
    return str(refused.value)


def tiff(
    data: bytes, width: int, height: int, *, order: str = "<", big: bool = False, **tags: object
) -> bytes:
    """A TIFF file of one strip or tile, entry by entry; tags are named t258 and so on."""
    start, entry = (16, "HHQ") if big else (8, "HHI")
    values = {256: width, 257: height, 259: 1, 262: 1, 273: start, 277: 1, 278: height, 279: 0}
    values |= {int(name[1:]): value for name, value in tags.items()}
    values = {tag: value for tag, value in values.items() if value is not None}
    extra, entries, directory = b"", b"", start + len(data)
    after = directory + (16 + 20 * len(values) if big else 6 + 12 * len(values))
    if 279 in values:
        values[279] = len(data)
    for tag, value in sorted(values.items()):
        numbers = value if isinstance(value, tuple) else (value,)
        packed = struct.pack(f"{order}{len(numbers)}I", *numbers)
        room = 8 if big else 4
        if len(packed) > room:
            packed, extra = struct.pack(order + "QI"[not big], after + len(extra)), extra + packed
        entries += struct.pack(order + entry, tag, 4, len(numbers)) + packed.ljust(room, b"\0")
    magic = b"II" if order == "<" else b"MM"
    head = struct.pack(
        order + ("HHHQ" if big else "HI"), *((43, 8, 0) if big else (42,)), directory
    )
    count = struct.pack(order + ("Q" if big else "H"), len(values))
    return magic + head + data + count + entries + bytes(8 if big else 4) + extra


def scaled(values: NDArray[np.uint16], most: int = 65535) -> list[list[int]]:
    """The slow twin: the nearest of 256 levels between black and white, value by value."""
    return [[int(int(v) * 255 / most + 0.5) for v in row] for row in values]


@pytest.mark.parametrize(("order", "big"), [("<", False), (">", False), ("<", True)])
def test_sixteen_bits_of_a_tiff_are_scaled_in_either_byte_order(order: str, big: bool) -> None:
    content = tiff(GRAYS.astype(order + "u2").tobytes(), 7, 5, order=order, big=big, t258=16)
    assert hwc(content, 5, 7, 1)[..., 0].tolist() == scaled(GRAYS)


def test_sixteen_bits_are_scaled_whatever_the_file_is() -> None:
    image = Image.fromarray(GRAYS)
    for content in (
        encoded(image, "TIFF"),
        encoded(image, "TIFF", compression="tiff_lzw"),
        encoded(image, "TIFF", compression="tiff_adobe_deflate"),
        encoded(image, "PPM"),
        encoded(image, "PNG"),
    ):
        assert hwc(content, 5, 7, 1)[..., 0].tolist() == scaled(GRAYS)


def test_white_may_be_zero_and_bits_may_be_twelve() -> None:
    turned = tiff(GRAYS.tobytes(), 7, 5, t258=16, t262=0)
    assert hwc(turned, 5, 7, 1)[..., 0].tolist() == scaled(65535 - GRAYS)
    values = np.array([[0, 8, 9, 2048, 4086, 4095]], np.uint16)
    pairs = [(int(a), int(b)) for a, b in values.reshape(-1, 2)]
    packed = b"".join(bytes([a >> 4, (a & 15) << 4 | b >> 8, b & 255]) for a, b in pairs)
    twelve = tiff(packed, 6, 1, t258=12)
    assert hwc(twelve, 1, 6, 1)[..., 0].tolist() == scaled(values, 4095)


@pytest.mark.parametrize(
    ("head", "numbers"),
    [
        (b"P2\n# a comment\n7 5\n4095\n", " ".join(str(v // 16) for v in GRAYS.flat).encode()),
        (b"P5 7 5 4095\n", (GRAYS // 16).astype(">u2").tobytes()),
    ],
)
def test_a_pgm_file_is_scaled_by_its_own_maximum(head: bytes, numbers: bytes) -> None:
    assert hwc(head + numbers, 5, 7, 1)[..., 0].tolist() == scaled(GRAYS // 16, 4095)


def test_pnm_files_give_their_exact_pixels() -> None:
    assert np.array_equal(hwc(encoded(PICTURE, "PPM"), 6, 6), PICTURE)
    gray, bits = PICTURE[..., 0], PICTURE[..., 0] > 127
    assert np.array_equal(hwc(encoded(gray, "PPM"), 6, 6, 1)[..., 0], gray)
    assert np.array_equal(hwc(encoded(bits, "PPM"), 6, 6, 1)[..., 0], bits * 255)
    text = b"P3 6 6 255 " + " ".join(map(str, PICTURE.flat)).encode()
    assert np.array_equal(hwc(text, 6, 6), PICTURE)
    color = b"P6 6 6 65535\n" + (PICTURE.astype(">u2") * 257).tobytes()
    assert np.array_equal(hwc(color, 6, 6), PICTURE)


def test_tiff_files_of_every_usual_kind_give_their_pixels() -> None:
    for kind in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        assert np.array_equal(hwc(encoded(PICTURE, "TIFF", compression=kind), 6, 6), PICTURE)
    assert hwc(encoded(PICTURE, "TIFF", compression="jpeg", quality=95), 6, 6).shape == (6, 6, 3)
    palette = Image.fromarray(PICTURE).quantize(8)
    shown = np.asarray(palette.convert("RGB"))
    assert np.abs(hwc(encoded(palette, "TIFF"), 6, 6).astype(int) - shown).max() <= 1
    red = Image.new("CMYK", (4, 4), (0, 255, 255, 0))
    assert np.abs(hwc(encoded(red, "TIFF"), 4, 4).astype(int) - [255, 0, 0]).max() <= 1
    alpha = noise(6, 6, 1)[..., :1]
    clear = encoded(Image.fromarray(np.concatenate([PICTURE, alpha], -1)), "TIFF")
    expected = PICTURE * (alpha / 255) + 255 * (1 - alpha / 255)
    assert np.abs(hwc(clear, 6, 6) - expected).max() <= 1
    wide = tiff((PICTURE.astype("<u2") * 257).tobytes(), 6, 6, t258=(16,) * 3, t262=2, t277=3)
    assert np.array_equal(hwc(wide, 6, 6), PICTURE)


def test_a_tiled_tiff_is_put_together() -> None:
    whole = noise(16, 32)[..., 0]
    data = whole[:, :16].tobytes() + whole[:, 16:].tobytes()
    places: dict[str, object] = {"t324": (8, 264), "t325": (256, 256)}
    content = tiff(
        data, 32, 16, t258=8, t273=None, t278=None, t279=None, t322=16, t323=16, **places
    )
    assert np.array_equal(hwc(content, 16, 32, 1)[..., 0], whole)


def test_a_file_of_several_pages_shows_its_first() -> None:
    pages = [Image.new("RGB", (4, 4), color) for color in ("red", "blue", "green")]
    for options in ({}, {"compression": "tiff_lzw"}):
        content = encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:], **options)
        assert (hwc(content, 4, 4) == [255, 0, 0]).all()


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
def test_a_tiff_is_turned_once(compression: str) -> None:
    stored = noise(4, 7)
    content = encoded(stored, "TIFF", compression=compression, tiffinfo={0x0112: 6})
    assert np.array_equal(hwc(content, 7, 4), stored.transpose(1, 0, 2)[:, ::-1])


def test_what_has_no_white_or_is_exotic_is_refused_in_words() -> None:
    floats = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
    no_white = "floating-point, signed or 32-bit values, for which white is not fixed"
    assert no_white in reason(encoded(floats, "TIFF"))
    assert no_white in reason(encoded((floats * 1e6).astype(np.int32), "TIFF"))
    assert no_white in reason(tiff(bytes(32), 4, 4, t258=16, t339=2))
    assert no_white in reason(tiff(bytes(16), 4, 4, t258=8, t339=2))
    assert "an image of floating-point values: save" in reason(encoded(floats, "PPM"))
    lab = encoded(Image.new("LAB", (4, 4)), "TIFF")
    assert "L*a*b* colors: save it as RGB" in reason(lab)
    strange = "a TIFF image of a kind that Pillow cannot read, or a broken one: save it as PNG"
    assert reason(tiff(bytes(128), 4, 4, t258=64, t339=3)) == strange
    assert reason(tiff(bytes(16), 4, 4, t258=8, t262=9)) == strange


def test_huge_tables_tiles_and_slow_files_are_refused_before_they_are_decoded() -> None:
    fine = tiff(bytes(16), 4, 4, t258=8)
    assert hwc(fine, 4, 4).max() == 0
    for order, big in (("<", False), (">", True)):
        table = bytearray(tiff(bytes(16), 4, 4, order=order, big=big, t258=8))
        size, room = (8, "Q") if big else (4, "I")
        at = table.index(struct.pack(order + "HH", 273, 4)) + 4
        table[at : at + size] = struct.pack(order + room, MOST_TAG_VALUES + 1)
        assert reason(bytes(table)) == "huge: a TIFF table of more than 1,048,576 numbers"
    tiles = {"t273": None, "t278": None, "t279": None, "t324": 8, "t325": 99}
    squeezed = zlib.compress(bytes(10_000))
    bomb = tiff(squeezed, 4, 4, t258=8, t259=8, t322=30_000, t323=30_000, **tiles)
    assert reason(bomb) == "huge: tiles of 30000 x 30000 pixels"
    assert reason(encoded(PICTURE, "TIFF"), pixel_limit=35) == "huge: 6 x 6 pixels"
    assert reason(b"P5 9000 9000 255\n", pixel_limit=10**6) == "huge: 9000 x 9000 pixels"
    assert "of text, or scaled, in a PNM file" in reason(b"P2 5000 5000 255\n1 2 3")
    assert "of text, or scaled, in a PNM file" in reason(b"P6 5000 5000 65535\n1 2 3")
    assert "huge: more pixels" in reason(b"P5 90000 90000 255\n")
    comments = b"P2\n" + b"#\n" * 1001 + b"4 4 255 " + b"1 " * 16
    assert reason(comments) == "a PNM file with more than 1,000 comments"


@pytest.mark.parametrize(
    "content",
    [
        encoded(PICTURE, "PPM")[:-1],
        b"P3 4 4 255 1 2 3",
        b"P5 4 4 4095\n123",
        encoded(noise(40, 40), "TIFF")[:2000],
        encoded(noise(40, 40), "TIFF", compression="tiff_lzw")[:2000],
        encoded(noise(40, 40), "AVIF")[:-100],
    ],
    ids=lambda content: repr(content[:2]),
)
def test_truncated_files_are_refused(content: bytes) -> None:
    assert "truncated" in reason(content) or "broken" in reason(content)


def test_an_avif_file_is_nearly_its_picture_and_turned_as_it_says() -> None:
    ramp = np.stack(np.broadcast_arrays(*np.ogrid[0:128:2, 0:256:8], 90), -1).astype(np.uint8)
    assert np.abs(hwc(encoded(ramp, "AVIF", quality=90), 64, 32).astype(int) - ramp).mean() < 3
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = ramp.transpose(1, 0, 2)[:, ::-1].astype(int)
    found = hwc(encoded(ramp, "AVIF", quality=90, exif=exif), 32, 64)
    assert np.abs(found - turned).mean() < 3


def test_a_missing_plugin_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_formats._ready.cache_clear()
    for module in ("pillow_heif", "pillow_avif", "PIL.AvifImagePlugin"):
        monkeypatch.setitem(sys.modules, module, None)
    write(tmp_path / "d" / "photo.heic", HEIC_HEAD + bytes(100))
    write(tmp_path / "d" / "photo.avif", encoded(PICTURE, "AVIF"))
    write(tmp_path / "d" / "a.ppm", encoded(PICTURE, "PPM"))
    write(tmp_path / "d" / "b.tif", encoded(PICTURE[::-1], "TIFF"))
    images, report = load_folder(tmp_path / "d", 6, cache=tmp_path / "cache")
    image_formats._ready.cache_clear()
    assert images.paths == ("a.ppm", "b.tif")
    assert [line.strip() for line in report.lines()[2:]] == [
        "photo.avif: an AVIF image, which needs pillow-avif-plugin: "
        "pip install pillow-avif-plugin.",
        "photo.heic: a HEIC image, which needs pillow-heif: pip install pillow-heif.",
    ]


def test_a_plugin_that_was_installed_since_reads_what_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for pillow-heif, which reads a PNG file behind the head of a HEIC file."""
    write(tmp_path / "d" / "photo.heic", HEIC_HEAD + encoded(PICTURE))
    write(tmp_path / "d" / "z.png", encoded(noise(6, 6, 9)))
    real = image_formats.version

    def versions(name: str) -> str:
        return "1.0" if name == "pillow-heif" else real(name)

    plugin = ModuleType("pillow_heif")

    def register_heif_opener() -> None:
        def opened(file: io.BytesIO, name: object = None) -> Image.Image:
            return Image.open(io.BytesIO(file.getvalue()[len(HEIC_HEAD) :]))

        monkeypatch.setitem(Image.OPEN, "HEIF", (opened, None))
        monkeypatch.setattr(Image, "ID", [*Image.ID, "HEIF"])

    plugin.register_heif_opener = register_heif_opener  # type: ignore[attr-defined]
    read = []
    for module in (None, plugin):
        image_formats._ready.cache_clear()
        monkeypatch.setitem(sys.modules, "pillow_heif", module)
        if module is not None:
            monkeypatch.setattr(image_formats, "version", versions)
        read.append(load_folder(tmp_path / "d", 6, cache=tmp_path / "cache")[0])
    image_formats._ready.cache_clear()
    assert [images.paths for images in read] == [("z.png",), ("photo.heic", "z.png")]
    assert np.array_equal(read[1].pixels[0].transpose(1, 2, 0), PICTURE)


def test_a_heic_file_is_nearly_its_picture() -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    ramp = np.stack(np.broadcast_arrays(*np.ogrid[0:128:2, 0:256:4], 90), -1).astype(np.uint8)
    file = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(ramp)).save(file, quality=90)
    assert np.abs(hwc(file.getvalue(), 64, 64).astype(int) - ramp).mean() < 3
    assert "huge: 64 x 64" in reason(file.getvalue(), pixel_limit=100)


SEEDS = [
    encoded(PICTURE, "PPM"),
    b"P3 2 2 99 1 2 3 4 5 6 7 8 9 10 11 12",
    encoded(PICTURE, "TIFF"),
    encoded(PICTURE, "TIFF", compression="tiff_lzw"),
    encoded(Image.fromarray(GRAYS), "TIFF"),
    encoded(Image.fromarray(PICTURE).quantize(8), "TIFF"),
    encoded(PICTURE, "AVIF"),
    tiff(GRAYS.tobytes(), 7, 5, big=True, t258=16),
]


@settings(max_examples=120)
@given(
    seed=st.sampled_from(SEEDS),
    cut=st.floats(0.3, 1),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
)
def test_no_damage_raises_anything_but_a_reason(
    seed: bytes, cut: float, flips: list[tuple[float, int]]
) -> None:
    content = bytearray(seed)
    for place, value in flips:
        content[int(place * len(content))] = value
    with quiet_pillow():
        try:
            found = decode(bytes(content[: int(cut * len(content))]), Decoding(5, 7, 3, 10**6))
        except RefusedError:
            return
        assert (found.shape, found.dtype) == ((3, 5, 7), np.uint8)
