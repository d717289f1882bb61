"""Suites: plans, runs and refusals."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import Call
from protofission.core.errors import InputError
from protofission.core.options import override
from protofission.experiments.report.quantities import QUANTITIES
from protofission.experiments.report.suite_grid import grid_of
from protofission.experiments.suites import SUITES, Setting, Suite, find_suite, suite_console
from protofission.experiments.suites import workers as suite_work
from protofission.experiments.suites.from_runs import run_folders, suite_of_runs
from protofission.experiments.suites.time_estimate import measure_pace
from protofission.experiments.suites.workers import check_stores, perform_runs
from protofission.experiments.suites.yaml_suite import YamlSuite
from protofission.methods import METHODS, title_of
from protofission.training.command import command_of_run
from protofission.training.experiment import Experiment, as_json
from protofission.training.presets import preset
from protofission.training.run import perform
from protofission.training.run_folder import RunFolder
from stores import made

SHORT = (
    "recipe.steps_per_epoch=3",
    "recipe.labeled_batch=16",
    "recipe.unlabeled_batch=24",
    "backbone.width=8",
)
COMMAND = [sys.executable, "-m", "protofission"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def small(store: Path, *methods: str, budget: float = 0.1) -> Suite:
    """Three short epochs of some methods."""
    setting = Setting(datasets=(str(store),), budget=budget, options=SHORT)
    cases = tuple(setting.case(method, method, str(store)) for method in methods)
    return Suite("small", "Small", cases, ("all_strict", "auc"))


@pytest.mark.parametrize("tier", ["features", "images"])
@pytest.mark.parametrize("name", SUITES)
def test_every_run_that_a_suite_plans_can_be_asked_for_by_its_command(name: str, tier: str):
    suite = find_suite(name, Setting(tier, budget=0.5))  # type: ignore[arg-type]
    assert {quantity in QUANTITIES for quantity in suite.quantities} == {True}
    runs = suite.runs(Path("some where/runs"), [0, 7])
    assert len({run.folder.path for run in runs}) == len(runs)
    for run in (run for run in runs if run.seed == 7):
        experiment = run.case.experiment(run.seed)
        experiment.check()
        words = shlex.split(run.command)
        assert words[:3] == ["protofission", "train", run.case.method]
        rebuilt = preset(words[words.index("--preset") + 1], words[2])
        for flag, value in pairwise(words):
            if flag == "--set":
                rebuilt = override(rebuilt, value)
        assert replace(rebuilt, seed=int(words[words.index("--seed") + 1])) == experiment
        assert words[-1] == str(run.folder.path)
        assert experiment.recipe.epochs is not None
        full = preset(run.case.preset, run.case.method).recipe.epochs
        assert experiment.recipe.epochs == -(-full // 2)  # type: ignore[operator]


def test_the_papers_numbers_stand_beside_the_rows_they_are_of():
    for name in ("table1", "ablation"):
        suite = find_suite(name, Setting(datasets=("cifar10", "cifar100")))
        places = {(case.row, case.panel) for case in suite.cases}
        for row in ("orca", "orca+pf", "full", "without L_div"):
            for dataset in ("cifar10", "cifar100"):
                assert ((row, dataset) in places) == ((row, dataset) in suite.published)
        assert all(0 < value < 1 for row in suite.published.values() for value in row.values())
        total = sum(value for row in suite.published.values() for value in row.values())
        assert 100 * total == pytest.approx({"table1": 4243.4, "ablation": 1642.07}[name])
    assert suite.published["without L_cst", "cifar100"]["all_orca"] == pytest.approx(0.4022)
    grid = grid_of(find_suite("table1", Setting(datasets=("cifar10",))), [])
    assert grid.panels == ["cifar10", "imagenet100"]  # what was not run says so
    assert grid.paper("rankstats", "imagenet100", "novel_orca") == 28.7
    assert grid.entry("rankstats", "imagenet100").state == "not run"


def test_the_ablation_takes_away_what_it_says():
    cases = {c.row: c for c in find_suite("ablation", Setting(datasets=("cifar10",))).cases}
    full = cases["full"].experiment(0)
    for row, option in (
        ("without L_cst", "method.consistency_weight=0"),
        ("without L_div", "method.diversity_weight=0"),
        ("without L_ldiv", "method.local_diversity_weight=0"),
    ):
        assert cases[row].experiment(0) == override(full, option)
    assert cases["without prototypes"].experiment(0).name == "orca"


@pytest.mark.slow
def test_runs_side_by_side_are_those_of_one_process_and_outlive_one_that_fails(tmp_path: Path):
    store = made(tmp_path / "s").folder
    suite = small(store, "orca", "orca+pf")
    broken = replace(
        suite.cases[0], row="b", options=(*suite.cases[0].options, "data.split.num_seen=99")
    )
    runs = replace(suite, cases=(broken, *suite.cases)).runs(tmp_path / "together", [0, 1])
    ended = {news.place: news for news in perform_runs(runs, 2) if news.ended}
    assert sorted(ended) == [0, 1, 2, 3, 4, 5]
    assert ["99" in ended[place].failure for place in range(6)] == 2 * [True, False, False]
    for place in (1, 2, 4, 5):
        assert runs[place].folder.finished
        experiment, alone = runs[place].case.experiment(runs[place].seed), tmp_path / str(place)
        for _ in perform(experiment, experiment.data.load(), RunFolder(alone)):
            pass
        for file in ("metrics.json", "weights.safetensors"):
            assert (alone / file).read_bytes() == (runs[place].folder.path / file).read_bytes()
    assert list(perform_runs([runs[1], runs[2]], 2)) == []  # what is finished is left alone


def test_the_time_of_a_run_is_taken_from_its_steps(tmp_path: Path):
    store = made(tmp_path / "s").folder
    suite = small(store, "orca+pf", budget=1.0)
    (run,) = suite.runs(tmp_path / "runs", [0])
    pace = measure_pace(run)
    longer = replace(run.case, options=(*run.case.options, "recipe.epochs=60"))
    (twice,) = replace(suite, cases=(longer,)).runs(tmp_path / "runs", [0])
    assert pace.step > 0
    assert pace.seconds(twice) == pytest.approx(2 * pace.seconds(run))  # 30 epochs are the preset's
    assert not (tmp_path / "runs").exists()  # nothing is left behind


def test_a_run_that_another_suite_has_finished_meanwhile_is_no_failure(tmp_path: Path):
    store = made(tmp_path / "s").folder
    (run,) = small(store, "orca").runs(tmp_path / "runs", [0])
    told: list[tuple[int, int]] = []
    suite_work._carry_out(None, run, told.append)
    assert told
    before = {path: path.read_bytes() for path in run.folder.files()}
    told.clear()
    suite_work._carry_out(None, run, told.append)
    assert told == []
    assert {path: path.read_bytes() for path in run.folder.files()} == before


def test_finished_runs_on_other_features_are_not_taken_for_these(tmp_path: Path):
    store = made(tmp_path / "one" / "s").folder
    suite = small(store, "supervised")
    (run,) = suite.runs(tmp_path / "runs", [0])
    experiment = run.case.experiment(0)
    for _ in perform(experiment, experiment.data.load(), run.folder):
        pass
    check_stores([run])
    moved = (tmp_path / "two" / "s").resolve()
    moved.parent.mkdir()
    store.rename(moved)
    (again,) = small(moved, "supervised").runs(tmp_path / "runs", [0])
    assert again.folder == run.folder  # a store may be moved
    check_stores([again])
    shutil.rmtree(moved)
    made(moved, rows=300)
    with pytest.raises(InputError, match="a finished run on other features"):
        check_stores([again])


def test_options_of_the_user_reach_every_case_that_has_them():
    for name, option, lacking in (
        ("mismatch", "data.split.labels_per_class=50", ()),
        ("mismatch", "method.margin_cap=0.2", ("fixmatch-sigmoid", "fixmatch-sigmoid+pf")),
    ):
        setting = Setting(datasets=("cifar10",), options=(option,))
        suite = find_suite(name, setting)
        setting.check(suite)
        for case in suite.cases:
            assert (option in case.options) == (case.row not in lacking)
        (mark,) = setting.marks(suite)
        assert option in mark
        assert all(row in mark for row in lacking)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("subclasses", "head.prototypes=5"),
        ("mismatch", "data.split.ratio=0.3"),
        ("ablation", "method.diversity_weight=0"),
    ],
)
def test_an_option_that_makes_two_rows_one_is_refused(name: str, option: str):
    setting = Setting(options=(option,))
    with pytest.raises(InputError, match=f"are one experiment with {option}"):
        setting.check(find_suite(name, setting))


def test_a_budget_cuts_what_a_run_lasts():
    for options, key, length in (
        ((), "epochs", 15),
        (("recipe.epochs=9",), "epochs", 5),
        (("recipe.steps=1000",), "steps", 500),
    ):
        setting = Setting(datasets=("cifar10",), budget=0.5, options=options)
        recipe = setting.case("r", "orca", "cifar10").experiment(0).recipe
        assert getattr(recipe, key) == length


OWN = """
title: "How many: <V> | prototypes?"
data: [{store}]
seeds: 2
options: [recipe.epochs=2, {short}]
methods:
  - orca
  - {{row: two, method: orca+pf, options: [head.prototypes=2]}}
compare: [[two, orca]]
quantities: [all_strict, auc]
"""


def own_file(folder: Path) -> Path:
    store = made(folder / "store").folder
    path = folder / "own.yaml"
    path.write_text(OWN.format(store=store, short=", ".join(SHORT)))
    return path


def killed_with_runs_finished_and_under_way(arguments: list[str], runs: Path) -> dict[Path, int]:
    """Kill a suite at such a moment; the `finished` files that it left, with their times.

    All of its processes are stopped before its folder is looked at, and go on if it is too early.
    """
    process = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, env=ENVIRONMENT, start_new_session=True
    )
    while process.poll() is None:
        os.killpg(process.pid, signal.SIGSTOP)
        begun = list(runs.glob("*/experiment.json"))
        finished = list(runs.glob("*/finished"))
        if 0 < len(finished) < len(begun):
            os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            return {path: path.stat().st_mtime_ns for path in finished}
        os.killpg(process.pid, signal.SIGCONT)
        time.sleep(0.02)
    pytest.fail(f"it ended ({process.returncode}) before it could be killed")


@pytest.mark.slow
def test_a_suite_of_ones_own_runs_from_a_file_after_a_kill(tmp_path: Path, call: Call):
    path = own_file(tmp_path)
    arguments = [*COMMAND, "suite", str(path), "--out", str(tmp_path / "out"), "--workers", "2"]
    said = call(*arguments[3:], "--dry-run").out
    assert "4 runs, 0 of them finished." in said
    assert "About 0 min" in said
    assert not (tmp_path / "out").exists()

    kept = killed_with_runs_finished_and_under_way(arguments, tmp_path / "out" / "runs")
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "a finished run was run again"
    runs = [RunFolder(p) for p in (tmp_path / "out" / "runs").iterdir()]
    assert len(runs) == 4
    assert all(run.finished for run in runs)
    report = tmp_path / "out" / "own"
    page = (report / "report.html").read_text()
    assert "How many: &lt;V&gt; | prototypes?" in page
    numbers = json.loads((report / "results.json").read_text())
    assert [run["state"] for run in numbers["runs"]] == ["finished"] * 4
    (difference,) = (d for d in numbers["differences"] if d["quantity"] == "auc")
    values = {
        (r["row"], seed): value
        for r in numbers["results"]
        if r["quantity"] == "auc"
        for seed, value in r["values"].items()
    }
    pairs = [values["two", seed] - values["orca", seed] for seed in ("0", "1")]
    assert difference["mean"] == pytest.approx(sum(pairs) / 2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1, 2]", "holds no names and values"),
        ("methods: [orca\n", "is no YAML"),
        ("metods: [orca]", "Unknown key"),
        ("methods: []", "names no methods"),
        ("methods: [orka]", "Did you mean 'orca'"),
        ("methods: [{row: a}]", "give a name, or row, method and options"),
        ("methods: [orca]\nseeds: many", "whole number"),
        ("methods: [orca]\nseeds: true", "whole number"),
        ("methods: [orca]\noptions: recipe.epochs=2", "list of texts"),
        ("methods: [orca]\nquantities: [speed]", "Unknown quantity"),
        ("methods: [orca]\ncompare: [[orca]]", "list of pairs"),
        ("methods: [orca]\ncompare: [[orca, pf]]", "no row"),
        ("methods: [orca, orca]", "two cases of one row"),
        ("methods: [orca]\ndata: [nowhere]", "Unknown data set or store"),
        ("methods: [orca]\ntier: pixels", "Unknown tier"),
        ("methods: [orca]\ntier:", "Unknown tier"),
        ("methods: [orca]\noptions: [seed=5]", "seed cannot be set"),
        ("methods: [!!python/object:os.system {}]", "is no YAML"),
        ("a: &a [1]\nmethods: [*a, *a]", "refers to other places"),
        ('methods: [{row: "a\\x01", method: orca}]', "no name that can be shown"),
        ("methods: [orca]\nseeds: " + "[" * 1500, "is no YAML"),
        ("\xff\xfe", "holds no names"),
        ("\x00", "is no YAML"),
    ],
)
def test_a_file_that_is_no_suite_is_refused_in_a_sentence(text, sentence, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=sentence):
        planned(path)


def planned(path: Path) -> None:
    own = YamlSuite.read(path)
    setting = own.setting(Setting(own.tier), keep_datasets=False)
    setting.check(own.suite(setting))
    assert own.seeds is None or own.seeds


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["suite", "tabel1"], "Did you mean 'table1'"),
        (["suite", "nowhere.yaml"], "nowhere.yaml"),
        (["suite", "table1", "--budget", "0"], "budget = 0.0 must be above 0"),
        (["suite", "table1", "--workers", "0"], "workers = 0 must be at least 1"),
        (["suite", "table1", "--seeds", "0"], "seeds = 0 must be at least 1"),
        (["suite", "table1", "--first-seed", "-1"], "first_seed = -1 must be between 0"),
        (["suite", "table1", "--first-seed", str(2**63 - 1)], f"The last seed = {2**63 + 1} must"),
        (["suite", "table1", "--set", "seed=5"], "seed cannot be set: use --seed, or --first-seed"),
        (["suite", "table1", "--only", "orka", "--dry-run"], "Did you mean 'orca'"),
        (["suite", "table1", "--set", "recipe.epoch=never"], "recipe.epoch"),
        (["suite", "table1", "--set", "no.such=1"], "no.such"),
        (["suite", "subclasses", "--dataset", "cifar10"], "wants CIFAR-100"),
        (["suite", "table1", "--dataset", "mnist", "--tier", "images"], "preset for mnist"),
        (["report", "nowhere"], "nowhere is no run"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*arguments)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("said", "asked", "tier"),
    [
        ("images", None, "images"),
        ("images", "features", "features"),
        (None, None, "features"),
    ],
)
def test_a_tier_that_is_asked_for_goes_before_the_file_s_and_the_report_follows(
    said, asked, tier, tmp_path, call, monkeypatch
):
    path, out = tmp_path / "own.yaml", tmp_path / "out"
    path.write_text("methods: [orca]\ndata: [digits]\n" + (f"tier: {said}\n" if said else ""))
    monkeypatch.setattr(suite_console, "show_stores", lambda *_: None)
    monkeypatch.setattr(suite_console, "show_runs", lambda *_: [])
    done = call("suite", path, "--out", out, *(["--tier", asked] if asked else []))
    assert done.code == 0, done.err
    (report,) = (folder for folder in out.iterdir() if folder.name != "runs")
    assert report.name == {"features": "own", "images": "own-images"}[tier]
    results = json.loads((report / "results.json").read_text())
    (preset,) = {"--preset digits " in run["command"] for run in results["runs"]}
    assert preset == (tier == "images")
    assert ("On images" in results["note"]) == (tier == "images")


@pytest.mark.slow
def test_runs_made_one_by_one_are_put_together(tmp_path: Path):
    store = made(tmp_path / "s").folder
    suite = small(store, "orca", "orca+pf")
    wider = replace(suite.cases[1], row="w", options=(*suite.cases[1].options, "head.prototypes=2"))
    runs = replace(suite, cases=(*suite.cases, wider)).runs(tmp_path / "runs", [0, 1])
    assert not any(news.failure for news in perform_runs(runs, 2))
    for run in runs:  # the folders say what the suite said
        assert command_of_run(run.folder) == run.case.command(run.seed)
    for run in runs[::2]:  # as of an earlier version
        (run.folder.path / "command.json").unlink()
    found, gathered_runs = suite_of_runs(run_folders([tmp_path / "runs"]))
    rows = {case.row for case in found.cases}
    assert rows == {"orca", "orca+pf, head.prototypes=5", "orca+pf, head.prototypes=2"}
    assert {case.panel for case in found.cases} == {"s, orca"}
    assert len(gathered_runs) == 6
    for run in gathered_runs:
        assert json.loads(as_json(run.case.experiment(run.seed))) == run.folder.plain("experiment")
    with pytest.raises(InputError, match="hold the same run"):
        suite_of_runs(run_folders([tmp_path / "runs", tmp_path / "runs"]))
    other = replace(suite.cases[0], options=(*suite.cases[0].options, "data.pool_has_labeled=true"))
    (mixed,) = replace(suite, cases=(other,)).runs(tmp_path / "runs", [5])
    experiment = mixed.case.experiment(5)
    for _ in perform(experiment, experiment.data.load(), mixed.folder):
        pass
    found, gathered_runs = suite_of_runs(run_folders([tmp_path / "runs"]))
    assert len({case.panel for case in found.cases}) == 2  # other data, so no more seeds of these
    (run,) = (run for run in gathered_runs if run.seed == 5)
    assert "data.pool_has_labeled=True" in run.command
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "experiment.json").write_text("{}")
    with pytest.raises(InputError, match="missing or damaged"):
        suite_of_runs(run_folders([damaged]))


@pytest.mark.parametrize("kept", ["{0}/runs/{1}", "moved/since/{1}"])
def test_seeds_that_start_from_weights_of_their_own_are_one_row(tmp_path: Path, kept: str):
    def put(name: str, experiment: Experiment) -> None:
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "experiment.json").write_text(as_json(experiment))

    for seed in (0, 1):
        start, own = (replace(preset("digits", name), seed=seed) for name in ("simclr", "orca"))
        put(f"start{seed}", start)
        put(f"longer{seed}", override(start, "recipe.epochs=21"))
        for first in ("start", "longer"):
            weights = kept.format(tmp_path, f"{first}{seed}")
            put(f"orca-{first}{seed}", override(own, f"backbone.weights={weights}"))
    found, runs = suite_of_runs(run_folders([tmp_path / "runs"]))
    rows = sorted({case.row for case in found.cases})
    assert len(rows) == 2
    assert all(re.fullmatch(r"orca, backbone.weights=simclr-[0-9a-f]{8}", row) for row in rows)
    assert sorted((run.case.row, run.seed) for run in runs) == [
        (r, s) for r in rows for s in (0, 1)
    ]


def test_methods_that_do_not_classify_are_not_in_the_table():
    rows = {case.row for case in find_suite("table1", Setting()).cases}
    assert rows == {title_of(name) for name, method in METHODS.items() if method.traits.predicts}
