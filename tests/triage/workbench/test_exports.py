"""Exports: each format is read back by the library it is for, and nothing is ever half-written."""

import csv
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, unquote_to_bytes, urlparse
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from conftest import Call
from labeled_pictures import CLASS_NAMES, labeled_image, labeled_pictures
from pictures import picture
from protofission.core.errors import InputError
from protofission.data.readers.image_folders import load_folder
from protofission.data.readers.image_lists import read_list
from protofission.system.new_outputs import free_path, new_folder
from protofission.triage.prediction_table import is_escaped, shortest_floats, unescape_text
from protofission.triage.workbench.actions import (
    NONE,
    UNLABELED,
    AddClass,
    DissolveSubclasses,
    Label,
    MergeClasses,
    NameCluster,
    NameSubclass,
    RenameClass,
)
from protofission.triage.workbench.cells import LABEL_SOURCES
from protofission.triage.workbench.exports import EXPORTS, MissingImagesError, export_images
from protofission.triage.workbench.exports.csv_table import EXPORT_COLUMNS, cells_of
from protofission.triage.workbench.exports.export_format import Exported
from protofission.triage.workbench.exports.labeled_images import (
    LabeledImage,
    LabeledImages,
    labeled_images,
)
from protofission.triage.workbench.exports.safe_names import UniqueNames, safe_name
from protofission.triage.workbench.workbench import Workbench
from small_workbenches import small_model

READING = [name for name, export in EXPORTS.items() if export.reads]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("user")


@pytest.fixture(scope="module")
def images(home: Path) -> LabeledImages:
    return labeled_pictures(home)


@pytest.fixture(autouse=True)
def _originals_stay(home: Path, images: LabeledImages) -> Any:
    """Whatever a test does, the user's files are as they were, and no others are beside them."""
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in home.rglob("*") if p.is_file()}
    assert len(before) == len(images.images)
    yield
    after = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in home.rglob("*") if p.is_file()}
    assert after == before


def one_more(name: str, label: str = "cat") -> LabeledImages:
    """An image that is not there."""
    image = labeled_image(0, Path("/nowhere/labeled"), name, label=label, source="folder")
    return LabeledImages.of([image], [label], ["/nowhere/labeled"])


# Tables


def table_cells(image: LabeledImage, style: str) -> list[Any]:
    return list(cells_of(image, image.file if style == "absolute" else image.path))


@pytest.mark.parametrize("style", ["relative", "absolute"])
def test_csv_has_every_value(images: LabeledImages, tmp_path: Path, style: Any) -> None:
    done = export_images(images, tmp_path / "out.csv", "csv", paths=style)
    assert (done.images, done.left_out, done.root) == (len(images.images), {}, None)
    with done.path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, strict=True)
    assert tuple(header) == EXPORT_COLUMNS
    wanted = [table_cells(image, style) for image in images.images]
    for row, cells in zip(rows, wanted, strict=True):
        texts = [unescape_text(cell.removeprefix("'")) for cell in row]
        assert texts == ["" if c is None else c if isinstance(c, str) else repr(c) for c in cells]
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)


def test_csv_is_read_by_pandas(images: LabeledImages, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(export_images(images, tmp_path / "out.csv", "csv").path)
    assert table["none_of_these"].dtype == bool
    assert table["row"].tolist() == [image.row for image in images.images]
    assert table["id_score"].tolist() == [image.id_score for image in images.images]
    assert table["label"].isna().tolist() == [image.label is None for image in images.images]


@pytest.mark.parametrize("style", ["relative", "absolute"])
def test_parquet_has_every_value(images: LabeledImages, tmp_path: Path, style: Any) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    done = export_images(images, tmp_path / "out.parquet", "parquet", paths=style)
    table = parquet.read_table(done.path)
    assert tuple(table.column_names) == EXPORT_COLUMNS
    assert str(table.schema.field("none_of_these").type) == "bool"
    for found, image in zip(table.to_pylist(), images.images, strict=True):
        values = [unescape_text(v) if isinstance(v, str) else v for v in found.values()]
        values = [shortest_floats([v])[0] if isinstance(v, float) else v for v in values]
        assert values == table_cells(image, style)


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_tables_in_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    many = [
        labeled_image(row, folder, f"{row % 100}/{row}.jpg", label="cat", source="model")
        for row in range(100_000)
    ]
    images = LabeledImages.of(many, ["cat"], [str(folder)])
    for name in ("csv", "parquet", "list"):
        begun = time.process_time()
        done = export_images(images, tmp_path / name, name)
        assert time.process_time() - begun < 20, name  # 1 to 2 s
        assert done.images == 100_000


# Lists and folders, which the package itself reads


@pytest.mark.parametrize("style", ["relative", "absolute"])
def test_the_list_is_read_by_fit_s_own_reader(
    images: LabeledImages, tmp_path: Path, style: Any
) -> None:
    out = tmp_path / "lists" / "my list.csv"
    done = export_images(images, out, "list", paths=style)
    kept = [image for image in images.images if image.label is not None]
    assert done.images == len(kept)
    assert done.left_out.keys() == {i.file for i in images.images if i.label is None}
    paths, labels = read_list(out)
    assert labels == [image.label for image in kept]
    assert all(map(os.path.samefile, [out.parent / p for p in paths], [i.file for i in kept]))
    found, report = load_folder(out, 8, cache=tmp_path / "cache")
    assert (report.read, report.left_out) == (len(kept), {})
    assert [found.class_names[label] for label in found.labels] == labels


def test_a_list_beside_its_images_has_no_formula(tmp_path: Path) -> None:
    names = ["=1+1.png", "-2.png", "@x.png", "a.png", " b.png"]
    shown = [
        labeled_image(row, tmp_path, name, label="cat", source="grid")
        for row, name in enumerate(names)
    ]
    out = tmp_path / "list.csv"
    export_images(LabeledImages.of(shown, ["cat"], []), out, "list")
    assert read_list(out)[0] == ["./=1+1.png", "./-2.png", "./@x.png", "a.png", "./ b.png"]


def test_a_list_through_links_leads_to_the_images(tmp_path: Path) -> None:
    picture(tmp_path / "real" / "deep" / "pool" / "1.png", seed=1)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    (tmp_path / "real" / "a" / "b").mkdir(parents=True)
    (tmp_path / "out").symlink_to(tmp_path / "real" / "a" / "b")
    image = labeled_image(0, tmp_path / "link" / "pool", "1.png", label="cat", source="grid")
    out = tmp_path / "out" / "list.csv"
    export_images(LabeledImages.of([image], ["cat"], [image.folder]), out, "list")
    assert load_folder(out, 8, cache=tmp_path / "cache")[1].read == 1


def test_a_class_that_a_list_takes_for_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="The class '-1' stands for no label"):
        export_images(one_more("1.png", "-1"), tmp_path / "out.csv", "list")
    assert list(tmp_path.iterdir()) == []


def test_a_list_without_a_class_is_refused(tmp_path: Path) -> None:
    image = labeled_image(0, Path("/nowhere"), "1.png", none_of_these=True)
    with pytest.raises(InputError, match="No image has a class"):
        export_images(LabeledImages.of([image], ["cat"], []), tmp_path / "out.csv", "list")
    assert list(tmp_path.iterdir()) == []


def listed_copies(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "images.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    plain = [{k: unescape_text(v.removeprefix("'")) for k, v in row.items()} for row in rows]
    return {row["copy"]: row for row in plain}


def test_class_folders_hold_a_copy_of_every_image(images: LabeledImages, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = export_images(images, out, "folders")
    copies = listed_copies(out)
    files = [p for p in out.rglob("*") if not p.is_dir()]
    assert {str(p.relative_to(out)) for p in files} == {*copies, "images.csv"}
    assert not any(p.is_symlink() or p.stat().st_nlink > 1 for p in files)
    assert len(copies) == done.images == len(images.images)
    by_row = {image.row: image for image in images.images}
    for copy, row in copies.items():
        image = by_row[int(row["row"])]
        assert (out / copy).read_bytes() == Path(image.file).read_bytes()
        assert (row["path"], row["label"]) == (image.path, image.label or "")
        top, *inner = copy.split("/")
        assert len(inner) == (1 if image.none_of_these else 2)
        assert top == (
            "classes" if image.label else "none_of_these" if image.none_of_these else "unlabeled"
        )
    assert {p.name for p in (out / "unlabeled").iterdir()} == {"novel%3A 1", "no cluster"}


def test_class_folders_are_read_by_fit_s_own_reader(images: LabeledImages, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = export_images(images, out, "folders")
    found, report = load_folder(out / "classes", 8, cache=tmp_path / "cache")
    wanted = Counter(image.label for image in images.images if image.label is not None)
    assert report.left_out == {}
    names = [
        done.renamed.get(f"classes/{found.class_names[label]}", found.class_names[label])
        for label in found.labels
    ]
    assert Counter(names) == wanted


def test_names_that_collide_are_numbered_and_those_changed_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    names = ["a/1.png", "b/1.png", "c/1.PNG", "d/1 (2).png", "e/1.png", "e/x:y.png", "e/.hid.png"]
    shown = []
    for row, name in enumerate(names):
        picture(folder / name, seed=row)
        label = "Cat" if name.startswith("e") else "cat"
        shown.append(labeled_image(row, folder, name, label=label, source="grid"))
    done = export_images(
        LabeledImages.of(shown, ["cat", "Cat"], [str(folder)]), tmp_path / "out", "folders"
    )
    copies = listed_copies(done.path)
    assert [row["path"] for row in copies.values()] == names
    assert list(copies) == [
        "classes/cat/1.png",
        "classes/cat/1 (2).png",
        "classes/cat/1 (3).PNG",
        "classes/cat/1 (2) (2).png",
        "classes/Cat (2)/1.png",
        "classes/Cat (2)/x%3Ay.png",
        "classes/Cat (2)/%2Ehid.png",
    ]
    assert done.renamed == {
        "classes/cat/1 (2).png": "b/1.png",
        "classes/cat/1 (3).PNG": "c/1.PNG",
        "classes/cat/1 (2) (2).png": "d/1 (2).png",
        "classes/Cat (2)": "Cat",
        "classes/Cat (2)/x%3Ay.png": "e/x:y.png",
        "classes/Cat (2)/%2Ehid.png": "e/.hid.png",
    }
    assert "Renamed: 6, listed in images.csv." in done.sentence()


BYTES = [chr(code) for code in range(0xDC80, 0xDD00)]
NAMES = st.one_of(
    st.text(st.sampled_from([*"%.2fF aA/\\:\n\0\"'?*", "\u0301", "é", *BYTES[:2]]), max_size=9),
    st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(BYTES))),
    st.sampled_from(["con", "NUL.txt", "..", ".", "", "x" * 300 + ".jpeg", "é" * 150, "%" * 250]),
)


@given(name=NAMES)
@example(name="%2F")
@example(name="a%2")
@example(name="100%")
@example(name="aux.png")
def test_a_safe_name_is_one_that_every_file_system_takes(name: str) -> None:
    safe = safe_name(name)
    safe.encode()  # it is UTF-8
    assert 1 <= len(os.fsencode(safe)) <= 200
    assert not set(safe) & set('/\\:*?"<>|\0\n\r\t')
    assert safe.strip() == safe
    assert not safe.startswith(".")
    assert not safe.endswith(".")
    assert safe.partition(".")[0].lower() not in ("con", "prn", "aux", "nul", "com1", "lpt9")
    if name and 3 * len(name.encode(errors="surrogateescape")) <= 200:
        assert unquote_to_bytes(safe) == name.encode(errors="surrogateescape")


@given(names=st.lists(NAMES, max_size=30))
def test_names_in_a_folder_differ_even_where_capitals_do_not_count(names: list[str]) -> None:
    given_names = UniqueNames()
    found = [given_names.take("a", name) for name in names]
    assert len({name.casefold() for name in found}) == len(names)
    assert max((len(os.fsencode(name)) for name in found), default=0) <= 255
    assert [UniqueNames().take("b", name) for name in names] == [safe_name(n) for n in names]


# COCO, by pycocotools


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # pycocotools
@pytest.mark.parametrize("style", ["relative", "absolute"])
def test_coco_is_read_by_pycocotools(images: LabeledImages, tmp_path: Path, style: Any) -> None:
    tools = pytest.importorskip("pycocotools.coco")
    done = export_images(images, tmp_path / "out.json", "coco", paths=style)
    with redirect_stdout(io.StringIO()):
        coco = tools.COCO(str(done.path))
    names = {c["id"]: c["name"] for c in coco.loadCats(coco.getCatIds())}
    assert tuple(names.values()) == CLASS_NAMES
    assert min(names) == 1
    for image in images.images:
        (found,) = coco.loadImgs([image.row + 1])
        root = done.root or Path("/nowhere")
        assert os.path.samefile(root / found["file_name"], image.file)
        assert os.path.isabs(found["file_name"]) == (style == "absolute")
        with Image.open(image.file) as opened:
            assert (found["width"], found["height"]) == opened.size == (8 + image.row,) * 2
        assert (found["none_of_these"], found["decision"]) == (image.none_of_these, image.decision)
        notes = coco.loadAnns(coco.getAnnIds([image.row + 1], areaRng=[1, 1e9], iscrowd=False))
        assert [names[note["category_id"]] for note in notes] == [image.label] * bool(image.label)
        for note in notes:
            assert note["bbox"] == [0, 0, *opened.size]
            assert coco.annToMask(note).sum() == note["area"] == opened.width * opened.height
            assert note.get("score") == (image.probability if image.source == "model" else None)
    assert len(coco.getAnnIds()) == sum(image.label is not None for image in images.images)
    cats = coco.getImgIds(catIds=coco.getCatIds(catNms=["cat"]))
    assert set(cats) == {i.row + 1 for i in images.images if i.label == "cat"}


def test_coco_s_sizes_are_those_of_the_file_before_it_is_turned(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, kind in (("a.jpg", "JPEG"), ("b.tif", "TIFF"), ("c", "PNG"), ("d.ppm", "PPM")):
        options = {"exif": exif} if kind == "JPEG" else {}
        Image.new("RGB", (7, 5)).save(tmp_path / name, kind, **options)
    shown = [labeled_image(r, tmp_path, n) for r, n in enumerate(["a.jpg", "b.tif", "c", "d.ppm"])]
    done = export_images(LabeledImages.of(shown, ["cat"], []), tmp_path / "out.json", "coco")
    found = json.loads(done.path.read_bytes())["images"]
    assert [(i["width"], i["height"]) for i in found] == [(7, 5)] * 4


# Hugging Face, by datasets


def loaded(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    found = datasets.load_dataset("imagefolder", data_dir=str(folder), cache_dir=str(cache))
    assert list(found) == ["train"]
    return found["train"]


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_s_folder_is_read_by_datasets(
    images: LabeledImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = export_images(images, tmp_path / "test train" / "out", "hugging-face")
    assert done.images == len(images.images)
    found = loaded(done.path, tmp_path / "cache", monkeypatch)
    # Labels first: the reader takes the types of all rows from the first ten megabytes.
    shown = sorted(images.images, key=lambda image: image.label is None)
    assert found.column_names == ["image", *EXPORT_COLUMNS]
    assert str(found.features["label"].dtype) == "string"
    for row, image in zip(found, shown, strict=True):
        assert row.pop("image").size == (8 + image.row,) * 2
        values = [unescape_text(v) if isinstance(v, str) else v for v in row.values()]
        assert values == table_cells(image, "relative")
    encoded = found.class_encode_column("label").features["label"].names
    assert set(map(unescape_text, encoded)) - {"None"} == set(CLASS_NAMES[:-1])


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_s_folder_tells_formats_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"a": "JPEG", "b.test": "PNG", "c.GIF": "GIF", "d.jpeg": "JPEG", "e.x": "TIFF"}
    for name, kind in names.items():
        Image.new("RGB", (7, 5)).save(tmp_path / name, kind)
    shown = [labeled_image(row, tmp_path, name) for row, name in enumerate(names)]
    done = export_images(LabeledImages.of(shown, [], []), tmp_path / "out", "hugging-face")
    suffixes = [p.suffix for p in sorted((done.path / "images").iterdir())]
    assert suffixes == [".jpg", ".png", ".gif", ".jpeg", ".tif"]
    found = loaded(done.path, tmp_path / "cache", monkeypatch)
    assert [row["image"].format for row in found] == list(names.values())
    assert found["label"][:] == [None] * 5


@pytest.mark.parametrize("name", ["2024-05-01", "2024-05-01 10:00", "2024-05-01T10:00:00Z"])
def test_hugging_face_refuses_names_that_it_would_take_for_dates(
    name: str, images: LabeledImages, tmp_path: Path
) -> None:
    given_images = LabeledImages.of([images.images[0]._replace(label=name)], [name], images.folders)
    with pytest.raises(InputError, match="for a date"):
        export_images(given_images, tmp_path / "out", "hugging-face")
    assert list(tmp_path.iterdir()) == []


# Label Studio


def choices_of(folder: Path) -> list[str]:
    tree = ElementTree.parse(folder / "labeling_config.xml")
    return [choice.attrib["value"] for choice in tree.iter("Choice")]


def test_label_studio_has_annotations_by_the_user_and_predictions_by_the_model(
    images: LabeledImages, tmp_path: Path
) -> None:
    done = export_images(images, tmp_path / "out", "label-studio")
    tasks = json.loads((done.path / "tasks.json").read_bytes())
    choices = choices_of(done.path)
    assert [*map(unescape_text, choices)] == [*CLASS_NAMES, "none of these"]
    for task, image in zip(tasks, images.images, strict=True):
        (where,) = parse_qs(
            urlparse(task["data"]["image"]).query, errors="surrogateescape", strict_parsing=True
        )["d"]
        assert done.root is not None
        assert os.path.samefile(done.root / where, image.file)
        said = [
            unescape_text(result["value"]["choices"][0])
            for annotation in task.get("annotations", [])
            for result in annotation["result"]
        ]
        own = image.source not in ("", "model")
        assert said == (["none of these" if image.none_of_these else image.label] if own else [])
        predictions = task.get("predictions", [])
        assert len(predictions) == (image.decision == "accept")
        for prediction in predictions:
            assert prediction["score"] == image.probability
            assert prediction["result"][0]["value"]["choices"] == [image.model_class]


def test_label_studio_refuses_what_it_could_not_serve(
    images: LabeledImages, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="give relative paths"):
        export_images(images, tmp_path / "out", "label-studio", paths="absolute")
    apart = LabeledImages.of(images.images, CLASS_NAMES, [*images.folders, "/other/place"])
    with pytest.raises(InputError, match="have all images in one folder"):
        export_images(apart, tmp_path / "out", "label-studio")
    assert list(tmp_path.iterdir()) == []


def test_a_class_called_none_of_these_is_no_stranger(tmp_path: Path) -> None:
    images = one_more("1.png", "none of these")
    done = export_images(images, tmp_path / "out", "label-studio")
    assert choices_of(done.path) == ["none of these", "none of these (2)"]
    task = json.loads((done.path / "tasks.json").read_bytes())[0]
    assert task["annotations"][0]["result"][0]["value"]["choices"] == ["none of these"]


LABEL_STUDIO = os.environ.get("LABEL_STUDIO_PYTHON", sys.executable)
"""A Python that has label-studio-sdk, which is too large for the development environment."""
VALIDATE = Path(__file__).with_name("label_studio_reading.py")


def test_label_studio_s_own_library_takes_the_tasks(images: LabeledImages, tmp_path: Path) -> None:
    probe = [LABEL_STUDIO, "-c", "import label_studio_sdk"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("label-studio-sdk is not installed; LABEL_STUDIO_PYTHON names a Python with it")
    done = export_images(images, tmp_path / "out", "label-studio")
    command = [LABEL_STUDIO, str(VALIDATE), str(done.path), str(tmp_path / "converted")]
    environment = {**os.environ, "LOCAL_FILES_DOCUMENT_ROOT": str(done.root), "PYTHONPATH": ""}
    said = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["errors"] == []
    assert found["annotations"] == sum(i.source not in ("", "model") for i in images.images)
    assert found["predictions"] == sum(i.decision == "accept" for i in images.images)
    # The library decodes addresses as UTF-8, so a name that is none does not come through.
    plain = [i for i in images.images if "\udcff" not in i.file]
    assert found["files"] == [i.file for i in plain]
    labels = {i.row: "none of these" if i.none_of_these else i.label for i in images.images}
    assert found["converted"], found
    for row, choice in found["converted"]:
        assert unescape_text(choice) == labels[row]


# Destinations, faults and kills


@pytest.mark.parametrize("name", EXPORTS)
def test_a_destination_that_is_there_is_refused(
    name: str, images: LabeledImages, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for taken in ("file", "folder", "link"):
        with pytest.raises(InputError, match=f"{taken} is there already: name another one"):
            export_images(images, tmp_path / taken, name)
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder", "link"]
    assert free_path(tmp_path / "file").name == "file-2"
    assert free_path(tmp_path / "new.csv").name == "new.csv"


@pytest.mark.parametrize("name", EXPORTS)
def test_a_destination_that_appears_meanwhile_is_not_written_over(
    name: str, images: LabeledImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, export = tmp_path / "out", EXPORTS[name]

    def write(task: Any) -> None:
        export.write(task)
        out.write_text("mine")

    monkeypatch.setitem(EXPORTS, name, replace(export, write=write))
    with pytest.raises(InputError, match="is there already"):
        export_images(images, out, name)
    assert out.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", READING)
def test_images_that_are_missing_are_listed_and_nothing_is_written(
    name: str, images: LabeledImages, home: Path, tmp_path: Path
) -> None:
    gone = [labeled_image(900 + n, home / "pool", f"gone {n}.png", label="cat") for n in range(12)]
    given_images = LabeledImages.of([*images.images, *gone], CLASS_NAMES, images.folders)
    with pytest.raises(MissingImagesError, match=r"12 images cannot be read.*; and 2 more") as hit:
        export_images(given_images, tmp_path / "out", name)
    assert hit.value.missing == tuple(image.file for image in gone)
    assert list(tmp_path.iterdir()) == []
    done = export_images(given_images, tmp_path / "out", name, skip_missing=True)
    assert done.images == len(images.images)
    assert done.left_out == dict.fromkeys(hit.value.missing, "No such file or directory")
    assert "Left out: 12 (No such file or directory)." in done.sentence()
    with pytest.raises(InputError, match="None of the 12 images can be read"):
        export_images(
            LabeledImages.of(gone, CLASS_NAMES, images.folders),
            tmp_path / "other",
            name,
            skip_missing=True,
        )


@pytest.mark.parametrize("name", READING)
def test_an_image_that_goes_while_it_is_exported_leaves_nothing(
    name: str, images: LabeledImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = labeled_image(900, tmp_path / "pool", "late.png", label="cat")
    given_images = LabeledImages.of([*images.images, late], CLASS_NAMES, images.folders)
    monkeypatch.setattr("protofission.triage.workbench.exports.missing_files", lambda _: {})
    with pytest.raises(MissingImagesError, match="1 image cannot be read"):
        export_images(given_images, tmp_path / "out", name)
    assert list(tmp_path.iterdir()) == []
    done = export_images(given_images, tmp_path / "out", name, skip_missing=True)
    assert done.images == len(images.images)
    assert list(done.left_out) == [late.file]


@pytest.mark.parametrize("name", EXPORTS)
def test_a_full_disk_is_a_sentence_and_leaves_nothing(
    name: str, images: LabeledImages, tmp_path: Path
) -> None:
    most = 300  # bytes of a file
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        with pytest.raises(
            InputError, match=r"cannot be written \(.*File too large\), and nothing"
        ):
            export_images(images, tmp_path / "out", name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


def test_copies_for_which_there_is_no_room_are_not_begun(
    images: LabeledImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=99))
    with pytest.raises(InputError, match=r"The copies take [\d,]+ bytes, and .* has room for 99"):
        export_images(images, tmp_path / "out", "folders")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_a_sentence(images: LabeledImages, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Unknown format 'cocoa'\. Did you mean 'coco'"):
        export_images(images, tmp_path / "out", "cocoa")
    with pytest.raises(InputError, match="There is no image to export"):
        export_images(LabeledImages.of([], CLASS_NAMES, ["/x"]), tmp_path / "out", "csv")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="file is no folder: name another place"):
        export_images(images, tmp_path / "file" / "out", "csv")


@pytest.fixture(scope="module")
def exporting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Path], int]]:
    """Starts an export that is slow enough to be killed, in a process that it gives the number of.

    See killed_exports.py, which imports all once and forks.
    """
    script = Path(__file__).with_name("killed_exports.py")
    user = tmp_path_factory.mktemp("killed")
    with subprocess.Popen(
        [sys.executable, str(script), str(user)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def begin(name: str, out: Path) -> int:
            print(json.dumps([name, str(out)]), file=server.stdin, flush=True)
            return int(server.stdout.readline())

        yield begin
        server.stdin.close()


@pytest.mark.parametrize("name", EXPORTS)
def test_killed_in_the_middle_it_leaves_nothing_under_the_name(
    name: str, images: LabeledImages, tmp_path: Path, exporting: Callable[[str, Path], int]
) -> None:
    out = tmp_path / "out"
    process = exporting(name, out)
    while not any(map(_holds_something, tmp_path.iterdir())):
        assert not out.exists()
        time.sleep(0.0005)
    os.kill(process, signal.SIGKILL)
    while Path(f"/proc/{process}").exists():
        time.sleep(0.001)
    (left,) = tmp_path.iterdir()  # it was not done
    assert left.name.startswith(".out.")
    done = export_images(images, out, name)
    assert list(tmp_path.iterdir()) == [done.path]


def _holds_something(path: Path) -> bool:
    return any(p.name != ".lock" for p in path.iterdir()) if path.is_dir() else path.exists()


def test_a_live_export_to_the_same_name_is_left_alone(
    images: LabeledImages, tmp_path: Path
) -> None:
    with new_folder(tmp_path / "out") as place:
        (place / "file").write_text("of another")
        export_images(images, tmp_path / "other", "folders")
        with pytest.raises(InputError, match="lies in the folder"):
            export_images(images, Path(images.folders[0]) / "out", "csv")
        with new_folder(tmp_path / "out"):
            assert (place / "file").read_text() == "of another"
            (tmp_path / "out").mkdir()
            (tmp_path / "out").rmdir()
        assert place.is_dir()
        (tmp_path / "out").rmdir()
    assert (tmp_path / "out" / "file").read_text() == "of another"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "out"]


# Names of any kind


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(
        st.text(
            st.one_of(
                st.characters(exclude_categories=["Cs"], exclude_characters="\0/"),
                st.sampled_from([*"=+-@'\",;\r\n\t\\ %.", *BYTES[:3]]),
            ),
            min_size=1,
            max_size=20,
        ).filter(lambda name: len(os.fsencode(name)) < 250 and name not in (".", "..")),
        min_size=1,
        max_size=4,
        unique=True,
    ),
    labels=st.lists(
        st.text(st.one_of(st.characters(), st.sampled_from(BYTES)), min_size=1).filter(
            lambda name: (
                name != "-1"
                and not any("\ud800" <= c < "\udc80" for c in name)
                and not any("\udcff" < c <= "\udfff" for c in name)
            )
        ),
        min_size=4,
        max_size=4,
    ),
)
def test_any_name_comes_back_from_the_formats_of_text(
    names: list[str], labels: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("any")
    shown = [
        labeled_image(row, home / "pool", name, label=label, source="grid", subclass=label)
        for row, (name, label) in enumerate(zip(names, labels, strict=False))
    ]
    images = LabeledImages.of(shown, labels, [str(home / "pool")])
    paths, found = read_list(export_images(images, home / "list.csv", "list").path)
    assert [os.path.normpath(home / path) for path in paths] == [i.file for i in shown]
    assert found == labels[: len(names)]
    export_images(images, home / "studio", "label-studio")
    tasks = json.loads((home / "studio" / "tasks.json").read_bytes())
    choices = choices_of(home / "studio")
    for task, image in zip(tasks, shown, strict=True):
        choice = task["annotations"][0]["result"][0]["value"]["choices"][0]
        assert choice in choices
        assert unescape_text(choice) == image.label
        where = unquote_to_bytes(task["data"]["image"].removeprefix("/data/local-files/?d="))
        assert where == os.fsencode(image.path)
    with export_images(images, home / "t.csv", "csv").path.open(newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    for row, image in zip(rows, shown, strict=True):
        assert unescape_text(row["path"].removeprefix("'")) == image.path
        assert unescape_text(row["label"].removeprefix("'")) == image.label


def test_a_table_with_escaped_names_says_so() -> None:
    plain: dict[str, Any] = {
        "path": Path("t.csv"),
        "images": 9,
        "left_out": {},
        "renamed": {},
        "root": None,
    }
    assert "escaped" not in Exported(**plain, escaped=0).sentence()
    assert "1 name has characters" in Exported(**plain, escaped=1).sentence()
    assert [is_escaped(name) for name in ("a b.png", "=1.png", "a\n.png", 'say "x".png')] == [
        False, True, True, False,
    ]  # fmt: skip


# The workbench and the command line


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose workbench has seen every kind of action that an export shows."""
    model = small_model(tmp_path_factory.mktemp("worked"))
    with Workbench.open(model) as bench:
        material = bench.material
        L = material.num_labeled
        accepted = np.flatnonzero(material.model_rows.accepted[L:]) + L
        refused = np.flatnonzero(~material.model_rows.accepted[L:]) + L
        assert min(len(accepted), len(refused)) > 8
        bench.do(AddClass("=new"))
        bench.do(Label(tuple(accepted[:2].tolist()), 3, "next"))
        bench.do(Label(tuple(refused[:2].tolist()), NONE, "grid"))
        bench.do(Label((0,), None, "grid"))  # a label of the folder is taken back
        bench.do(MergeClasses((1,), 0))
        bench.do(RenameClass(0, "oak"))
        bench.do(NameSubclass(0, 0, "young"))
        bench.do(DissolveSubclasses(2))
        bench.do(NameCluster(0, "moss"))
    return model


def test_the_user_s_word_is_first_and_the_model_s_where_it_is_asked_for(worked: Path) -> None:
    with Workbench.open(worked, read_only=True) as bench:
        state, material = bench.now
    labels, accepted = state.label_of, material.model_rows.accepted
    mine = labels != UNLABELED
    chosen = {
        "labeled": np.flatnonzero(mine),
        "accepted": np.flatnonzero(mine | accepted),
        "all": np.arange(material.num_images),
    }
    names = {0: "oak", 1: "oak", 2: "cedar", 3: "=new"}
    assert len(chosen["labeled"]) < len(chosen["accepted"]) < len(chosen["all"])
    for what, rows in chosen.items():
        found = labeled_images(material, state, cast(Any, what))
        assert [image.row for image in found.images] == rows.tolist()
        assert found.class_names == ("oak", "cedar", "=new")
        assert found.folders == tuple(map(str, material.folders))
        for image in found.images:
            row, model_class = image.row, int(material.model_rows.classes[image.row])
            assert image.file == str(material.file(row))
            assert image.folder == ("labeled" if row < material.num_labeled else "pool")
            assert image.none_of_these == (labels[row] == NONE)
            assert image.model_class == names[model_class]
            assert image.probability == pytest.approx(float(material.verdicts.probs[row].max()))
            assert image.id_score == pytest.approx(float(material.verdicts.id_scores[row]))
            assert (image.decision == "accept") == accepted[row]
            cluster = int(material.model_rows.clusters[row])
            assert image.cluster == (
                ""
                if cluster < 0
                else "moss"
                if not cluster
                else state.groups.cluster_names[cluster]
            )
            subclass = int(material.model_rows.subclasses[row])
            if model_class == 2:
                assert image.subclass == ""
            elif (model_class, subclass) == (0, 0):
                assert image.subclass == "young"
            if mine[row]:
                assert image.label == names.get(int(labels[row]))
                assert image.source == LABEL_SOURCES[state.source_of[row]] != "none"
            elif accepted[row]:
                assert (image.label, image.source) == (names[model_class], "model")
            else:
                assert (image.label, image.source) == (None, "")
    sources = Counter(image.source for image in labeled_images(material, state).images)
    assert sources == {"folder": material.num_labeled - 1, "next": 2, "grid": 2}
    with pytest.raises(InputError, match="Unknown choice of images 'some'"):
        labeled_images(material, state, cast(Any, "some"))


@pytest.mark.parametrize("name", EXPORTS)
def test_the_verb_exports_while_another_process_works(
    name: str, worked: Path, tmp_path: Path, call: Call
) -> None:
    with Workbench.open(worked) as bench:  # it holds the lock
        images = labeled_images(bench.material, bench.state, "all")
        out = tmp_path / "out"
        done = call("labels", worked, "--out", out, "--format", name, "--what", "all")
        export_images(images, tmp_path / "same", name)
    assert done.code == 0, done.err
    assert f"images: {out}" in done.out
    assert done.out.count("\n") == 1
    assert "images: " not in done.err  # which has the progress
    assert ("Left out: " in done.out) == (name == "list")
    assert contents(out) == contents(tmp_path / "same")


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


@pytest.mark.parametrize(
    ("out", "name"),
    [("a.csv", "csv"), ("a.parquet", "parquet"), ("a.JSON", "coco"), ("a", "folders")],
)
def test_the_verb_takes_the_format_of_the_name(
    out: str, name: str, worked: Path, tmp_path: Path, call: Call
) -> None:
    assert call("labels", worked, "--out", tmp_path / out).code == 0
    with Workbench.open(worked, read_only=True) as bench:
        export_images(labeled_images(bench.material, bench.state), tmp_path / "same", name)
    assert contents(tmp_path / out) == contents(tmp_path / "same")


def test_the_verb_lists_missing_images_and_finds_moved_ones(tmp_path: Path, call: Call) -> None:
    model = small_model(tmp_path / "home")
    (tmp_path / "home" / "labeled" / "ash" / "0.png").unlink()
    done = call("labels", model, "--out", tmp_path / "out")
    assert done.code == 2
    assert done.out == f"{tmp_path / 'home' / 'labeled' / 'ash' / '0.png'}\n"
    assert "1 image cannot be read, and nothing was written" in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    done = call("labels", model, "--out", tmp_path / "out", "--skip-missing")
    assert done.code == 0
    missing, sentence = done.out.splitlines()
    assert missing == f"{tmp_path / 'home' / 'labeled' / 'ash' / '0.png'}"
    assert "59 images: " in sentence
    (tmp_path / "home" / "labeled").rename(tmp_path / "moved")
    assert call("labels", model, "--out", tmp_path / "new", "--skip-missing").code == 2
    moved = ("--labeled", tmp_path / "moved", "--skip-missing")
    assert call("labels", model, "--out", tmp_path / "new", *moved).code == 0
    assert contents(tmp_path / "new").keys() == contents(tmp_path / "out").keys()


def test_an_export_among_the_images_is_refused_unless_a_list_names_them(
    images: LabeledImages, tmp_path: Path
) -> None:
    picture(tmp_path / "pool" / "1.png", seed=1)
    folder = tmp_path / "pool"
    image = labeled_image(0, folder, "1.png", label="cat", source="grid")
    shown = LabeledImages.of([image], ["cat"], [str(folder)])
    (tmp_path / "link").symlink_to(folder)
    for place in (folder / "out", tmp_path / "link" / "out"):
        with pytest.raises(InputError, match="lies in the folder of images"):
            export_images(shown, place, "folders")
    (folder / "labels.csv").write_text("path,label\n1.png,cat\n")
    assert export_images(shown, folder / "out", "folders").images == 1
