"""Readings: methods whose formulas are not public carry a mark wherever they are shown."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from protofission.cli import list_verbs
from protofission.experiments.demo import plan_demo, run_demo
from protofission.experiments.suites import find_suite
from protofission.experiments.suites.from_runs import suite_of_runs
from protofission.experiments.suites.plan import plan_suite
from protofission.experiments.suites.setting import Setting
from protofission.methods import METHODS, title_of

DOCS = Path(__file__).parents[2] / "docs"
READINGS = {"nach", "nach+pf", "pmal", "p-odn"}


def test_the_methods_without_public_formulas_are_readings_with_fission_too():
    assert {name for name, method in METHODS.items() if method.traits.reading} == READINGS


@pytest.mark.parametrize("name", [*METHODS, "a method of one's own"])
def test_a_reading_alone_carries_the_mark(name):
    assert title_of(name) == (f"{name} (reading)" if name in READINGS else name)


def test_the_list_of_methods_shows_the_mark_and_json_has_names_alone(capsys):
    list_verbs.methods()
    lines = capsys.readouterr().out.splitlines()
    list_verbs.methods(json=True)
    listed = json.loads(capsys.readouterr().out)["result"]["methods"]
    assert [entry["name"] for entry in listed] == list(METHODS)
    for entry in listed:
        assert any(line.startswith(f"{title_of(entry['name'])} ") for line in lines), entry
    assert {entry["name"] for entry in listed if entry["reading"]} == READINGS


def test_a_suite_names_its_rows_with_the_mark_and_takes_them_by_the_plain_name(tmp_path):
    suite = find_suite("table1", Setting())
    assert {title_of(name) for name in READINGS} <= {case.row for case in suite.cases}
    assert ("nach+pf (reading)", "nach (reading)") in suite.pairs
    assert ("orca+pf", "orca") in suite.pairs
    plan = plan_suite("table1", tmp_path, seeds=1)
    for given in ("nach", "nach (reading)"):
        assert {run.case.row for run in plan.runs_of([given])} == {"nach (reading)"}


def test_the_demo_and_a_report_of_its_runs_show_the_mark(tmp_path):
    short = ["backbone.width=4", "recipe.epochs=1", "simclr:recipe.epochs=1"]
    options = [*short, "recipe.steps_per_epoch=2", "simclr:recipe.steps_per_epoch=2"]
    jobs = plan_demo(tmp_path / "runs", ["p-odn", "supervised"], assignments=options)
    console = Console(file=io.StringIO(), width=100)
    run_demo(jobs, tmp_path / "page.html", "protofission demo", console)
    shown = console.file.getvalue()
    assert re.search(r"^ *p-odn \(reading\) ", shown, re.MULTILINE)
    assert re.search(r"^ *supervised ", shown, re.MULTILINE)
    assert "p-odn (reading)" in (tmp_path / "page.html").read_text()
    suite, _ = suite_of_runs([job.folder for job in jobs])
    assert {case.row for case in suite.cases} == {"p-odn (reading)", "supervised"}


def test_the_page_of_methods_names_each_method_and_marks_the_readings():
    page = (DOCS / "methods.md").read_text()
    named = set(re.findall(r"`([a-z0-9-]+)`", page.partition("Novel classes are predicted")[0]))
    sections = dict(re.findall(r"^## ([a-z0-9-]+(?: \(reading\))?)$\n+(.*)", page, re.MULTILINE))
    bases = {name.removesuffix("+pf") for name in METHODS}
    assert bases <= named
    for name in bases & READINGS:
        assert f"{name} (reading)" in sections
    assert not {f"{name} (reading)" for name in bases - READINGS} & set(sections)


def test_the_readme_counts_the_methods():
    text = (DOCS.parent / "README.md").read_text()
    bases = {name.removesuffix("+pf") for name in METHODS}
    assert f"[{len(bases)} methods](docs/methods.md)" in text
