"""Two folders in, a model, a triage and a page out: as a user does it."""

import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import protofission
from bundles import encoder_at
from protofission.core.errors import InputError
from protofission.data.readers.decode import decode
from protofission.data.store.reader import Store
from protofission.training.embed import embed as real_embed
from protofission.triage.bundle import load
from protofission.triage.calibrated_model import DECISIONS
from protofission.triage.fit import FIT_VIEWS
from protofission.triage.fit_model import FitOptions
from protofission.triage.prediction_table import read_rows
from protofission.triage.workbench.material import Material

ENCODER = ("--encoder", "simclr-cifar10", "--steps", 40, "--processes", 1)


@pytest.fixture(scope="module")
def brief(tmp_path_factory):
    """A small encoder that nobody trained, and a few steps."""
    path = tmp_path_factory.mktemp("encoder") / "small.safetensors"
    encoder_at(path)
    return ("--encoder", path, "--steps", 3, "--processes", 1)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def digit_folders(root, names=("0", "1", "2"), labels=20, pool=80):
    """Labeled digits 0-2 in folders by these names, and a pool with strangers, 3 and 4."""
    digits = load_digits()
    taken = dict.fromkeys(range(5), 0)
    for place, (pixels, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        if digit > 4:
            continue
        taken[digit] += 1
        labeled = digit < 3 and taken[digit] <= labels
        if not labeled and sum(taken.values()) > pool + 3 * labels:
            break
        folder = root / "labeled" / names[digit] if labeled else root / "pool"
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((pixels * 15.9).astype(np.uint8)).resize((32, 32))
        image.save(folder / f"{place}-{digit}.png")
    return root / "labeled", root / "pool"


def test_a_model_a_triage_and_a_page_come_out(tmp_path, call):
    names = ("=1+1", "a, b\n'c'", "名 <b>")
    labeled, pool = digit_folders(tmp_path, names)
    (pool / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    model = tmp_path / "model"
    said = call("fit", labeled, pool, "--out", model, *ENCODER)
    assert said.code == 0, said.err
    assert "of no known class" in said.out
    bundle = load(model)
    assert set(bundle.class_names) == set(names)
    rows = list(read_rows(model / "triage.csv"))
    assert {row.path for row in rows} == {path.name for path in pool.iterdir()}
    assert [row.path for row in rows if row.error] == ["cut.png"]
    assert rows == list(read_rows(model / "triage.parquet"))
    assert {row.decision for row in rows} <= {"accept", "reject", ""}
    known = [row for row in rows if row.path.split("-")[-1][0] in "012" and not row.error]
    right = [row.class_name == names[int(row.path.split("-")[-1][0])] for row in known]
    assert np.mean(right) > 0.7
    page = (model / "triage.html").read_text()
    assert "<b>" not in page.replace("<body>", "")
    assert "名 &lt;b&gt;" in page
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".fitting")]
    card = call("show", model, "--all")
    assert "\nCalibration\n  keep: 0.95\n" in card.out
    assert "  accuracy on held-out images: " in card.out
    assert "    held out: 0.3\n" in card.out
    assert max(map(len, card.out.splitlines())) <= 80 + len(str(tmp_path))
    again = call("fit", labeled, pool, "--out", model, *ENCODER)
    assert (again.code, again.out) == (2, "")
    assert f"{model} is there already, a finished model: name a new folder" in again.err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").touch()
    other = call("fit", labeled, pool, "--out", tmp_path / "mine", *ENCODER)
    assert (other.code, other.out) == (2, "")
    assert "is there already, and is no model: name a new folder" in other.err


def test_too_few_labels_reject_nothing_and_nothing_is_said_of_what_is_rejected(
    tmp_path, call, brief
):
    labeled, pool = digit_folders(tmp_path, labels=4)
    said = call("fit", labeled, pool, "--out", tmp_path / "model", *brief)
    assert said.code == 0, said.err
    assert "12 labels cannot set a threshold" in said.out
    assert "No image is rejected, so new classes were not looked for." in said.out
    assert "rejected images" not in said.out
    assert "were not looked for" in (tmp_path / "model" / "triage.html").read_text()


def is_finished_store(folder):
    try:
        Store.open(folder)
    except InputError:
        return False
    return True


def test_a_killed_fit_goes_on_and_comes_to_the_same_model(tmp_path, call, brief):
    labeled, pool = digit_folders(tmp_path, pool=40)
    brief = (*brief[:3], 40, *brief[4:])  # so that there is time to kill it while it trains
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert call("fit", labeled, pool, "--out", whole, *brief).code == 0
    command = [sys.executable, "-m", "protofission", "fit", labeled, pool, "--out", killed]
    process = subprocess.Popen(
        [*map(str, command), *map(str, brief)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    work = tmp_path / ".killed.fitting"
    while process.poll() is None and not any(map(is_finished_store, work.glob("store-*"))):
        time.sleep(0.01)
    assert process.poll() is None  # all is embedded, and it trains
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    (features,) = work.glob("store-*/train-plain.npy")
    saved = features.stat()
    assert not killed.exists()
    assert call("fit", labeled, pool, "--out", killed, *brief).code == 0
    kept = (killed / "features" / features.name).stat()  # the same file, not written again
    assert (kept.st_ino, kept.st_mtime_ns) == (saved.st_ino, saved.st_mtime_ns)
    for name in ("model.safetensors", "calibration.npy", "triage.csv"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.slow
def test_the_same_command_gives_the_same_bytes_whatever_the_cache_held(
    tmp_path, call, monkeypatch, brief
):
    labeled, pool = digit_folders(tmp_path, labels=8, pool=80)
    model, cache = tmp_path / "model", tmp_path / "cache" / "protofission" / "images"

    def fit():
        said = call("fit", labeled, pool, "--out", model, *brief)
        assert said.code == 0, said.err
        found = contents(model)
        shutil.rmtree(model)
        return found

    cold = fit()
    assert {"bundle.json", "triage.html", "triage.csv", "images.json"} <= set(cold)
    assert "features/train-plain.npy" in cold
    assert len(list(cache.glob("*/manifest.json"))) == 2
    assert fit() == cold  # warm
    shutil.rmtree(cache)
    calls = itertools.count()

    def stopping(content, decoding):
        if next(calls) >= 99:
            raise KeyboardInterrupt
        return decode(content, decoding)

    with monkeypatch.context() as patched:
        patched.setattr("protofission.data.readers.resumable_decoding.decode", stopping)
        assert call("fit", labeled, pool, "--out", model, *brief).code == 130
    assert len(list(cache.glob("*/manifest.json"))) == 1
    assert len(list(cache.glob("*/blocks.jsonl"))) == 1
    assert fit() == cold  # half of the pool was there


def test_pixels_are_hashed_once_and_lie_on_the_disk_once(tmp_path, call, monkeypatch, brief):
    labeled, pool = digit_folders(tmp_path, labels=8, pool=30)
    model, cache = tmp_path / "model", tmp_path / "cache" / "protofission" / "images"
    hashed, on_disk = [], []

    def noting(function):
        def noted(content=b"", **options):
            hashed.append(bytes(content))
            return function(content, **options)

        return noted

    def embed(*arguments, **options):
        found = real_embed(*arguments, **options)
        on_disk.extend(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
        return found

    for name in ("blake2b", "sha256"):
        monkeypatch.setattr(hashlib, name, noting(getattr(hashlib, name)))
    monkeypatch.setattr("protofission.triage.fit.embed", embed)
    for _ in ("cold", "warm"):
        said = call("fit", labeled, pool, "--out", model, *brief)
        assert said.code == 0, said.err
        images = [image.tobytes() for path in cache.glob("*/pixels.npy") for image in np.load(path)]
        assert len(set(images)) == len(images) > 50
        for contents in (hashed, on_disk):
            assert {sum(content.count(i) for content in contents) for i in images} == {1}
            contents.clear()
        shutil.rmtree(model)


def test_a_model_keeps_features_and_images_for_the_workbench(tmp_path, call, monkeypatch, brief):
    labeled, pool = digit_folders(tmp_path, labels=8, pool=30)
    (pool / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    shutil.copy(next((labeled / "1").iterdir()), pool / "again.png")
    model, files = tmp_path / "model", []

    def embed(*arguments, **options):
        found = real_embed(*arguments, **options)
        files.append((found.folder / "train-plain.npy").stat().st_ino)
        return found

    monkeypatch.setattr("protofission.triage.fit.embed", embed)
    said = call("fit", labeled, pool, "--out", model, *brief)
    assert said.code == 0, said.err
    material = Material.open(model)
    assert (model / "features" / "train-plain.npy").stat().st_ino == files[0]  # moved, not copied
    rows = {row.path: row for row in read_rows(model / "triage.csv") if not row.error}
    assert material.num_images - material.num_labeled == len(rows)
    for row in range(material.num_labeled, material.num_images):
        own, path = rows[material.paths[row]], material.paths[row]
        found = DECISIONS[int(material.verdicts.decisions[row])]
        assert (found, material.file(row)) == (own.decision, pool / path)
        assert float(material.verdicts.id_scores[row]) == pytest.approx(own.id_score, abs=1e-5)
        assert material.repeated[row] == (path == "again.png")
    for row in range(material.num_labeled):
        assert material.file(row).parent.name == material.class_names[material.labels[row]]
        assert material.file(row).is_file()
    assert list(material.unreadable) == ["cut.png"]
    again = material.paths.index("again.png")
    assert [group for group in material.duplicates if again in group]
    assert material.options == FitOptions(steps=3)
    assert call("show", model).code == 0
    said = call("predict", model, pool, "--out", tmp_path / "new.csv", "--processes", 1)
    assert said.code == 0, said.err


def test_a_model_without_features_says_so_to_the_workbench(tmp_path, call, brief):
    labeled, pool = digit_folders(tmp_path, labels=8, pool=30)
    model = tmp_path / "model"
    said = call("fit", labeled, pool, "--out", model, "--no-features", *brief)
    assert said.code == 0, said.err
    assert not (model / "features").exists()
    assert not (model / "images.json").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "labeled", "model", "pool"]
    with pytest.raises(InputError, match=r"of --no-features or of `protofission pack`"):
        Material.open(model)


def test_features_stay_if_the_model_cannot_be_moved_to_its_place(
    tmp_path, call, monkeypatch, brief
):
    labeled, pool = digit_folders(tmp_path, labels=8, pool=30)
    model = tmp_path / "model"

    def write(path, *arguments):
        (model / "of another").mkdir(parents=True)  # meanwhile somebody made the folder
        path.write_text("")

    with monkeypatch.context() as patched:
        patched.setattr("protofission.triage.fit_files.write_triage_page", write)
        assert call("fit", labeled, pool, "--out", model, *brief).code != 0
    shutil.rmtree(model)
    assert list((tmp_path / ".model.fitting").glob("store-*/manifest.json"))
    monkeypatch.setattr("protofission.training.embed._Work.features", None)  # not again
    said = call("fit", labeled, pool, "--out", model, *brief)
    assert said.code == 0, said.err
    assert Material.open(model).num_images > 30


def test_novel_classes_are_counted_and_told_apart(tmp_path, call):
    labeled, pool = digit_folders(tmp_path)
    model = tmp_path / "model"
    said = call(
        "fit", labeled, pool, "--out", model, "--discover", 2, "--prototypes", "auto", *ENCODER
    )
    assert said.code == 0, said.err
    bundle = load(model)
    assert bundle.cluster_names == ("novel 1", "novel 2")
    assert set(bundle.card["estimates"]["sub-classes"]) == {"0", "1", "2"}
    decided = {row.decision for row in read_rows(model / "triage.csv")}
    assert decided <= {"accept", "novel"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--keep", 1.5), "keep = 1.5"),
        (("--encoder", "no-such"), "no-such"),
        (("--discover", "many"), "'many' must be a whole number, or auto"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(tmp_path, call, arguments, sentence):
    labeled, pool = digit_folders(tmp_path, pool=10)
    said = call("fit", labeled, pool, "--out", tmp_path / "model", *arguments)
    assert said.code == 2
    assert sentence in said.err
    assert len(said.err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labeled", "pool"]


def test_a_model_among_the_images_is_refused(tmp_path, call):
    labeled, pool = digit_folders(tmp_path, pool=10)
    said = call("fit", labeled, pool, "--out", pool / "model", *ENCODER)
    assert said.code == 2
    assert "lies among the images" in said.err


@pytest.mark.slow
def test_the_example_s_folders_fit(tmp_path, project, monkeypatch):
    """examples/fit_digits.py with a smaller encoder and pool."""
    monkeypatch.syspath_prepend(str(project / "examples"))
    from fit_digits import write_folders

    write_folders(tmp_path, labels=20, pool=100)
    options = FitOptions(steps=40)
    out = tmp_path / "model"
    fitted = protofission.fit(
        tmp_path / "labeled", tmp_path / "pool", out, options, encoder="simclr-cifar10", processes=1
    )
    assert fitted.fingerprint == protofission.load(out).fingerprint
    new = sorted((tmp_path / "new").iterdir())[:60]
    summary = protofission.predict(out, new, tmp_path / "new.csv")
    assert (summary.rows, summary.errors) == (60, 0)
    rows = list(read_rows(tmp_path / "new.csv"))
    known = [row for row in rows if row.path[-5] in "01234"]
    assert np.mean([row.class_name == row.path[-5] for row in known]) > 0.6


def test_few_labels_are_enough_to_count_clusters(tmp_path, call, brief):
    labeled, pool = digit_folders(tmp_path, labels=4, pool=20)
    said = call("fit", labeled, pool, "--out", tmp_path / "m", "--discover", "auto", *brief)
    assert said.code == 0, said.err
    assert "cannot set a threshold" in said.out  # of 12 labels, at 95 %


def test_a_fit_refused_before_anything_is_embedded_leaves_nothing(tmp_path, call):
    labeled, _ = digit_folders(tmp_path, labels=3, pool=10)
    said = call("fit", labeled, labeled, "--out", tmp_path / "new" / "er" / "m", *ENCODER)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "labeled one too" in said.err
    assert "embedding" not in said.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "labeled", "pool"]


def test_a_refused_fit_keeps_what_was_embedded_before(tmp_path, call):
    labeled, pool = digit_folders(tmp_path, labels=1, pool=10)
    store = tmp_path / ".m.fitting" / "store-0123"
    store.mkdir(parents=True)
    said = call("fit", labeled, pool, "--out", tmp_path / "m", *ENCODER)
    assert said.code == 2
    assert store.is_dir()


@pytest.mark.parametrize("closed", ["labeled", "pool"])
def test_a_folder_that_cannot_be_listed_is_one_sentence(tmp_path, call, monkeypatch, closed):
    labeled, pool = digit_folders(tmp_path, labels=2, pool=10)
    listdir = os.listdir

    def refusing(path):  # for root no folder is closed
        if os.fspath(path).rstrip("/") == str(tmp_path / closed):
            raise PermissionError(13, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr("protofission.data.readers.file_listing.os.listdir", refusing)
    said = call("fit", labeled, pool, "--out", tmp_path / "m", *ENCODER)
    assert (said.code, said.err.count("\n")) == (2, 1)
    reason = "(.: a folder that cannot be opened (Permission denied))"
    assert f"{tmp_path / closed} holds no image that can be read {reason}" in said.err
    assert not (tmp_path / ".m.fitting").exists()


def test_no_view_is_embedded_that_training_does_not_read():
    assert FIT_VIEWS.counts() == {"plain": 1}


@pytest.mark.slow
def test_what_was_embedded_of_other_images_is_dropped(tmp_path, call):
    labeled, pool = digit_folders(tmp_path, pool=20)
    stale = tmp_path / ".m.fitting" / "store-0123"
    stale.mkdir(parents=True)
    said = call("fit", labeled, pool, "--out", tmp_path / "m", *ENCODER)
    assert said.code == 0, said.err
    assert "dropped" in said.out
    assert load(tmp_path / "m").class_names == ("0", "1", "2")
