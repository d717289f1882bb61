"""Files that a user damages or swaps for something else: one sentence and exit code 2, no hang."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from bundles import bundle_at
from conftest import Call, Said
from pictures import picture
from protofission.core.errors import InputError
from protofission.training.run import perform
from protofission.training.run_folder import RunFolder
from runs import digits, small
from stores import made

PATIENCE = 30
"""Seconds after which a command that waits for a pipe is given up."""
QUICK = (
    *("--set", "recipe.epochs=2", "--set", "recipe.steps_per_epoch=3"),
    *("--set", "recipe.labeled_batch=16", "--set", "recipe.unlabeled_batch=24"),
)
DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of everything: runs, a store, a bundle, images, lists, a split, a suite, a network."""
    home = tmp_path_factory.mktemp("home")
    for _ in perform(small("orca"), digits(), RunFolder(home / "run")):
        pass
    begun = perform(small("orca"), digits(), RunFolder(home / "begun"), save_every=0)
    next(begun)
    next(begun)
    begun.close()  # type: ignore[attr-defined]
    made(home / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)  # the encoder of the bundle is known by a relative path
        bundle_at(Path("model"))
    rows = []
    for number in range(4):
        name = f"photos/{'cat' if number % 2 else 'dog'}/{number}.png"
        picture(home / name, number)
        rows.append((name, name.split("/")[1]))
    lines = "".join(f"{path},{label}\n" for path, label in rows)
    (home / "list.csv").write_text(f"path,label\n{lines}")
    (home / "own.yaml").write_text("methods: [orca]\n")
    return home


@pytest.fixture
def home(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, and the current folder; the cache is in it too."""
    place = tmp_path / "home"
    shutil.copytree(made_once, place)
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    return place


class HungError(BaseException):
    """A command waits for what never comes."""


@contextmanager
def impatient(*pipes: Path) -> Iterator[None]:
    """Give up what takes too long: a wait of the main thread is broken off, and pipes at which
    others wait are ended."""

    def give_up(number: int, frame: FrameType | None) -> None:
        for pipe in pipes:
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        raise HungError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused(said: Said, words: str) -> None:
    """Whether a command ended in one sentence."""
    assert said.code == 2, said
    assert said.err.startswith("protofission: ") or "\nprotofission: " in said.err, said
    assert "Traceback" not in said.err
    assert words in " ".join(said.err.split()), said.err


# --- pipes ---------------------------------------------------------------------------------------

REPORT = ("report", "run", "--out", "page")
PACK = ("weights", "run", "--out", "packed.safetensors")
RESUME = ("train", "orca", "--set", "backbone.width=4", *QUICK, "--out", "begun", "--resume")
ON_STORE = ("train", "orca", "--store", "store", "--out", "new", *QUICK)
START = ("train", "orca", "--set", "backbone.width=4", *QUICK, "--out", "new")
PREDICT = ("predict", "model", "photos", "--processes", "1")
AGAIN = "delete the folder run and run again"
PIPE, LINK = "it is a pipe, not a plain file", "it is a link, not a plain file"
PIPES: list[tuple[str, tuple[str, ...], str]] = [
    ("run/experiment.json", REPORT, f"experiment.json is missing or damaged: {AGAIN} ({PIPE})"),
    ("run/command.json", REPORT, "command.json is damaged: delete that file"),
    ("run/experiment.json", PACK, PIPE),
    ("run/environment.json", PACK, PIPE),
    ("run/metrics.json", PACK, PIPE),
    ("run/state.safetensors", PACK, PIPE),
    ("run/weights.safetensors", PACK, PIPE),
    ("run/weights.safetensors", (*START, "--set", "backbone.weights=run"), PIPE),
    ("begun/experiment.json", RESUME, PIPE),
    ("begun/split.json", RESUME, PIPE),
    ("begun/state.safetensors", RESUME, PIPE),
    ("begun/.lock", RESUME, f".lock: {LINK}"),
    ("store/manifest.json", ON_STORE, PIPE),
    ("store/train-plain.npy", ON_STORE, PIPE),
    ("store/train-weak.npy", ON_STORE, PIPE),
    ("store/labels/train.npy", ON_STORE, PIPE),
    ("store/labels/test.npy", ON_STORE, PIPE),
    ("model/bundle.json", PREDICT, PIPE),
    ("model/model.safetensors", PREDICT, PIPE),
    ("model/calibration.npy", PREDICT, PIPE),
    ("model.safetensors", PREDICT, PIPE),
    (".rows.csv.rows", (*PREDICT, "--out", "rows.csv"), LINK),
    ("checkpoint.pth", ("weights", "checkpoint.pth"), PIPE),
    ("list.csv", ("data", "check", "list.csv"), PIPE),
    ("list.parquet", ("data", "check", "list.parquet"), PIPE),
    ("split.json", ("split", "split.json"), PIPE),
    ("own.yaml", ("suite", "own.yaml"), PIPE),
    ("net.onnx", ("embed", "photos", "--encoder", "net.onnx", "--out", "s"), "is no file"),
    ("data/.cifar-10-batches-py.lock", ("data", "fetch", "cifar10", "--folder", "data"), LINK),
]  # fmt: skip


@pytest.mark.parametrize(("name", "command", "words"), PIPES, ids=lambda value: str(value)[:40])
def test_a_pipe_is_not_waited_for(
    name: str, command: tuple[str, ...], words: str, call: Call, home: Path
) -> None:
    path = home / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(home / "pipe")
    path.symlink_to(home / "pipe")  # tests/system/test_plain_files.py has pipes without a link
    with impatient():
        said = call(*command)
    refused(said, words)
    assert path.is_fifo()


@pytest.mark.parametrize("name", ["photos/cat/1.png", "photos/cat/new.png"])
def test_a_pipe_among_images_is_left_out(name: str, call: Call, home: Path) -> None:
    (home / name).unlink(missing_ok=True)
    os.mkfifo(home / name)
    with impatient():
        assert "not a file" in call("data", "check", "photos").out
        assert call(*PREDICT, "--out", "rows.csv").code == 0
    assert f"{name},,,,,,,not a file" in (home / "rows.csv").read_text()


def test_a_file_that_becomes_a_pipe_after_it_was_listed_is_left_out(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from protofission.data.readers import image_folders as folders

    path = home / "photos" / "cat" / "1.png"
    list_files = folders.list_files

    def swapped(folder: Path) -> Any:
        found = list_files(folder)
        path.unlink()
        os.mkfifo(path)
        return found

    monkeypatch.setattr(folders, "list_files", swapped)
    with impatient(path):
        said = call("data", "check", "photos")
    assert said.code == 0
    assert PIPE in " ".join(said.out.split())


@pytest.mark.parametrize("name", ["manifest.json", "pixels.npy"])
def test_a_pipe_in_the_cache_is_made_anew(name: str, call: Call, home: Path) -> None:
    before = call("data", "check", "photos")
    (path,) = (home / "cache").rglob(name)
    path.unlink()
    os.mkfifo(path)
    with impatient():
        again = call("data", "check", "photos")
    assert (before.code, again.code) == (0, 0)
    assert path.is_file()


def test_a_pipe_beside_a_network_is_not_waited_for(home: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from onnx_models import external, model
    from protofission.models.encoders.onnx_network import Onnx

    (home / "net.onnx").write_bytes(model(kernel=external("kernel", "kernel.bin", (5, 3, 3, 3))))
    assert onnx.load(home / "net.onnx", load_external_data=False).graph.initializer
    os.mkfifo(home / "kernel.bin")
    with impatient(), pytest.raises(InputError, match="is missing or outside"):
        Onnx("net.onnx").load()
    (home / "net.onnx").write_bytes(model(kernel=external("kernel", "a\0b", (5, 3, 3, 3))))
    with pytest.raises(InputError, match=r"keeps tensors in a\\x00b, which is missing or outside"):
        Onnx("net.onnx").load()


# --- JSON of run folders -------------------------------------------------------------------------


def edited(path: Path, key: str, text: str | None) -> None:
    """Put a text in the place of what a JSON file has under a dotted key, or leave it out."""
    content = json.loads(path.read_bytes())
    *parents, last = key.split(".")
    place = content
    for name in parents:
        place = place[int(name) if isinstance(place, list) else name]
    if text is None:
        del place[last]
        path.write_text(json.dumps(content))
        return
    place[last] = "HERE"
    path.write_text(json.dumps(content).replace('"HERE"', text))


NUMBERS = ('"text"', "1e400", "NaN", "-Infinity", "true", "[]", "{}", DEEP, "1" * 400, "1" * 5000)
"""What is no finite number."""


def test_numbers_that_are_none_are_named(call: Call, home: Path) -> None:
    run = RunFolder(home / "run")
    for name, keys, read in (
        ("metrics.json", ("auc", "orca.all", "prototypes.dead", "subclasses.nmi"), run.metrics),
        ("history.json", ("0.loss", "1.terms.supervised", "0.summary.orca.seen"), run.history),
    ):
        path = home / "run" / name
        content = path.read_bytes()
        for key, text in product(keys, NUMBERS):
            edited(path, key, text)
            with pytest.raises(InputError, match=f"{name} is missing or damaged: delete the fold"):
                read()
            path.write_bytes(content)
        read()
    edited(home / "run" / "metrics.json", "orca.all", "1e400")
    said = call(*REPORT)
    assert said.code == 0, said
    assert "damaged" in (home / "page" / "report.html").read_text()


def test_metrics_of_an_earlier_version_are_read(home: Path) -> None:
    path = home / "run" / "metrics.json"
    (home / "run" / "finished").write_text("")  # it held no digests
    before = RunFolder(home / "run").metrics()
    for key in ("subclasses", "subclusters"):
        edited(path, key, None)
    after = RunFolder(home / "run").metrics()
    assert np.isnan(after.subclasses.nmi)
    assert (after.orca, after.prototypes) == (before.orca, before.prototypes)
    edited(path, "orca.novel", "null")  # NaN, as it is written
    assert np.isnan(RunFolder(home / "run").metrics().orca.novel)
    edited(path, "orca.all", None)
    with pytest.raises(InputError, match=r"orca\.all is missing"):
        RunFolder(home / "run").metrics()


STATED = [
    *(("experiment.json", key) for key in ("name", "seed", "method", "data", "data.dataset")),
    *(("experiment.json", key) for key in ("data.split.name", "data.store", "backbone", "recipe")),
    *(("environment.json", key) for key in ("protofission", "torch")),
]


def test_what_a_run_does_not_state_is_named(call: Call, home: Path) -> None:
    for (name, key), text in product(STATED, (None, "3.5", DEEP)):
        path, content = home / "run" / name, (home / "run" / name).read_bytes()
        edited(path, key, text)
        refused(call(*PACK), f"{name} is missing or damaged: delete the folder run and run again")
        if name == "experiment.json":
            refused(call(*REPORT), f"{name} is missing or damaged")
        path.write_bytes(content)
    assert call(*PACK).code == 0


@pytest.mark.parametrize("name", ["experiment", "environment", "metrics", "split"])
def test_deep_and_repeated_json_of_a_run_is_named(name: str, home: Path) -> None:
    run, path = RunFolder(home / "run"), home / "run" / f"{name}.json"
    content = path.read_text()
    for bad in (DEEP, '{"x":' * 50_000, "[]", "3", "", content.replace("{", '{"x": 1, "x": 2,', 1)):
        path.write_text(bad)
        with pytest.raises(InputError, match=rf"{name}\.json is missing or damaged"):
            run.plain(name)


def test_a_state_whose_progress_is_nonsense_is_named(home: Path) -> None:
    from protofission.system.tensor_files import pack_tensors, unpack_tensors

    path, run = home / "begun" / "state.safetensors", RunFolder(home / "begun")
    tensors, texts = unpack_tensors(path.read_bytes())
    good = json.loads(texts["progress"])
    for bad in (
        DEEP,
        "{}",
        json.dumps({**good, "steps": [{"terms": 3}]}),
        json.dumps({**good, "steps": [{**good["steps"][0], "terms": [["a", 1]]}]}),
        json.dumps({**good, "history": [[]]}),
        json.dumps({**good, "history": None}),
    ):
        path.write_bytes(pack_tensors(tensors, progress=bad))
        with pytest.raises(InputError, match=r"state\.safetensors is missing or damaged"):
            run.load_state()
    path.write_bytes(pack_tensors(tensors, progress=texts["progress"]))
    assert run.load_state() is not None


def test_predictions_that_do_not_go_together_are_named(home: Path) -> None:
    run, path = RunFolder(home / "run"), home / "run" / "predictions.npz"
    (home / "run" / "finished").write_text("")  # as by an earlier version, without digests
    with np.load(path) as arrays:
        good = dict(arrays)
    for name, bad in (
        ("labels", good["labels"][1:]),
        ("labels", good["labels"] + 100),
        ("labels", good["labels"].astype(float)),
        ("heads", good["heads"] - 100),
        ("slots", good["slots"] + 100),
        ("ood_scores", good["ood_scores"] * np.nan),
        ("prototypes", good["prototypes"][0]),
        ("mixing", good["mixing"][:, :0]),
        ("num_seen", np.array([1, 2])),
        ("num_classes", np.array(0)),
        ("unknown", np.array(0)),
    ):
        np.savez(path, **{**good, name: bad})
        with pytest.raises(InputError, match=r"predictions\.npz is missing or damaged"):
            run.predictions()
    np.savez(path, **good)
    run.predictions()
