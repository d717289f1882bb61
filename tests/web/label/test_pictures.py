"""Pictures for the browser: hostile files, turns, what is kept, and how much is decoded at once."""

from __future__ import annotations

import io
import os
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protofission.data.readers.decode import quiet_pillow
from protofission.web.label import pictures as module
from protofission.web.label.pictures import MissingImageError, Pictures, encode_picture


def encoded(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def size_of(content: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(content)) as image:
        return image.size


def pictures_of(folder: Path, *contents: bytes, keep: bool = True) -> Pictures:
    for row, content in enumerate(contents):
        (folder / f"{row}.png").write_bytes(content)
    kept = folder / "kept" / "thumbnails.sqlite" if keep else None
    return Pictures(lambda row: folder / f"{row}.png", lambda row: f"{row}.png", kept)


@pytest.mark.parametrize(
    ("size", "thumbnail", "picture"),
    [
        ((400, 200), (160, 80), (400, 200)),
        ((3200, 800), (160, 40), (1600, 400)),
        ((50, 30), (50, 30), (50, 30)),
        ((3000, 1), (160, 1), (1600, 1)),
    ],
)
def test_proportions_stay_and_sides_are_bounded(
    tmp_path: Path,
    size: tuple[int, int],
    thumbnail: tuple[int, int],
    picture: tuple[int, int],
) -> None:
    own = pictures_of(tmp_path, encoded(Image.new("RGB", size, "red")))
    assert size_of(own.thumbnail(0).content) == thumbnail
    assert size_of(own.picture(0).content) == picture
    own.close()


def test_an_image_is_turned_as_its_camera_says() -> None:
    wide = Image.new("RGB", (200, 100), "red")
    exif = Image.Exif()
    exif[0x0112] = 6
    found = encode_picture(encoded(wide, "JPEG", exif=exif), 160)
    assert size_of(found.content) == (80, 160)
    assert b"Exif" not in found.content  # nor a place where it was taken


def test_small_images_are_encoded_without_loss() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    found = encode_picture(encoded(Image.fromarray(pixels)), 160)
    assert found.kind == "image/png"
    with Image.open(io.BytesIO(found.content)) as image:
        assert (np.asarray(image) == pixels).all()


def bomb() -> bytes:
    """A PNG file of 30,000 x 30,000 pixels by its header."""
    content = bytearray(encoded(Image.new("1", (8, 8))))
    content[16:24] = (30_000).to_bytes(4, "big") * 2
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html><script>alert(1)</script>",
        b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        b"GIF89a/*<script>alert(1)</script>*/",
        b"%PDF-1.4",
        encoded(Image.new("RGB", (64, 64)))[:60],
        bomb(),
        b"P3 60000 60000 255 1 1 1",
        np.random.default_rng(0).bytes(5000),
    ],
    ids=["empty", "html", "svg", "polyglot", "pdf", "cut", "bomb", "pnm", "noise"],
)
def test_a_file_that_is_no_image_is_a_sentence_and_none_of_its_bytes_is_sent(
    tmp_path: Path, content: bytes
) -> None:
    own = pictures_of(tmp_path, content)
    with quiet_pillow():
        for make in (own.thumbnail, own.picture):
            with pytest.raises(MissingImageError, match=r"^0\.png cannot be shown \(.*\): "):
                make(0)
    own.close()


def test_text_hidden_in_an_image_does_not_pass() -> None:
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_text("Comment", "<script>alert(1)</script>")
    for form, options in (("PNG", {"pnginfo": info}), ("JPEG", {"comment": b"<script>"})):
        content = encoded(Image.new("RGB", (100, 100)), form, **options)
        assert b"<script>" in content
        assert b"<script>" not in encode_picture(content + b"<script>", 160).content


@pytest.mark.parametrize("kind", ["gone", "folder", "pipe", "dangling"])
def test_what_is_no_plain_file_is_a_sentence(tmp_path: Path, kind: str) -> None:
    own = pictures_of(tmp_path)
    path = tmp_path / "0.png"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "dangling":
        path.symlink_to("nowhere.png")
    with pytest.raises(MissingImageError):
        own.thumbnail(0)
    own.close()


def test_a_thumbnail_is_made_once_and_again_when_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    real = module.encode_picture
    monkeypatch.setattr(
        module,
        "encode_picture",
        lambda *a: made.append(1) or real(*a),  # type: ignore[func-returns-value]
    )
    own = pictures_of(tmp_path, encoded(Image.new("RGB", (9, 9), "red")))
    first = own.thumbnail(0)
    assert own.thumbnail(0) == first
    own.close()
    own = pictures_of(tmp_path)
    assert own.thumbnail(0) == first  # after a restart, too
    assert len(made) == 1
    (tmp_path / "0.png").write_bytes(encoded(Image.new("RGB", (9, 19), "blue")))
    again = own.thumbnail(0)
    assert again.version != first.version
    assert size_of(again.content) == (9, 19)
    own.close()


@pytest.mark.parametrize(
    "damage", [b"", b"no database" * 500, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_damaged_file_of_thumbnails_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    kept = tmp_path / "kept" / "thumbnails.sqlite"
    kept.parent.mkdir()
    kept.write_bytes(damage)
    own = pictures_of(tmp_path, encoded(Image.new("RGB", (9, 9))))
    own.thumbnail(0)
    own.close()
    with sqlite3.connect(kept) as opened:
        assert opened.execute("SELECT count(*) FROM thumbnails").fetchone() == (1,)
    opened.close()


def test_another_layout_of_thumbnails_is_made_anew(tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "thumbnails.sqlite"
    kept.parent.mkdir()
    with sqlite3.connect(kept) as opened:
        opened.execute("CREATE TABLE thumbnails (other TEXT)")
    opened.close()
    own = pictures_of(tmp_path, encoded(Image.new("RGB", (9, 9))))
    assert size_of(own.thumbnail(0).content) == (9, 9)
    own.close()


def test_thumbnails_are_shown_where_none_can_be_kept(tmp_path: Path) -> None:
    content = encoded(Image.new("RGB", (9, 9)))
    own = pictures_of(tmp_path, content, keep=False)
    assert size_of(own.thumbnail(0).content) == (9, 9)
    (tmp_path / "kept").write_text("a file where the folder should be")
    own = pictures_of(tmp_path, content)
    assert size_of(own.thumbnail(0).content) == (9, 9)
    own = Pictures(lambda row: tmp_path / "0.png", str, tmp_path / "new" / "t.sqlite")
    assert own._kept is not None
    own._kept.execute("PRAGMA query_only = ON")  # as on a disk that is full
    assert own.thumbnail(0) == own.thumbnail(0)
    own.close()


def test_few_images_are_decoded_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, most = 0, 0
    lock = threading.Lock()

    def slow(content: bytes, side: int, version: str) -> module.Picture:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1
        return module.Picture(b"", "image/png", version)

    monkeypatch.setattr(module, "encode_picture", slow)
    monkeypatch.setattr(module, "processors", lambda: 3)
    own = pictures_of(tmp_path, b"x", keep=False)
    threads = [threading.Thread(target=own.picture, args=[0]) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 3
