"""Prediction: one row an image whatever the image is, and the same bytes however it is done."""

import io
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from bundles import SIDE, bundle_at, encoder_at
from conftest import Call
from pictures import encoded, noise, picture, write
from protofission.core.errors import InputError
from protofission.data.readers.decode import Decoding, decode
from protofission.training.embed import ViewCounts, embed, images_of
from protofission.triage.bundle import Bundle
from protofission.triage.drift import drift
from protofission.triage.predict import PredictionSummary, predict, predict_to
from protofission.triage.prediction_blocks import Predictor
from protofission.triage.prediction_journal import journal_of
from protofission.triage.prediction_table import Row, read_rows

LIVES = Path(__file__).parents[1] / "prediction_lives.py"
NAMES = [
    b"a b.png",
    b'quo"te, comma.png',
    b"new\nline.png",
    b"=1+1.png",
    b"@sum.png",
    b"'quoted.png",
    b"back\\slash.png",
    b"no utf \xff\xfe.png",
    "猫 é.png".encode(),
    b"\x1b[31mred.png",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    bundle_at(folder)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty images in two folders."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(20):
        picture(folder / f"{number % 2}" / f"{number}.png", number, side=12)
    return folder


def rows(model: Path, *sources: Path, out: Path, **options: object) -> list[Row]:
    predict(model, sources, out, **options)
    return list(read_rows(out))


def test_a_row_says_what_the_model_says_of_the_image(model: Path, photos: Path, tmp_path: Path):
    found = rows(model, photos, out=tmp_path / "rows.csv")
    paths = sorted(str(p) for p in photos.rglob("*.png"))
    assert [row.path for row in found] == paths
    bundle = Bundle.load(model)
    decoded = [decode(Path(p).read_bytes(), Decoding(SIDE, SIDE)) for p in paths]
    features = bundle.encoder().features(torch.from_numpy(np.stack(decoded)).float() / 255)
    verdicts = bundle.predict_features(features.half().float().numpy())
    for row, probs, label, slot, score, decision, cluster in zip(
        found, *(column.tolist() for column in verdicts), strict=True
    ):
        assert row.class_name == ("cat", "=dog, 2")[label]
        assert row.subclass == f"{row.class_name} / {slot + 1}"
        assert row.probability == pytest.approx(max(probs), rel=1e-5)
        assert row.id_score == pytest.approx(score, rel=1e-4, abs=1e-5)
        assert row.decision == ("accept", "reject", "novel")[decision]
        assert row.cluster == ("" if cluster < 0 else f"novel {cluster + 1}")
        assert row.error == ""
    assert {row.decision for row in found} == {"accept", "novel"}


def test_a_summary_is_a_sentence():
    said = PredictionSummary(1203, 3, {"accept": 1000, "reject": 0, "novel": 200})
    assert said.sentence() == "1,203 images: 1,000 accept, 200 novel, 3 cannot be read."
    assert PredictionSummary(1, 0, {"accept": 1}).sentence() == "1 image: 1 accept."


def test_a_store_and_its_images_have_the_same_rows(model: Path, photos: Path, tmp_path: Path):
    bundle = Bundle.load(model)
    spec, counts = bundle.encoder_spec, ViewCounts(weak=0, strong=0)
    store = embed(images_of(str(photos), SIDE), spec, tmp_path / "store", counts)
    from_images = rows(model, photos, out=tmp_path / "images.jsonl")
    from_store = rows(model, store.folder, out=tmp_path / "store.parquet")
    assert [row._replace(path=os.path.join(photos, row.path)) for row in from_store] == from_images
    both = rows(model, store.folder, photos, out=tmp_path / "both.csv")
    assert both == from_store + from_images
    other = embed(
        images_of(str(photos), SIDE),
        encoder_at(tmp_path / "e.safetensors", 1),
        tmp_path / "other",
        counts,
    )
    with pytest.raises(InputError, match="is a store of another encoder than the model's: embed"):
        predict(model, [photos, other.folder], tmp_path / "rows.csv")
    (other.folder / "manifest.json").unlink()
    for damage in (lambda path: None, lambda path: path.symlink_to(path)):
        damage(other.folder / "manifest.json")
        with pytest.raises(InputError, match="other"):  # not taken for a folder of images
            predict(model, other.folder, tmp_path / "rows.csv")
    assert not (tmp_path / "rows.csv").exists()


def test_a_stream_gets_what_the_file_gets(model: Path, photos: Path, tmp_path: Path):
    for form in ("csv", "jsonl"):
        stream = io.BytesIO()
        said = predict_to(stream, model, [photos], form)
        assert predict(model, [photos], tmp_path / "rows.txt", form, force=True) == said
        assert stream.getvalue() == (tmp_path / "rows.txt").read_bytes()
    assert said == PredictionSummary(
        20,
        0,
        Counter(r.decision for r in rows(model, photos, out=tmp_path / "rows.csv")) | {"reject": 0},
    )


def test_without_a_file_the_rows_are_returned_and_nothing_is_printed(
    model: Path, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    write(tmp_path / "broken.png", b"x")
    found = predict(model, [photos, tmp_path / "broken.png"])
    assert capfd.readouterr() == ("", "")
    assert found == rows(model, photos, tmp_path / "broken.png", out=tmp_path / "rows.csv")
    assert len(found) == 21
    assert found[-1].error
    with pytest.raises(InputError, match=r"form = 'csv' is of a file: name it, as out"):
        predict(model, photos, form="csv")  # type: ignore[call-overload]


def test_paths_may_be_texts_and_one_source_needs_no_list(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    wanted = predict(model, [photos])
    monkeypatch.setenv("HOME", str(photos.parent))
    home = f"~/{photos.name}"
    for images in (photos, str(photos), [str(photos)], (photos,), iter([str(photos)]), home):
        assert predict(str(model), images) == wanted
    said = predict(str(model), [str(photos)], str(tmp_path / "rows.csv"))
    assert said == PredictionSummary(20, 0, said.decisions)
    assert list(read_rows(tmp_path / "rows.csv")) == wanted
    assert drift(str(model), home) == drift(model, [photos])


@pytest.mark.parametrize("place", range(3))
def test_an_empty_path_is_not_the_current_folder(
    place: int, model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given: list[str] = [str(model), str(photos), str(tmp_path / "rows.csv")]
    given[place] = ""
    monkeypatch.chdir(model if place == 0 else photos)
    with pytest.raises(InputError, match=r"A path is empty: name .* current folder is '\.'"):
        predict(*given)
    given[place] = "."
    if place < 2:
        assert predict(*given).rows == 20


def test_files_lists_and_repetitions_keep_their_order(model: Path, photos: Path, tmp_path: Path):
    one, other = photos / "1" / "1.png", photos / "0" / "4.png"
    (photos.parent / "list.csv").write_text(f"path,label\n{photos.name}/0/2.png,x\n{one},\n")
    found = rows(
        model, one, other, photos.parent / "list.csv", photos / "1", one, out=tmp_path / "rows.csv"
    )
    names = [str(one), str(other), f"{photos.name}/0/2.png", str(one)]
    names += [*sorted(str(p) for p in (photos / "1").iterdir()), str(one)]
    assert [row.path for row in found] == names
    said: dict[str, set[tuple[object, ...]]] = {}
    for row in found:
        said.setdefault(row.path, set()).add(row[1:2])
    assert all(len(each) == 1 for each in said.values())


@pytest.fixture
def garbage(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with sound images of hostile names, and what is wrong with the other files."""
    folder = tmp_path / "garbage"
    whole = encoded(noise(40, 40))
    write(folder / "empty.jpg", b"")
    write(folder / "cut.png", whole[: len(whole) // 2])
    write(folder / "text.jpg", b"this is no image")
    write(folder / "x.png" / "inner.png", whole)
    (folder / "gone.png").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.png")
    write(folder / ".hidden.png", whole)
    for number, name in enumerate(NAMES):
        picture(folder / os.fsdecode(name), number)
    wrong = {
        "empty.jpg": "an empty file",
        "cut.png": "corrupt or truncated",
        "text.jpg": "not a JPEG, PNG",
        "gone.png": "a file that cannot be opened",
        "pipe.png": "not a file",
    }
    if os.geteuid():
        picture(folder / "closed.png", 99).chmod(0)
        wrong["closed.png"] = "a file that cannot be opened (Permission denied)"
    return folder, wrong


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_garbage_and_hostile_names_are_rows_like_others(
    form: str, model: Path, garbage: tuple[Path, dict[str, str]], tmp_path: Path
):
    folder, wrong = garbage
    said = predict(model, [folder], tmp_path / f"rows.{form}")
    found = {os.path.relpath(row.path, folder): row for row in read_rows(tmp_path / f"rows.{form}")}
    sound = {*map(os.fsdecode, NAMES), "x.png/inner.png"}
    assert set(found) == sound | set(wrong)
    assert list(found) == sorted(found, key=os.fsencode)
    assert (said.rows, said.errors) == (len(found), len(wrong))
    for name, row in found.items():
        if name in wrong:
            assert row == Row(row.path, error=row.error)
            assert row.error.startswith(wrong[name])
        else:
            assert row.error == ""
            assert row.decision


def test_a_file_that_goes_away_meanwhile_is_a_row_with_an_error(model: Path, tmp_path: Path):
    files = [picture(tmp_path / "photos" / f"{n}.png", n) for n in range(3)]
    found = rows(
        model,
        tmp_path / "photos",
        out=tmp_path / "rows.csv",
        progress=lambda done, total: files[1].unlink(missing_ok=True),
    )
    assert [row.error for row in found] == [
        "",
        "a file that cannot be opened (No such file or directory)",
        "",
    ]


def test_a_folder_that_cannot_be_listed_is_a_row_with_an_error(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    picture(tmp_path / "photos" / "a.png", 0)
    picture(tmp_path / "photos" / "closed" / "b.png", 1)
    listdir = os.listdir

    def refusing(path: Path) -> list[str]:  # for root no folder is closed
        if path.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr("protofission.data.readers.file_listing.os.listdir", refusing)
    reason = "a folder that cannot be opened (Permission denied)"
    found = rows(model, tmp_path / "photos", out=tmp_path / "rows.csv")
    assert [(Path(row.path).name, row.error) for row in found] == [
        ("a.png", ""),
        ("closed", reason),
    ]
    closed = tmp_path / "photos" / "closed"
    found = rows(model, closed, out=tmp_path / "other.csv")
    assert [(row.path, row.error) for row in found] == [(str(closed), reason)]


def test_images_that_are_all_broken_are_rows_too(model: Path, tmp_path: Path):
    found = rows(model, write(tmp_path / "a.png", b"x"), out=tmp_path / "rows.csv")
    assert [bool(row.error) for row in found] == [True]


def test_a_neighbour_that_is_broken_changes_no_row(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    broken = write(tmp_path / "broken.png", b"x")
    files = sorted(photos.rglob("*.png"))
    whole = rows(model, *files, out=tmp_path / "whole.csv")
    mixed = rows(model, broken, *files[:7], broken, *files[7:], out=tmp_path / "mixed.csv")
    assert [row for row in mixed if not row.error] == whole


@pytest.fixture
def whole(model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The rows of the photos and of a broken file, as an undisturbed prediction has them."""
    monkeypatch.setattr("protofission.triage.prediction_blocks.MOST_IMAGES", 8)
    write(photos / "z.png", b"broken")
    predict(model, [photos], tmp_path / "whole.csv")
    return (tmp_path / "whole.csv").read_bytes()


def test_killed_at_any_write_it_ends_in_the_same_bytes_by_one_process_or_several(
    whole: bytes, model: Path, photos: Path, tmp_path: Path
):
    done = subprocess.run(
        [sys.executable, str(LIVES), str(model), str(photos), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
    assert (tmp_path / "every.csv").read_bytes() == whole
    marks: list[tuple[int, int]] = []
    said = predict(
        model, [photos], tmp_path / "shared.csv", progress=lambda *mark: marks.append(mark)
    )
    assert said.kept >= 16  # of which two processes computed half
    assert marks[0] == (said.kept, 21)
    assert marks[-1] == (21, 21)
    assert (tmp_path / "shared.csv").read_bytes() == whole
    names = ["every.csv", "shared.csv", "whole.csv"]
    finished = [f".{name}.finished" for name in names]
    assert sorted(p.name for p in tmp_path.iterdir()) == finished + names


def begun(model: Path, photos: Path, out: Path) -> None:
    """A prediction that was stopped after its first block."""

    def progress(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(model, [photos], out, progress=progress)
    assert out.with_name(f".{out.name}.rows").exists()
    assert not out.exists()


def test_rows_of_another_model_or_other_images_are_dropped_and_that_is_said(
    whole: bytes, model: Path, photos: Path, tmp_path: Path
):
    out, heard = tmp_path / "rows.csv", list[str]()
    bundle_at(tmp_path / "other", seed=1)
    begun(tmp_path / "other", photos, out)
    assert predict(model, [photos], out, say=heard.append).kept == 0
    assert out.read_bytes() == whole
    assert heard == [
        f"The unfinished rows of {out} were of another model or other images, and are dropped."
    ]
    out.unlink()
    begun(model, photos / "0", out)
    assert predict(model, [photos], out, say=heard.append).kept == 0
    assert out.read_bytes() == whole
    out.unlink()
    begun(model, photos, out)
    assert predict(model, [photos], out, say=heard.append).kept == 8
    assert out.read_bytes() == whole
    assert len(heard) == 2
    out.unlink()
    begun(model, photos, out)
    os.utime(photos / "0" / "0.png", ns=(0, 0))
    assert predict(model, [photos], out, say=heard.append).kept == 0
    assert out.read_bytes() == whole


def test_a_finished_file_is_left_and_any_other_is_refused(
    model: Path, photos: Path, tmp_path: Path, call: Call
):
    out = tmp_path / "rows.csv"
    command = ("predict", model, photos, "--out", out, "--processes", 1)
    first, content = call(*command), out.read_bytes()
    assert first.code == 0
    out.with_name(".rows.csv.rows").write_bytes(
        b""
    )  # as a process leaves it that is killed at once
    os.utime(out, ns=(0, 0))
    again = call(*command)
    assert (again.code, out.stat().st_mtime_ns, out.read_bytes()) == (0, 0, content)
    said = f"{out} is finished, and nothing was done: give --force to predict again."
    assert again.err.splitlines()[-1] == said
    assert again.out == first.out != ""
    assert predict(model, photos, out).kept == predict(model, photos, out).rows

    refusal = f"{out} is there already, and is not known to be of this model and these images: "
    bundle_at(tmp_path / "other", seed=1)
    for changed in (
        (command[0], tmp_path / "other", *command[2:]),
        (*command[:2], photos / "0", *command[3:]),
        (*command, "--format", "jsonl"),
    ):
        refused = call(*changed)
        assert (refused.code, refused.out) == (2, "")
        assert refusal in refused.err.replace("\n", " ")
        assert "--force" in refused.err
    assert out.read_bytes() == content
    out.write_bytes(content + b"mine")
    assert call(*command).code == 2
    assert out.read_bytes() == content + b"mine"
    write(out.with_name(".rows.csv.finished"), b'{"fingerprint": 3}')
    assert call(*command).code == 2
    assert call(*command, "--force").code == 0
    assert out.read_bytes() == content
    assert sorted(path.name for path in tmp_path.glob("*rows*")) == [
        ".rows.csv.finished",
        "rows.csv",
    ]


def test_a_forced_prediction_that_was_stopped_goes_on(
    whole: bytes, model: Path, photos: Path, tmp_path: Path
):
    out = write(tmp_path / "rows.csv", b"mine")

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(InputError, match="--force"):
        predict(model, photos, out)
    assert not out.with_name(".rows.csv.rows").exists()
    with pytest.raises(KeyboardInterrupt):
        predict(model, photos, out, force=True, progress=stop)
    assert out.read_bytes() == b"mine"
    assert predict(model, photos, out).kept == 8
    assert out.read_bytes() == whole


def test_a_journal_that_was_edited_is_made_anew_from_there(
    whole: bytes, model: Path, photos: Path, tmp_path: Path
):
    out = tmp_path / "rows.csv"
    journal = tmp_path / ".rows.csv.rows"
    for edit in (
        lambda lines: [*lines, b"[[1, 2"],
        lambda lines: [*lines, b"\0" * 50 + b"\n"],
        lambda lines: [*lines, b"3\n"],
        lambda lines: [*lines, json.dumps([["too few rows"]]).encode() + b"\n", lines[1]],
        lambda lines: [b"no header\n", *lines[1:]],
        lambda lines: [lines[0][:20]],
    ):
        out.unlink(missing_ok=True)
        begun(model, photos, out)
        journal.write_bytes(b"".join(edit(journal.read_bytes().splitlines(keepends=True))))
        predict(model, [photos], out)
        assert out.read_bytes() == whole


def test_a_second_process_is_refused(model: Path, photos: Path, tmp_path: Path):
    with (
        journal_of(tmp_path / "rows.csv"),
        pytest.raises(InputError, match=r"Another process is writing .*rows\.csv: wait"),
    ):
        predict(model, [photos], tmp_path / "rows.csv")
    predict(model, [photos], tmp_path / "rows.csv")


def test_bad_input_is_one_sentence(model: Path, photos: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    cases = [
        (model, [], "rows.csv", {}, "There is nothing to look at"),
        (model, [tmp_path / "empty"], "rows.csv", {}, "empty holds no files: name"),
        (model, [tmp_path / "nothing.png"], "rows.csv", {}, "nothing.png is not there"),
        (tmp_path / "empty", [photos], "rows.csv", {}, "holds no bundle"),
        (model, [photos], "rows.csv", {"form": "xls"}, "Unknown format 'xls'"),
        (model, [photos], "rows.csv", {"processes": 0}, "processes = 0 must be"),
        (model, [photos], "empty", {}, "is a folder: name a file"),
        (model, [photos], "file/rows.csv", {}, "cannot be written"),
        (model, [photos], photos / "rows.csv", {}, "among the images: name a file elsewhere"),
        (model, [photos / "0" / "0.png"], photos / "0" / "0.png", {}, "written over or among"),
    ]
    for folder, sources, out, options, words in cases:
        with pytest.raises(InputError, match=words) as refused:
            predict(folder, sources, tmp_path / out, **options)
        assert len(str(refused.value).splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file"]


def test_large_images_come_in_small_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bundle_at(tmp_path / "model")
    assert Predictor(tmp_path / "model", 1).images == 256
    monkeypatch.setattr("protofission.triage.prediction_blocks.MOST_PIXELS", 5 * 3 * SIDE * SIDE)
    assert Predictor(tmp_path / "model", 1).images == 5
