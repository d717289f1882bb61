"""Folders and lists of images: what is read, in which order, and what is left out and why."""

import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pictures import encoded, noise, picture, write
from protofission.core.errors import InputError
from protofission.data.image_sets import NO_LABEL, ImageSet
from protofission.data.readers.image_folders import load_folder
from protofission.data.readers.image_problems import Report

LINUX = sys.platform == "linux"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "protofission" / "images"


def load(folder: Path, size: int = 8, **options: object) -> tuple[ImageSet, Report]:
    return load_folder(folder, size, **options)  # type: ignore[arg-type]


def seeds_of(images: ImageSet) -> list[int]:
    """The numbers of these pictures among the first 100."""
    known = {noise(8, 8, seed).transpose(2, 0, 1).tobytes(): seed for seed in range(100)}
    return [known[pixels.tobytes()] for pixels in images.pixels]


def test_subfolders_are_classes(tmp_path: Path) -> None:
    for name, seed in {"dog/b.png": 3, "cat/a.png": 1, "cat/deep/er/c.png": 2}.items():
        picture(tmp_path / "data" / name, seed)
    images, report = load(tmp_path / "data")
    assert images.class_names == ("cat", "dog")
    assert images.labels.tolist() == [0, 0, 1]
    assert images.paths == ("cat/a.png", "cat/deep/er/c.png", "dog/b.png")
    assert seeds_of(images) == [1, 2, 3]
    assert isinstance(images.pixels, np.memmap)
    assert not images.pixels.flags.writeable
    assert (report.read, report.left_out, report.duplicates) == (3, {}, ())


def test_a_flat_folder_is_a_pool(tmp_path: Path) -> None:
    for seed in range(3):
        picture(tmp_path / "pool" / f"{seed}.png", seed)
    (tmp_path / "pool" / "empty").mkdir()
    images, _ = load(tmp_path / "pool")
    assert images.labels.tolist() == [NO_LABEL] * 3
    assert images.class_names == ()
    assert load(tmp_path / "pool", class_names=["a", "b"])[0].class_names == ("a", "b")


def test_any_folder_can_be_a_pool(tmp_path: Path) -> None:
    picture(tmp_path / "pool" / "2023" / "a.png", 1)
    picture(tmp_path / "pool" / "b.png", 2)
    images, report = load(tmp_path / "pool", unlabeled=True)
    assert images.labels.tolist() == [NO_LABEL] * 2
    assert (seeds_of(images), report.left_out) == ([1, 2], {})


def test_files_beside_class_folders_are_left_out(tmp_path: Path) -> None:
    picture(tmp_path / "data" / "cat" / "a.png", 1)
    picture(tmp_path / "data" / "b.png", 2)
    images, report = load(tmp_path / "data")
    assert seeds_of(images) == [1]
    assert report.left_out == {"b.png": "beside the class folders, and so of no class"}


def test_numbers_as_classes_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    for name in ("10", "9", "0"):
        picture(tmp_path / "data" / name / "a.png", int(name))
    images, _ = load(tmp_path / "data")
    assert images.class_names == ("0", "9", "10")
    assert seeds_of(images) == [0, 10, 9]  # images are in the order of their paths
    assert images.labels.tolist() == [0, 2, 1]


def test_classes_without_an_image_keep_their_place_and_are_reported(tmp_path: Path) -> None:
    picture(tmp_path / "data" / "b" / "1.png", 1)
    write(tmp_path / "data" / "c" / "2.png", b"broken")
    (tmp_path / "data" / "a").mkdir()
    images, report = load(tmp_path / "data")
    assert images.class_names == ("a", "b", "c")
    assert images.labels.tolist() == [1]
    assert report.empty_classes == ("a", "c")
    assert "No image of 2 classes: a, c." in report.lines()


def test_class_names_can_be_given(tmp_path: Path) -> None:
    picture(tmp_path / "data" / "cat" / "a.png", 1)
    images, _ = load(tmp_path / "data", class_names=["dog", "cat"])
    assert (images.labels.tolist(), images.class_names) == ([1], ("dog", "cat"))
    with pytest.raises(InputError, match="The label 'cat' is none of the classes 'dog', 'cow'"):
        load(tmp_path / "data", class_names=["dog", "cow"])
    with pytest.raises(InputError, match="'dog' is given twice"):
        load(tmp_path / "data", class_names=["dog", "dog"])


def test_bad_files_are_reported_and_never_fatal(tmp_path: Path) -> None:
    good = encoded(noise(40, 40), "JPEG")
    bad = {
        "empty.jpg": b"",
        "text.png": b"not an image",
        "cut.jpg": good[: len(good) // 2],
        "page.html": b"<html></html>",
        "archive.zip": b"PK\x03\x04",
    }
    for name, content in bad.items():
        write(tmp_path / "pool" / name, content)
    write(tmp_path / "pool" / "good.jpeg", good)
    images, report = load(tmp_path / "pool")
    assert images.paths == ("good.jpeg",)
    assert sorted(report.left_out) == sorted(bad)
    assert report.left_out["empty.jpg"] == "an empty file"
    assert "truncated" in report.left_out["cut.jpg"]
    text = "\n".join(report.lines())
    assert text.startswith(f"1 image read from {tmp_path / 'pool'}.\n5 files left out:\n")
    assert "  empty.jpg: an empty file." in text


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_content_beside_an_image_leaves_it_readable(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("pool")
    picture(folder / "images" / "good.png", 5)
    for number, content in enumerate(contents):
        write(folder / "images" / f"{number}.jpg", content)
    images, report = load(folder / "images", cache=folder / "cache", unlabeled=True)
    assert seeds_of(images) == [5]
    assert len(report.left_out) == len(contents)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="none holds no image that can be read: give JPEG"):
        load(tmp_path / "none")
    write(tmp_path / "none" / "a.txt", b"hello")
    with pytest.raises(InputError, match=r"no image that can be read \(a.txt: not a JPEG"):
        load(tmp_path / "none")
    with pytest.raises(InputError, match="missing is not a folder"):
        load(tmp_path / "missing")


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    picture(tmp_path / "data" / "cat" / "a.png", 1)
    picture(tmp_path / "data" / "cat" / "._a.png", 2)
    picture(tmp_path / "data" / ".git" / "b.png", 3)
    write(tmp_path / "data" / ".DS_Store", b"x")
    images, report = load(tmp_path / "data")
    assert (seeds_of(images), images.class_names) == ([1], ("cat",))
    assert (report.left_out, report.hidden) == ({}, 3)
    assert "3 hidden names passed over." in report.lines()


@pytest.mark.skipif(not LINUX, reason="links, pipes and names of bytes are tried on Linux")
def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    data = tmp_path / "data"
    picture(data / "cat" / "a.png", 1)
    picture(tmp_path / "elsewhere" / "b.png", 2)
    (data / "cat" / "self").symlink_to(data / "cat")
    (data / "cat" / "up").symlink_to("..")
    (data / "cat" / "out").symlink_to(tmp_path)  # it holds the folder: the whole disk, at worst
    (data / "aardvark").symlink_to(data / "cat")
    (data / "dog").symlink_to(tmp_path / "elsewhere")
    (data / "cat" / "broken.png").symlink_to(data / "nowhere")
    (data / "cat" / "ouroboros.png").symlink_to(data / "cat" / "ouroboros.png")
    (data / "cat" / "link.png").symlink_to(tmp_path / "elsewhere" / "b.png")
    os.mkfifo(data / "cat" / "pipe.png")
    images, report = load(data)
    assert images.paths == ("cat/a.png", "cat/link.png", "dog/b.png")
    assert images.class_names == ("cat", "dog")
    assert {path: reason.split()[0:2] for path, reason in report.left_out.items()} == {
        "aardvark": ["a", "link"],
        "cat/broken.png": ["a", "file"],
        "cat/ouroboros.png": ["a", "file"],
        "cat/out": ["a", "link"],
        "cat/pipe.png": ["not", "a"],
        "cat/self": ["a", "link"],
        "cat/up": ["a", "link"],
    }


AWKWARD = [b"with space.png", b'a,b;"c".png', b"line\nbreak.png", b"\xff\xfe.png", "ü.png".encode()]


@pytest.mark.skipif(not LINUX, reason="links, pipes and names of bytes are tried on Linux")
def test_any_name_survives(tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    for seed, name in enumerate(AWKWARD):
        picture(folder / os.fsdecode(name), seed)
        write(folder / os.fsdecode(b"bad " + name), b"x")
    for _ in range(2):  # decoded, and from the cache
        images, report = load(folder)
        assert images.paths == tuple(os.fsdecode(name) for name in sorted(AWKWARD))
        assert [AWKWARD[seed] for seed in seeds_of(images)] == sorted(AWKWARD)
        assert set(report.left_out) == {os.fsdecode(b"bad " + name) for name in AWKWARD}
        for line in report.lines():
            line.encode()
            assert line.isprintable()
    assert report.from_cache


def test_order_does_not_depend_on_the_file_system(tmp_path: Path) -> None:
    names = [f"{c}/{n}.png" for c in ("b", "a", "B", "a b", "ä") for n in ("10", "9", "x", "X")]
    results = []
    for attempt in range(3):
        shuffled = random.Random(attempt).sample(names, len(names))
        for name in shuffled:
            picture(tmp_path / str(attempt) / name, names.index(name))
        results.append(load(tmp_path / str(attempt), workers=attempt + 1)[0])
    for images in results:
        assert list(images.paths) == sorted(names, key=str.encode)
        assert images.class_names == ("B", "a", "a b", "b", "ä")
        assert [names[seed] for seed in seeds_of(images)] == list(images.paths)


def test_any_number_of_workers_gives_the_same(tmp_path: Path) -> None:
    for seed in range(30):
        write(tmp_path / "p" / f"{seed}.jpg", encoded(noise(20 + seed, 50 - seed, seed), "JPEG"))
    write(tmp_path / "p" / "17.jpg", b"bad")
    found = [load(tmp_path / "p", cache=tmp_path / f"c{n}", workers=n) for n in (1, 2, 7)]
    for images, report in found[1:]:
        assert np.array_equal(images.pixels, found[0][0].pixels)
        assert images.paths == found[0][0].paths
        assert report == found[0][1]


def test_progress_counts_to_the_end(tmp_path: Path) -> None:
    for seed in range(5):
        picture(tmp_path / "p" / f"{seed}.png", seed)
    calls: list[tuple[int, int]] = []
    load(tmp_path / "p", progress=lambda *call: calls.append(call), workers=2)
    assert calls == [(done, 5) for done in range(1, 6)]


def test_size_and_channels_are_those_wanted(tmp_path: Path) -> None:
    picture(tmp_path / "p" / "a.png", 1, side=20)
    images, _ = load_folder(tmp_path / "p", (6, 9), 1)
    assert images.pixels.shape == (1, 1, 6, 9)


def test_duplicates_are_reported_with_their_kind(tmp_path: Path) -> None:
    pixels = noise(8, 8)
    write(tmp_path / "d" / "cat" / "a.png", encoded(pixels))
    write(tmp_path / "d" / "cat" / "b.png", encoded(pixels))
    write(tmp_path / "d" / "dog" / "c.png", encoded(noise(8, 8, 1)))
    write(tmp_path / "d" / "cat" / "d.bmp", encoded(noise(8, 8, 1), "BMP"))
    picture(tmp_path / "d" / "dog" / "e.png", 7)
    images, report = load(tmp_path / "d")
    assert len(images.paths) == 5  # they are reported, and read
    first, second = report.duplicates
    assert first.paths == ("cat/a.png", "cat/b.png")
    assert (first.same_bytes, first.labels_differ) == (True, False)
    assert second.paths == ("cat/d.bmp", "dog/c.png")
    assert (second.same_bytes, second.labels_differ) == (False, True)
    assert report.lines()[1:] == [
        "2 images found more than once:",
        "  cat/a.png = cat/b.png (the same file).",
        "  cat/d.bmp = dog/c.png (other files with the same pixels, different labels).",
        "1 of these with labels that contradict each other.",
    ]


def test_a_long_report_is_cut(tmp_path: Path) -> None:
    report = Report("x", 1_234, {f"{n}.png": "an empty file" for n in range(25)})
    assert report.lines()[0] == "1,234 images read from x."
    assert len(report.lines()) == 13
    assert report.lines()[-1] == "  and 15 more."
