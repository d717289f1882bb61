"""The demo: a table, a page, and images and a model for the newcomer's next command."""

import csv
import json
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from commands import COMMAND, environment, in_a_process
from conftest import Call
from protofission.cli.arguments import command_text
from protofission.core.errors import InputError
from protofission.core.metrics import auroc
from protofission.data.datasets import Data, DataSpec
from protofission.data.readers.digits import load_digits
from protofission.experiments.demo import plan_demo, run_demo
from protofission.experiments.demo_images import write_demo_images

pytestmark = pytest.mark.slow

QUICK = [
    "--set", "backbone.width=4",
    "--set", "recipe.epochs=2",
    "--set", "recipe.steps_per_epoch=3",
    "--set", "simclr:recipe.epochs=1",
]  # fmt: skip
EXTRAS = """
import importlib.machinery
found = importlib.machinery.PathFinder.find_spec
extras = {"efficientnet_lite_pytorch", "pyarrow", "datasets",
    "tensorboard", "transformers", "huggingface_hub", "onnx", "onnxruntime", "onnxscript"}
importlib.machinery.PathFinder.find_spec = classmethod(
    lambda cls, name, *rest: None if name.partition(".")[0] in extras else found(name, *rest))
"""
"""As a sitecustomize.py: a Python without what `pip install protofission` does not install."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a demo whose backbone is the usual one, without extras; and what it printed."""
    home = tmp_path_factory.mktemp("shown")
    (home / "without").mkdir()
    (home / "without" / "sitecustomize.py").write_text(EXTRAS)
    paths = ":".join([str(home / "without"), *filter(None, [environment().get("PYTHONPATH")])])
    short = ("--set", "recipe.epochs=1", "--set", "recipe.steps_per_epoch=2")
    done = in_a_process(
        *("demo", "--methods", "orca", *short),
        cwd=home,
        PYTHONPATH=paths,
        XDG_CACHE_HOME=str(home / "cache"),
    )
    assert done.returncode == 0, done.stderr
    return home, done.stdout


def last_command(said: str) -> str:
    """The command at the end of what was printed, as it would be copied."""
    lines = said.splitlines()
    last = max(place for place, line in enumerate(lines) if not line.startswith("    "))
    return "\n".join(lines[last + 1 :])


def words_of(command: str) -> list[str]:
    """The words of a command, as a shell takes them; shlex does not know that lines go on."""
    return shlex.split(command.replace("\\\n", ""))


def test_the_next_command_works_by_copy_and_paste(shown: tuple[Path, str]) -> None:
    home, said = shown
    assert max(map(len, said.splitlines())) <= 80
    command = last_command(said)
    assert words_of(command)[-5:] == [
        *("predict", "demo/model", "demo/images/new", "--out", "demo/new.csv")
    ]
    variables = environment(XDG_CACHE_HOME=str(home / "cache"))
    subprocess.run(command, shell=True, cwd=home, env=variables, check=True, capture_output=True)
    assert (home / "demo" / "model" / "triage.html").is_file()
    assert "demo/model/triage.html" in said
    with (home / "demo" / "new.csv").open() as file:
        rows = list(csv.DictReader(file))
    digits = np.array([int(Path(row["path"]).name[0]) for row in rows])
    assert np.bincount(digits).tolist() == [30] * 10
    known = digits < 5
    right = [row["class"] == str(digit) for row, digit in zip(rows, digits, strict=True)]
    assert np.mean(np.array(right)[known]) > 0.9
    scores = np.array([float(row["id_score"]) for row in rows])
    assert auroc(-scores[known], -scores[~known]) > 0.95


def test_the_command_that_made_the_model_is_shown_and_makes_the_same(
    shown: tuple[Path, str],
) -> None:
    home, said = shown
    text = re.search(r"made by\n((?:    .*\n)+)", said)
    assert text is not None
    words = words_of(text.group(1))
    words = words[words.index("fit") :]
    page = (home / "demo" / "model" / "triage.html").read_text()
    assert " ".join(["protofission", *words]) in page
    done = in_a_process(*words[:-1], "again", cwd=home, XDG_CACHE_HOME=str(home / "cache"))
    assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "calibration.npy", "triage.csv"):
        first, second = (home / folder / name for folder in ("demo/model", "again"))
        assert first.read_bytes() == second.read_bytes(), name


def test_the_images_are_the_digits_each_in_one_folder(shown: tuple[Path, str]) -> None:
    folder = shown[0] / "demo" / "images"
    paths = {part: sorted((folder / part).rglob("*.png")) for part in ("labeled", "pool", "new")}
    assert len(paths["labeled"]) == 465
    assert all(path.parent.name == path.name[0] in "01234" for path in paths["labeled"])
    assert {path.name[0] for path in paths["pool"]} == set("0123456789")
    digits = load_digits()
    there = {
        image.tobytes(): label for image, label in zip(digits.pixels, digits.labels, strict=True)
    }
    found = set()
    for path in (path for some in paths.values() for path in some):
        pixels = np.asarray(Image.open(path))
        assert pixels.shape == (32, 32)
        content = np.ascontiguousarray(pixels[::4, ::4]).tobytes()
        assert there[content] == int(path.name[0])
        assert content not in found
        found.add(content)


def test_images_of_another_demo_are_not_mixed_with_these(tmp_path: Path) -> None:
    data = DataSpec().load()
    write_demo_images(data, tmp_path / "images", "one")
    before = sorted(tmp_path.rglob("*"))
    write_demo_images(data, tmp_path / "images", "one")
    with pytest.raises(InputError, match=r"images holds other images than this demo's: delete it"):
        write_demo_images(data, tmp_path / "images", "another")
    assert [path for path in sorted(tmp_path.rglob("*")) if ".writing" not in str(path)] == before


def test_a_wide_command_is_cut_where_a_shell_goes_on() -> None:
    words = ["protofission", "fit", "a" * 30, "b" * 20, "--encoder", "c d", "--out", "e" * 30]
    text = command_text(words)
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) == 2
    assert words_of(text) == words


def test_demo_prints_a_table_and_writes_a_page(tmp_path: Path) -> None:
    done = in_a_process("demo", "--seeds", "2", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    page = (tmp_path / "demo" / "report.html").read_text()
    for name in ("orca", "orca+pf", "fixmatch-sigmoid", "fixmatch-sigmoid+pf"):
        assert name in done.stdout
        assert name in page
    assert "±" in page  # two seeds: mean and spread
    runs = sorted((tmp_path / "demo" / "runs").iterdir())
    assert len(runs) == 10
    for run in runs:
        assert (run / "finished").exists()
        assert json.loads((run / "command.json").read_text())["preset"] == "digits"
        assert json.loads((run / "split.json").read_text())["labeled"] == 465


def files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def kill_when(there: Callable[[], bool], arguments: list[str], cwd: Path) -> None:
    """Start a command, and kill it as soon as something is there."""
    process = subprocess.Popen([*COMMAND, *arguments], cwd=cwd, stdout=subprocess.DEVNULL)
    while process.poll() is None and not there():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_a_killed_demo_goes_on_where_it_was(tmp_path: Path) -> None:
    arguments = ["demo", "--methods", "orca+pf", *QUICK]
    cut, whole = tmp_path / "demo", tmp_path / "whole"
    done = in_a_process(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cut.rename(whole)  # a model names the folders of its images
    for _ in range(3):  # killed as soon as there is one file more than the last time
        before = files(cut)
        kill_when(lambda before=before: files(cut) > before, arguments, tmp_path)
        assert files(cut) > before
    assert not (cut / "report.html").exists()
    for place in (".images.writing/images", "images", ".model.fitting/store-*/blocks.jsonl"):
        assert not list(cut.glob(place))
        kill_when(lambda place=place: list(cut.glob(place)), arguments, tmp_path)
        assert not (cut / "model").exists()
    done = in_a_process(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for run in (whole / "runs").iterdir():
        other = cut / "runs" / run.name
        for name in ("weights.safetensors", "history.json", "predictions.npz", "metrics.json"):
            if (run / name).exists():
                assert (run / name).read_bytes() == (other / name).read_bytes(), name
    for part in ("images", "model"):
        paths = sorted(path for path in (whole / part).rglob("*") if path.is_file())
        assert files(cut / part) == len(paths) > 3
        for path in paths:
            assert path.read_bytes() == (cut / path.relative_to(whole)).read_bytes(), path
    assert {path.name for path in cut.iterdir()} == {*("report.html", "runs", "images", "model")}


def test_an_interrupted_demo_says_what_is_kept(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "demo", "--methods", "orca", *QUICK, "--set", "recipe.epochs=500"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may ignore it
    ) as process:
        while process.poll() is None and files(tmp_path) == 0:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert said.startswith("protofission: stopped; the same command goes on")
    assert process.returncode == 130


def test_finished_runs_are_kept_other_options_make_others_and_a_damaged_one_is_named(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["demo", "--methods", "orca", *QUICK]
    assert call(*arguments).code == 0
    runs = {p: (p / "finished").stat().st_mtime_ns for p in (tmp_path / "demo" / "runs").iterdir()}
    model = (tmp_path / "demo" / "model" / "bundle.json").stat().st_mtime_ns
    assert len(re.findall("kept", call(*arguments).out)) == 3  # two runs, and the model
    assert call(*arguments, "--set", "method.entropy_weight=9").code == 0
    now = {p: (p / "finished").stat().st_mtime_ns for p in (tmp_path / "demo" / "runs").iterdir()}
    assert runs.items() <= now.items()
    assert len(now) == len(runs) + 1
    assert (tmp_path / "demo" / "model" / "bundle.json").stat().st_mtime_ns == model
    for metrics in tmp_path.glob("demo/runs/orca-*/metrics.json"):
        metrics.write_text("{")
    done = call(*arguments)
    assert done.code == 2
    assert "metrics.json is missing or damaged: delete the folder" in done.err
    assert done.err.count("\n") == 1


def test_another_start_makes_another_run(tmp_path: Path) -> None:
    plans = [
        plan_demo(tmp_path, ["orca"], assignments=[f"simclr:recipe.epochs={epochs}"])
        for epochs in (1, 2)
    ]
    assert {job.folder for job in plans[0]}.isdisjoint(job.folder for job in plans[1])


def test_the_demo_loads_its_data_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The methods share their images; SimCLR sees all of them."""
    jobs = plan_demo(tmp_path, ["orca", "orca+pf", "fixmatch"], seeds=2)
    assert len(jobs) == 8
    load, loads = DataSpec.load, list[DataSpec]()

    def counted(spec: DataSpec) -> Data:
        loads.append(spec)
        return load(spec)

    class LoadedError(Exception):
        pass

    def stop(*_: object) -> None:
        raise LoadedError

    monkeypatch.setattr(DataSpec, "load", counted)
    monkeypatch.setattr("protofission.experiments.demo._perform_all", stop)
    with pytest.raises(LoadedError):
        run_demo(jobs, tmp_path / "page.html", "", Console())
    assert len(loads) == len({job.experiment.data for job in jobs}) == 2


def test_the_seeds_are_so_many_from_the_first_on(tmp_path: Path) -> None:
    jobs = plan_demo(tmp_path, ["orca"], seeds=2, first_seed=5)
    assert [job.experiment.seed for job in jobs] == [5, 5, 6, 6]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = in_a_process("demo", "--out", "taken", *QUICK, cwd=tmp_path)
    assert done.returncode == 2
    assert "taken" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "taken").read_text() == "a file"
