"""--json: one JSON object on standard output and nothing else there, for every verb."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bundles import bundle_at
from conftest import Call
from pictures import picture
from protofission import __version__
from protofission.cli import DATA, SERVERS, app
from protofission.cli.json_results import gives_json, plain_value, result_text
from protofission.triage.bundle import load
from protofission.triage.workbench.next_table import NEXT_COLUMNS
from small_workbenches import small_model

NO_RESULTS = {"completion", *(verb for (verb,) in SERVERS)}
"""Verbs that print a script, or run until they are stopped."""
TINY = [
    "--set", "backbone.width=4",
    "--set", "recipe.epochs=1",
    "--set", "recipe.steps_per_epoch=1",
    "--set", "recipe.labeled_batch=16",
    "--set", "recipe.unlabeled_batch=16",
]  # fmt: skip


def test_every_verb_that_prints_results_has_it() -> None:
    verbs = {name: app[name].default_command for name in app if not name.startswith("-")}
    del verbs["data"]
    verbs |= {f"data {verb.__name__}": verb for verb in DATA}
    lacking = {
        name for name, verb in verbs.items() if "json" not in inspect.signature(verb).parameters
    }
    assert lacking == NO_RESULTS


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bundle_at(tmp_path / "given")
    for number in range(4):
        picture(tmp_path / "new" / f"{number}.png", number, side=8)
    (tmp_path / "new" / "bad.png").write_bytes(b"nothing")
    return tmp_path


def asked(call: Call, *arguments: object) -> Any:
    """The result of a command, which says nothing else on standard output."""
    done = call(*arguments, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    verb = "data check" if arguments[0] == "data" else arguments[0]
    assert (told["verb"], told["protofission"]) == (verb, __version__)
    assert set(told) == {"verb", "protofission", "result"}
    assert set(told["result"]) in documented(verb), verb
    return told["result"]


def documented(verb: str) -> list[set[str]]:
    """The keys of a verb's result as docs/command_line.md has them, one set for each kind of it."""
    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
    (cell,) = re.findall(
        rf"^\| [`\w, ]*`{verb}`[`\w, ]* \| (`.*`.*) \|$", page.split("--json\n")[1], re.M
    )
    kinds = re.sub(r"\([^)]*\)", "", cell).split(";")
    return [set(re.findall(r"`(\w+)`", kind)) for kind in kinds]


def test_lists_and_facts(work: Path, call: Call) -> None:
    methods = asked(call, "methods")["methods"]
    assert "orca+pf" in {method["name"] for method in methods}
    options = asked(call, "methods", "orca+pf")["options"]
    assert next(each["value"] for each in options if each["key"] == "head.prototypes") == "5"
    presets = {each["name"]: each["wants_gpu"] for each in asked(call, "presets")["presets"]}
    assert (presets["digits"], presets["paper/cifar10"]) == (False, True)
    assert asked(call, "split", "orca", "--out", "split.json")["out"] == "split.json"
    assert {each["name"] for each in asked(call, "weights")["weights"]} >= {"simclr-cifar10"}
    assert asked(call, "weights", "simclr-cifar10")["fits"] is True
    found = asked(call, "data", "check", "new", "--size", "8")
    assert found["folder"]["read"] == 4
    assert list(found["folder"]["left_out"]) == ["bad.png"]


def test_a_model_and_its_predictions(work: Path, call: Call) -> None:
    bundle = load("given")
    shown = asked(call, "show", "given")
    assert shown["fingerprint"] == bundle.fingerprint
    assert shown["classes"] == list(bundle.class_names)
    assert shown["threshold"] == pytest.approx(float(bundle.calibrated_model.threshold))
    found = asked(call, "predict", "given", "new", "--processes", "1")
    assert (found["rows"], found["errors"], found["out"]) == (5, 1, None)
    assert [Path(row["path"]).name for row in found["images"] if row["error"]] == ["bad.png"]
    assert sum(found["decisions"].values()) == 4
    kept = asked(call, "predict", "given", "new", "--out", "rows.csv", "--processes", "1")
    assert kept["decisions"] == found["decisions"]
    assert (kept["out"], kept["images"]) == ("rows.csv", None)
    assert (work / "rows.csv").exists()
    drifted = asked(call, "drift", "given", "new", "--processes", "1")
    assert drifted["errors"] == 1
    assert drifted["scores"]["images"] == 4
    packed = asked(call, "pack", "given", "given.zip")
    assert packed["fingerprint"] == bundle.fingerprint


def test_the_workbench_verbs(work: Path, call: Call) -> None:
    small_model(work)
    found = asked(call, "next", "model", "--n", "3")
    assert found["number"] == len(found["images"]) == 3
    assert tuple(found["images"][0]) == NEXT_COLUMNS
    assert asked(call, "next", "model", "--n", "2", "--out", "next.csv")["number"] == 2
    labeled = asked(call, "labels", "model", "--out", "labels.csv", "--what", "all")
    assert labeled["format"] == "csv"
    assert labeled["images"] > 0


def test_a_run_and_its_report(work: Path, call: Call) -> None:
    trained = asked(call, "train", "supervised", "--out", "runs/a", *TINY)
    written = json.loads((work / "runs" / "a" / "metrics.json").read_text())
    assert trained["run"] == "runs/a"
    assert trained["metrics"] == written
    told = asked(call, "report", "runs", "--out", "report")
    assert [run["metrics"] for run in told["runs"]] == [written]
    assert Path(told["page"]).exists()


def test_a_refusal_leaves_standard_output_empty(work: Path, call: Call) -> None:
    done = call("show", "nothing", "--json")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1


def test_other_processes_and_libraries_print_elsewhere() -> None:
    """What is printed by its descriptor, as by a child, is not on standard output either."""
    code = """
import os, sys
from protofission.cli.json_results import gives_json

@gives_json("test")
def verb(*, json=False):
    print("words")
    os.system("echo a child")
    os.write(1, b"a library\\n")
    return {"path": os.path.join("a", "b"), "number": float("inf")}

verb(json=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["result"] == {"path": os.path.join("a", "b"), "number": None}
    assert sorted(done.stderr.splitlines()) == ["a child", "a library", "words"]


def test_of_several_processes_the_first_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @gives_json("test")
    def verb(*, json: bool = False) -> dict[str, Any]:
        return {}

    monkeypatch.setenv("LOCAL_RANK", "1")
    verb(json=True)
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("LOCAL_RANK", "0")
    verb(json=True)
    assert json.loads(capsys.readouterr().out)["verb"] == "test"


def test_values_are_strict_json() -> None:
    given = {"a": (1.5, float("nan")), "b": Path("x/y"), 3: [True, None, "ü\udc80"]}
    assert plain_value(given) == {"a": [1.5, None], "b": "x/y", "3": [True, None, "ü\udc80"]}
    assert result_text("x", given).isascii()
