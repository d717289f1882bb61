"""The median short side of images, by the headers of an even sample of their files."""

import os
from pathlib import Path
from statistics import median_high

import pytest

from pictures import encoded, noise, write
from protofission.data.readers import image_sizes as module
from protofission.data.readers.image_sizes import median_short_side

SIDES = [(8, 30), (40, 12), (20, 20), (64, 33), (10, 9), (50, 51)]


def test_it_is_the_median_of_all_files_of_folders_and_lists(tmp_path: Path) -> None:
    for number, (height, width) in enumerate(SIDES):
        kind = ("PNG", "JPEG", "BMP")[number % 3]
        home = tmp_path / ("labeled/a" if number < 4 else "pool")
        write(home / f"{number}.img", encoded(noise(height, width), kind))
    listed = write(tmp_path / "list.csv", b"path\npool/4.img\nlabeled/a/0.img\nno/such.png\n")
    short = [min(sides) for sides in SIDES]
    labeled, pool = tmp_path / "labeled", tmp_path / "pool"
    assert median_short_side([labeled, pool]) == median_high(short)
    assert median_short_side([labeled]) == median_high(short[:4])
    assert median_short_side([listed]) == 9
    assert median_short_side([]) is None


def test_headers_are_enough_and_what_is_no_image_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.png", encoded(noise(30, 31))[:100])
    write(tmp_path / "b.png", b"no image")
    write(tmp_path / "c.png", b"")
    os.mkfifo(tmp_path / "d.png")
    (tmp_path / "e.png").symlink_to(tmp_path / "nothing")
    assert median_short_side([tmp_path]) == 30
    monkeypatch.setattr(module.Decoding, "byte_limit", 99)
    assert median_short_side([tmp_path]) is None


def test_a_sample_is_spread_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        write(tmp_path / f"{number}.png", b"")
    opened: list[str] = []
    monkeypatch.setattr(module, "_short_side", lambda path: opened.append(path.name))
    assert median_short_side([tmp_path], most=5) is None
    assert opened == [f"{number}.png" for number in (0, 2, 4, 6, 8)]
