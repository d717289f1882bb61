"""The report of a suite: the right numbers in every format, and names that stay names."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from math import nan, sqrt
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from PIL import Image

from protofission.experiments.report.formats import (
    csv_text,
    latex_text,
    markdown_code,
    markdown_text,
)
from protofission.experiments.report.suite_figures import INTERVALS, RANGES, drawings
from protofission.experiments.report.suite_grid import SUMMARIES, grid_of
from protofission.experiments.report.suite_report import write_report
from protofission.experiments.suite import Case, Run, Suite
from protofission.training.run_folder import RunFolder
from suite_runs import (
    HOSTILE,
    case,
    curve_runs,
    curve_suite,
    finish,
    run_metrics,
    runs_of,
    table_runs,
    table_suite,
)

MARK = "Budget 0.5: half of the <epochs>."
COMMAND = 'protofission suite "<a>" | cat'


class Page(HTMLParser):
    """A page as a browser reads it: texts of cells by table row, ids, links, all text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.inside = False
        self.feed(content)
        self.close()
        self.rows = [[" ".join(cell.split()) for cell in row] for row in self.rows]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.links += [values["href"] or ""] if "href" in values else []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.inside:
            self.rows[-1][-1] += data


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# Numbers


def small(tmp_path: Path) -> tuple[Suite, list[Run]]:
    """Three seeds: one row has them all, one lacks a seed, one was not run."""
    suite = Suite(
        "small", "Small", (case("one"), case("two"), case("three")), ("seen", "auc"),
        pairs=(("one", "two"), ("three", "one")), published={("one", "digits"): {"seen": 0.5864}},
    )  # fmt: skip
    seen = {"one": {0: 0.8, 1: 0.9, 2: 1.0}, "two": {0: 0.7, 2: 0.8}}

    def numbers(one: Case, seed: int) -> Any:
        value = seen.get(one.row, {}).get(seed)
        return None if value is None else run_metrics(value, 0.5, 0.5, nan)

    return suite, runs_of(tmp_path / "runs", suite, range(3), numbers)


def test_the_grid_holds_samples_of_finished_runs(tmp_path: Path) -> None:
    grid = grid_of(*small(tmp_path))
    one, two, three = (grid.entry(row, "digits") for row in ("one", "two", "three"))
    assert one.by_seed("seen") == pytest.approx({0: 80, 1: 90, 2: 100})
    assert two.by_seed("seen") == pytest.approx({0: 70, 2: 80})
    assert (one.state, two.state, three.state) == ("finished", "2 of 3 seeds", "not run")
    assert grid.entry("one", "elsewhere").state == "not run"
    difference = grid.difference("one", "two", "digits", None, "seen")
    assert difference.values == pytest.approx((10, 20))


def test_the_page_shows_the_numbers(tmp_path: Path) -> None:
    write_report(tmp_path, *small(tmp_path), COMMAND)
    rows = Page((tmp_path / "report.html").read_text()).rows
    # 4.303 * 10 / sqrt(3) = 24.8, and 12.706 * 7.07 / sqrt(2) = 63.5
    assert ["one", "3", "90.0 ± 10.0 [65.2, 114.8] paper 58.6", "–"] in rows  # noqa: RUF001
    assert ["two", "2 of 3 seeds", "75.0 ± 7.1 [11.5, 138.5]", "–"] in rows  # noqa: RUF001
    assert ["three", "0 of 3 seeds", "not run", "not run"] in rows
    told = "+15.0 [-48.5, +78.5] not told apart n = 2"
    assert ["one against two on digits", told, "– n = 2"] in rows  # noqa: RUF001
    assert ["three against one on digits", "not run", "not run"] in rows


def test_csv_keeps_numbers_as_numbers(tmp_path: Path) -> None:
    write_report(tmp_path, *small(tmp_path), COMMAND, ["Half."])
    lines = lines_of(tmp_path / "tables" / "results.csv")
    assert len(lines) == 3 * 2
    assert list(lines[0]) == [
        "row", "panel", "x", "quantity", "n", "mean", "sd", "interval", "paper", "state", "runs",
        "marks",
    ]  # fmt: skip
    assert float(lines[0]["mean"]) == pytest.approx(90)
    assert float(lines[0]["sd"]) == pytest.approx(10)
    assert float(lines[0]["interval"]) == pytest.approx(4.3027 * 10 / sqrt(3), rel=1e-4)
    assert lines[0]["paper"] == "58.64"
    assert lines[1]["mean"] == lines[1]["paper"] == ""
    assert (lines[4]["row"], lines[4]["n"], lines[4]["state"]) == ("three", "0", "not run")
    assert {line["marks"] for line in lines} == {"Half."}
    (first, *_) = lines_of(tmp_path / "tables" / "differences.csv")
    assert (first["row"], first["against"], first["n"]) == ("one", "two", "2")
    assert float(first["mean"]) == pytest.approx(15)


def test_json_has_all_numbers_by_seed_and_no_nan(tmp_path: Path) -> None:
    suite, runs = small(tmp_path)
    write_report(tmp_path, suite, runs, COMMAND)
    text = (tmp_path / "results.json").read_text()
    plain = json.loads(text, parse_constant=lambda word: pytest.fail(word))
    first, nothing = plain["results"][:2]
    assert first["values"] == pytest.approx({"0": 80, "1": 90, "2": 100})
    assert first["runs"] == [run.folder.path.name for run in runs if run.case.row == "one"]
    assert {run["command"] for run in plain["runs"]} == {run.command for run in runs}
    assert nothing["mean"] is None
    assert [run["state"] for run in plain["runs"]].count("finished") == 5
    assert plain["command"] == COMMAND


def test_markdown_and_latex_show_the_numbers(tmp_path: Path) -> None:
    write_report(tmp_path, *small(tmp_path), COMMAND, ["Half of 100 %."])
    markdown = (tmp_path / "report.md").read_text()
    shown = r"| one | [3](#case-1) | [90.0 ± 10.0](#case-1)<br>\[65.2, 114.8\]<br>paper 58.6 |"
    assert shown in markdown
    assert "| three | [0](#case-3)<br>of 3 seeds | [not run](#case-3) |" in markdown
    assert markdown.index("> **Half of 100 %.**") < markdown.index("|")
    latex = (tmp_path / "tables" / "results.tex").read_text()
    number = r"\shortstack[r]{90.0 $\pm$ 10.0\\ \scriptsize {{[}65.2, 114.8]}"
    assert rf"one & 3 & {number}\\ \scriptsize {{paper 58.6}}}} & -- \\" in latex
    assert r"\textbf{Half of 100 \%.}" in latex
    differences = (tmp_path / "tables" / "differences.tex").read_text()
    assert r"{[}$-$48.5, +78.5]" in differences


def test_runs_begun_and_not_begun_are_told_apart(tmp_path: Path) -> None:
    suite, runs = small(tmp_path)
    runs[2].folder.write("experiment.json", "{}")
    write_report(tmp_path, suite, runs, COMMAND)
    states = [line["state"] for line in lines_of(tmp_path / "tables" / "runs.csv")]
    assert sorted(set(states)) == ["begun", "finished", "not run"]
    assert states.count("begun") == 1


# Links and names


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of four rows and two panels, one of the rows with a hostile name."""
    folder = tmp_path_factory.mktemp("table")
    suite = table_suite()
    runs = table_runs(folder / "run folders", suite)
    write_report(folder / "report", suite, runs, COMMAND, [MARK])
    return folder / "report"


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of curves, one of them with a hostile name and a missing point."""
    folder = tmp_path_factory.mktemp("curves")
    suite = curve_suite()
    write_report(folder, suite, curve_runs(folder / "runs", suite), COMMAND, [MARK])
    return folder


def test_every_link_leads_somewhere(table: Path) -> None:
    page = Page((table / "report.html").read_text())
    inner = {link[1:] for link in page.links if link.startswith("#")}
    outer = [link for link in page.links if not link.startswith(("#", "data:"))]
    assert inner <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)
    assert {f"case-{number}" for number in range(1, 9)} <= inner
    assert all((table / unquote(link)).exists() for link in outer)
    assert sum("run%20folders/case%20" in link for link in outer) == 33
    markdown = (table / "report.md").read_text()
    targets = re.findall(r"\]\(([^)]*)\)", markdown)
    assert {t[1:] for t in targets if t.startswith("#")} <= set(re.findall('id="(.*?)"', markdown))
    assert all((table / unquote(t)).exists() for t in targets if not t.startswith("#"))


def test_each_run_is_listed_with_its_command(table: Path) -> None:
    page = Page((table / "report.html").read_text())
    commands = re.findall("protofission train orca --preset digits --seed", page.text)
    assert len(commands) == 40
    assert "33 of 40 runs are finished." in page.text
    assert len(lines_of(table / "tables" / "runs.csv")) == 40


def test_the_page_needs_nothing_but_itself(table: Path) -> None:
    content = (table / "report.html").read_text()
    assert "default-src 'none'" in content
    assert not re.search(r"https?://|@import|<script|<img|<link (?!rel=\"icon\" href=\"data:,\")",
                         content)  # fmt: skip


@pytest.mark.parametrize("kind", ["table", "curves"])
def test_names_are_escaped_everywhere(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    content = (folder / "report.html").read_text()
    page = Page(content)
    assert HOSTILE not in content
    assert "b" not in page.tags
    assert any(row[0] == HOSTILE for row in page.rows if row)
    assert MARK in page.text
    assert COMMAND in page.text
    markdown = (folder / "report.md").read_text()
    assert r'| &lt;b\>\|=1+1&amp;"x"\_% |' in markdown
    tables = [line for line in markdown.splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    rules = [n for n, line in zip(widths, tables, strict=True) if line.startswith("| ---")]
    assert set(widths) - {8} <= set(rules)  # 8: the table of the runs
    latex = (folder / "tables" / "results.tex").read_text()
    assert r"\textless{}b\textgreater{}\textbar{}=1+1\&\textquotedbl{}x\textquotedbl{}\_\%" in latex
    assert HOSTILE in {line["row"] for line in lines_of(folder / "tables" / "results.csv")}
    for path in (folder / "figures").glob("*.svg"):
        assert HOSTILE in [node.text for node in ElementTree.parse(path).iter()]


def test_texts_of_csv_are_never_formulas() -> None:
    lines = csv_text(["a"], [["=1+1"], ["-x"], ["+x"], ["@x"], ["x=1"], [-1.5], [nan], [None]])
    assert lines.splitlines() == ["a", "'=1+1", "'-x", "'+x", "'@x", "x=1", "-1.5", '""', '""']


def test_texts_of_latex_and_markdown() -> None:
    assert latex_text("a\\b~[c]") == r"a\textbackslash{}b\textasciitilde{}{[}c]"
    assert markdown_text("a\n# [b](c) $d$") == r"a \# \[b\](c) \$d\$"
    assert markdown_code("a|b") == r"`a\|b`"
    assert markdown_code("a`b``c") == "``` a`b``c ```"


# Curves


@given(
    st.lists(st.integers(0, 20), min_size=2, max_size=6, unique=True),
    st.integers(0, 2**32 - 1),
)
def test_curves_are_summed_up_as_by_hand(places: list[int], seed: int) -> None:
    x = sorted(place / 4 for place in places)
    heights = np.random.default_rng(seed).uniform(0, 100, (3, len(x)))
    found = {name: summed(np.array(x), heights) for name, summed in SUMMARIES.items()}
    for number, curve in enumerate(heights.tolist()):
        covered = 0.0
        for (left, low), (right, high) in zip(
            zip(x, curve, strict=True), list(zip(x, curve, strict=True))[1:], strict=False
        ):
            covered += (right - left) * (low + high) / 2
        middle, center = sum(x) / len(x), sum(curve) / len(x)
        both = sum((a - middle) * (b - center) for a, b in zip(x, curve, strict=True))
        assert found["area"][number] == pytest.approx(covered / (x[-1] - x[0]))
        assert found["worst"][number] == min(curve)
        slope = both / sum((a - middle) ** 2 for a in x)
        assert found["slope"][number] == pytest.approx(slope, abs=1e-9)


def test_a_straight_line_has_its_slope() -> None:
    x = np.array([0.0, 0.5, 2.0])
    found = {name: summed(x, (7 - 3 * x)[None]) for name, summed in SUMMARIES.items()}
    assert found == {"area": pytest.approx(4), "worst": [1], "slope": pytest.approx(-3)}
    assert all(
        np.isnan(SUMMARIES[name](x[:1], np.ones((2, 1)))).all() for name in ("area", "slope")
    )


def test_only_seeds_with_the_whole_curve_count(tmp_path: Path) -> None:
    cases = tuple(case("one", x=x) for x in (1.0, 0.0))
    suite = Suite("c", "C", cases, ("seen",), axis="x")
    numbers = {(0.0, 0): 0.8, (1.0, 0): 0.6, (0.0, 1): 0.9}

    def made(one: Case, seed: int) -> Any:
        value = numbers.get((one.x or 0.0, seed))
        return None if value is None else run_metrics(value, 0.5, 0.5)

    curve = grid_of(suite, runs_of(tmp_path, suite, (0, 1), made)).curve("one", "digits")
    assert {name: sample.values for name, sample in curve.items()} == {
        "area": pytest.approx((70,)), "worst": pytest.approx((60,)), "slope": pytest.approx((-20,)),
    }  # fmt: skip


def test_a_report_of_curves_shows_points_and_sums(curves: Path) -> None:
    rows = Page((curves / "report.html").read_text()).rows
    plain = json.loads((curves / "results.json").read_text())
    (point,) = (
        line for line in plain["results"]
        if (line["row"], line["panel"], line["x"], line["quantity"])
        == ("orca", "CIFAR-10", 0.4, "seen")
    )  # fmt: skip
    shown = f"{point['mean']:.1f} ± {point['sd']:.1f} ["
    assert any(row[0] == "orca" and row[3].startswith(shown) for row in rows if len(row) == 6)
    assert any(row[0] == HOSTILE and row[4] == "not run 0 of 5 seeds" for row in rows if row[4:])
    assert [HOSTILE, *["not run not all points"] * 6] in rows
    sums = lines_of(curves / "tables" / "curves.csv")
    assert len(sums) == 2 * 3 * 3
    steep = {
        line["row"]: float(line["mean"] or "nan") for line in sums if line["summary"] == "slope"
    }
    assert steep["orca"] == pytest.approx(-30, abs=3)
    assert steep["orca+pf"] == pytest.approx(-10, abs=3)


@pytest.mark.parametrize(
    ("seeds", "said"), [(2, RANGES), (3, INTERVALS)]
)  # fmt: skip
def test_the_caption_says_what_bands_are(tmp_path: Path, seeds: int, said: str) -> None:
    suite = curve_suite()
    first, *_ = drawings(grid_of(suite, curve_runs(tmp_path, suite, seeds)), [])
    assert first.caption == f"Lines are means over seeds. {said}"


# Files


def contents(folder: Path) -> dict[str, bytes]:
    kinds = ("html", "md", "csv", "tex", "png", "svg", "json")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for kind in kinds
        for path in folder.rglob(f"*.{kind}")
    }


def test_the_same_runs_make_the_same_bytes_and_all_files_are_named(tmp_path: Path) -> None:
    suite, runs = small(tmp_path)
    made = [write_report(tmp_path / name, suite, runs, COMMAND, [MARK]) for name in ("a", "b")]
    first, second = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert first == second
    assert {str(path.relative_to(tmp_path / "a")) for path in made[0]} == set(first)
    assert set(first) == {
        "report.html", "report.md", "results.json", "figures/dots-1-digits.png",
        "figures/dots-1-digits.svg",
        "tables/results.csv", "tables/results.tex", "tables/differences.csv",
        "tables/differences.tex", "tables/runs.csv",
    }  # fmt: skip


def test_figures_are_large_and_not_blank(table: Path, curves: Path) -> None:
    paths = [path for folder in (table, curves) for path in (folder / "figures").glob("*.png")]
    assert len(paths) == 4
    for path in paths:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        assert pixels.shape[1] == 1240
        assert (pixels[0, 0] == 255).all()
        assert 0.005 < (pixels.min(-1) < 128).mean() < 0.3


def test_panels_of_like_names_have_files_of_their_own(tmp_path: Path) -> None:
    suite = Suite("s", "S", (case("one", "A b"), case("one", "a/b")), ("seen",))
    runs = [Run(one, 0, RunFolder(tmp_path / "runs" / str(n))) for n, one in enumerate(suite.cases)]
    finish(runs[0], run_metrics(0.5, 0.5, 0.5))
    paths = write_report(tmp_path, suite, runs, COMMAND)
    names = [path.name for path in paths if path.parent.name == "figures"]
    assert names == ["dots-1-a-b.png", "dots-1-a-b.svg", "dots-2-a-b.png", "dots-2-a-b.svg"]
    assert not (tmp_path / "tables" / "differences.csv").exists()


def test_pictures_have_a_section_if_there_are_any(tmp_path: Path) -> None:
    suite, runs = small(tmp_path)
    write_report(tmp_path, suite, runs, COMMAND)
    assert "pictures" not in Page((tmp_path / "report.html").read_text()).ids
    figure = Markup('<figure id="mine"><figcaption>Slots</figcaption></figure>')
    write_report(tmp_path, suite, runs, COMMAND, pictures=[figure])
    assert {"pictures", "mine"} <= set(Page((tmp_path / "report.html").read_text()).ids)
    assert "report.html#pictures" in (tmp_path / "report.md").read_text()


def test_a_suite_of_which_nothing_was_run(tmp_path: Path) -> None:
    for number, suite in enumerate((table_suite(), curve_suite())):
        runs = runs_of(tmp_path / "runs", suite, (0, 1), lambda *_: None)
        write_report(tmp_path / str(number), suite, runs, COMMAND)
        page = Page((tmp_path / str(number) / "report.html").read_text())
        assert "0 of " in page.text
        assert "±" not in page.text.replace("Mean ±", "")


def test_many_panels_are_cut_into_tables_that_fit_paper(tmp_path: Path) -> None:
    suite = replace(table_suite(tuple("abc")), quantities=("seen", "auc", "nmi"), published={})
    runs = runs_of(tmp_path / "runs", suite, (0,), lambda *_: run_metrics(0.5, 0.5, 0.5))
    write_report(tmp_path, suite, runs, COMMAND)
    heads = [row for row in Page((tmp_path / "report.html").read_text()).rows if "n" in row]
    assert [head.count("n") for head in heads] == [2, 1]


def test_a_panel_shows_the_rows_and_comparisons_that_were_planned_for_it(tmp_path: Path) -> None:
    suite = replace(table_suite(("a", "b")), published={})
    kept = tuple(case for case in suite.cases if (case.row, case.panel) != ("orca", "b"))
    suite = replace(suite, cases=kept)
    runs = runs_of(tmp_path / "runs", suite, (0,), lambda *_: run_metrics(0.5, 0.5, 0.5))
    grid = grid_of(suite, runs)
    assert [(row, panel) for row, _, panel in grid.comparisons] == [
        ("orca+pf", "a"),
        (HOSTILE, "a"),
        (HOSTILE, "b"),
    ]
    assert "orca" in grid.rows_on("a")
    assert "orca" not in grid.rows_on("b")
    assert grid.rows_on("a", "b") == grid.rows
