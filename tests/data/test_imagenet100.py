"""ImageNet-100: ORCA's classes in ORCA's order, whatever the file system says."""

import hashlib
from pathlib import Path

import pytest

from pictures import picture, write
from protofission.core.errors import InputError
from protofission.data.readers.imagenet100 import ORCA_CLASSES, load_imagenet100, read_classes


def imagenet(folder: Path, part: str = "train") -> Path:
    """Two images of every class, and one of a class that is not asked for."""
    for place, wnid in enumerate(reversed(ORCA_CLASSES)):
        for number in ("10", "9"):
            picture(folder / part / wnid / f"{wnid}_{number}.JPEG", place, side=2)
    picture(folder / part / "n01440764" / "x.JPEG", 0)
    return folder


def test_the_list_is_that_of_orca() -> None:
    assert len(ORCA_CLASSES) == len(set(ORCA_CLASSES.values())) == 100
    assert list(ORCA_CLASSES) == sorted(ORCA_CLASSES)
    # Of the line in data/gen_imagenet_list.py of snap-stanford/orca at 5f33afd.
    digest = hashlib.sha256(" ".join(ORCA_CLASSES).encode()).hexdigest()
    assert digest == "c16e50fb725222f33e987b9868b6fcd16b0ff13b9e7ec7e3c182b15bd537ef4f"


def test_images_are_in_the_order_of_the_list(tmp_path: Path) -> None:
    home = imagenet(tmp_path / "imagenet")
    sets, (report,) = load_imagenet100(home, 2, tmp_path / "cache")
    wnids = list(ORCA_CLASSES)
    assert sets.train.labels.tolist() == [label for label in range(100) for _ in range(2)]
    assert sets.train.paths == tuple(f"{w}/{w}_{n}.JPEG" for w in wnids for n in ("10", "9"))
    assert sets.train.class_names[:2] == ("robin", "water ouzel")
    assert (sets.test, report.read) == (None, 200)
    direct, _ = load_imagenet100(home / "train", 2, tmp_path / "cache")
    assert direct.train.paths == sets.train.paths


def test_validation_images_are_the_test_set(tmp_path: Path) -> None:
    home = imagenet(imagenet(tmp_path / "imagenet"), "val")
    sets, reports = load_imagenet100(home, 2, tmp_path / "cache")
    assert sets.test is not None
    assert sets.test.labels.tolist() == sets.train.labels.tolist()
    assert [report.source for report in reports] == [str(home / "train"), str(home / "val")]


def test_missing_classes_are_named(tmp_path: Path) -> None:
    home = imagenet(tmp_path / "imagenet")
    wnids = list(ORCA_CLASSES)
    for wnid in wnids[:7]:
        (home / "train" / wnid).rename(home / f"away-{wnid}")
    with pytest.raises(InputError, match=f"class folders {', '.join(wnids[:5])} and 2 more"):
        load_imagenet100(home, 2, tmp_path / "cache")
    with pytest.raises(InputError, match="missing is not a folder: name the one of ImageNet"):
        load_imagenet100(tmp_path / "missing", 2)


def test_another_list_can_be_read(tmp_path: Path) -> None:
    path = write(tmp_path / "classes.txt", b"n2 hen, cock\n\nn1\n")
    assert read_classes(path) == {"n2": "hen, cock", "n1": "n1"}
    for wnid in ("n1", "n2"):
        picture(tmp_path / "x" / wnid / "a.png", 0)
    sets, _ = load_imagenet100(tmp_path / "x", 2, tmp_path / "c", classes=read_classes(path))
    assert sets.train.paths == ("n2/a.png", "n1/a.png")
    assert sets.train.class_names == ("hen, cock", "n1")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "names no class"), (b"n1\nn1 x\n", "'n1' is given twice"), (b"\xff", "cannot be read")],
)
def test_a_wrong_list_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_classes(write(tmp_path / "classes.txt", content))


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"classes\.txt cannot be read"):
        read_classes(tmp_path / "classes.txt")
