"""Lists of images, as CSV and Parquet: the same images and labels, and one sentence if wrong."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pictures import picture, write
from protofission.core.errors import InputError
from protofission.data.image_sets import NO_LABEL
from protofission.data.readers.image_folders import load_folder
from protofission.data.readers.image_lists import read_list


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def csv(folder: Path, text: str | bytes) -> Path:
    return write(folder / "list.csv", text if isinstance(text, bytes) else text.encode())


def parquet(folder: Path, columns: dict[str, Any]) -> Path:
    arrow = pytest.importorskip("pyarrow")
    path = folder / "list.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns), path)
    return path


def test_a_csv_list_gives_its_images_in_its_order(tmp_path: Path) -> None:
    for seed, name in enumerate(["z.png", "sub/a,b.png", "m.png"]):
        picture(tmp_path / name, seed)
    rows = ["label,path,by", "cat,z.png,me", 'dog,"sub/a,b.png",me', f",{tmp_path}/m.png,me", ""]
    path = csv(tmp_path, "\n".join(rows))
    images, report = load_folder(path, 8)
    assert images.paths == ("z.png", "sub/a,b.png", f"{tmp_path}/m.png")
    assert images.labels.tolist() == [0, 1, NO_LABEL]
    assert images.class_names == ("cat", "dog")
    assert report.read == 3


def test_parquet_and_csv_say_the_same(tmp_path: Path) -> None:
    paths, labels = ["b.png", "a.png", "c.png"], ["10", "9", None]
    listed = read_list(csv(tmp_path, "path,label\nb.png,10\na.png,9\nc.png,\n"))
    assert listed == (paths, labels)
    arrow = pytest.importorskip("pyarrow")
    for values in (labels, [10, 9, None], [10.0, 9.0, float("nan")], [10, 9, -1]):
        assert read_list(parquet(tmp_path, {"path": paths, "label": values})) == listed
    coded = arrow.array(labels).dictionary_encode()
    assert read_list(parquet(tmp_path, {"path": paths, "label": coded})) == listed


def test_labels_that_are_numbers_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    for seed in range(3):
        picture(tmp_path / f"{seed}.png", seed)
    images, _ = load_folder(csv(tmp_path, "path,label\n0.png,10\n1.png,9\n2.png,-1\n"), 8)
    assert images.class_names == ("9", "10")
    assert images.labels.tolist() == [1, 0, NO_LABEL]


def test_without_labels_a_list_is_a_pool(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", 0)
    for path in (csv(tmp_path, "path\na.png\n"), parquet(tmp_path, {"path": ["a.png"]})):
        images, _ = load_folder(path, 8)
        assert (images.labels.tolist(), images.class_names) == ([NO_LABEL], ())
    path = csv(tmp_path, "path,label\na.png,cat\n")
    assert load_folder(path, 8, unlabeled=True)[0].labels.tolist() == [NO_LABEL]


def test_columns_can_be_named(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", 0)
    path = csv(tmp_path, "file,kind\na.png,cat\n")
    images, _ = load_folder(path, 8, path_column="file", label_column="kind")
    assert images.class_names == ("cat",)
    with pytest.raises(InputError, match="no column 'path' in its header, but 'file', 'kind'"):
        load_folder(path, 8)


def test_files_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", 0)
    rows = ["a.png", "gone.png", "$(touch ran)", "http://127.0.0.1/x.png", "..", "/dev/zero"]
    lines = "".join(f"{row},cat\n" for row in rows)
    images, report = load_folder(csv(tmp_path, f"path,label\n{lines}"), 8)
    assert images.paths == ("a.png",)
    assert set(report.left_out) == set(rows[1:])
    assert report.left_out["gone.png"] == "a file that cannot be opened (No such file or directory)"
    assert report.left_out["/dev/zero"] == "not a file"
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_listed_twice_is_a_duplicate(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", 0)
    images, report = load_folder(csv(tmp_path, "path,label\na.png,cat\na.png,dog\n"), 8)
    assert images.labels.tolist() == [0, 1]
    assert report.duplicates[0].labels_differ


def test_a_byte_order_mark_and_foreign_bytes_are_borne(tmp_path: Path) -> None:
    marked = csv(tmp_path, b"\xef\xbb\xbfpath,label\r\na.png,cat\r\n")
    assert read_list(marked) == (["a.png"], ["cat"])
    names, _ = read_list(csv(tmp_path, b"path\n\xff.png\n"))
    assert names == ["\udcff.png"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty: give a header"),
        ("path,label\n", "lists no image"),
        ("path,label\n,cat\n", "Row 1 of .* has no path"),
        ("path,label\na.png,cat,dog\n", "Line 2 of .* has more fields than the header"),
        ('path,label\n"a.png,cat\n', "is not a CSV file"),
        ('path,label\n"a"b,cat\n', "is not a CSV file"),
        ("path,label\n" + "x" * 200_000 + ",cat\n", "is not a CSV file"),
    ],
)
def test_a_wrong_csv_list_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_list(csv(tmp_path, text))


def test_a_path_that_no_system_has_is_left_out(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", 0)
    images, report = load_folder(parquet(tmp_path, {"path": ["a\0.png", "a.png"]}), 8)
    assert images.paths == ("a.png",)
    assert "cannot be opened" in report.left_out["a\0.png"]


def test_a_wrong_parquet_list_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="is not a Parquet file"):
        read_list(write(tmp_path / "list.parquet", b"PAR1 or not"))
    with pytest.raises(InputError, match="has True in the column 'label'"):
        read_list(parquet(tmp_path, {"path": ["a"], "label": [True]}))
    with pytest.raises(InputError, match=r"has \['a'\] in the column 'path'"):
        read_list(parquet(tmp_path, {"path": [["a"]]}))
    days = np.array([1], "datetime64[ns]")  # nanoseconds, which Python has no type for, but pandas
    words = r"(type timestamp\[ns\]|Timestamp\(.*\)) in the column 'label': give text"
    with pytest.raises(InputError, match=words):
        read_list(parquet(tmp_path, {"path": ["a"], "label": days}))
    with pytest.raises(InputError, match=r"has 0\.5 in the column 'label'"):
        read_list(parquet(tmp_path, {"path": ["a"], "label": [0.5]}))
    with pytest.raises(InputError, match="no column 'path' in its header, but 'x'"):
        read_list(parquet(tmp_path, {"x": ["a"]}))
    with pytest.raises(InputError, match=r"Row 2 of .* has no path"):
        read_list(parquet(tmp_path, {"path": ["a", None]}))


@pytest.mark.parametrize("name", ["path", "label"])
def test_a_column_that_is_there_twice_is_refused(name: str, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    names = ["path", "label", name]
    table = arrow.Table.from_arrays([arrow.array(["a"])] * 3, names=names)
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "list.parquet")
    for path in (tmp_path / "list.parquet", csv(tmp_path, ",".join(names) + "\na,a,a\n")):
        with pytest.raises(InputError, match=f"{path} has 2 columns '{name}': keep one of them"):
            read_list(path)


def test_without_pyarrow_one_sentence_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "list.parquet", b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r'needs pyarrow: pip install "protofission\[parquet\]"'):
        read_list(path)


def test_a_list_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"list\.csv is not there"):
        load_folder(tmp_path / "list.csv", 8)
