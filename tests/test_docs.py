"""README and docs: code runs, links and names lead somewhere, lines and paragraphs are short."""

import json
import re
import runpy
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from protofission.methods import METHODS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WRAPPED = [ROOT / "CHANGELOG.md", *PAGES]
WIDTH = 120
"""Characters of a line of prose."""


def blocks(page: Path) -> list[str]:
    """The Python code of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("protofission.methods.METHODS", METHODS.copy())  # a page may add one
    names: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_are_there(page: Path) -> None:
    for target in re.findall(r'<img src="([^"]+)"', page.read_text()):
        assert (page.parent / target).stat().st_size < 200_000, target


def prose(page: Path) -> Iterator[list[str]]:
    """The paragraphs and list items of a page, line by line: no code, no tables, no comments."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        apart = not line.strip() or line.startswith(("|", "#", "<!--"))
        if apart or re.match(r"\s*([-*]|\d+\.) ", line):
            if paragraph:
                yield paragraph
            paragraph = []
        if not apart:
            paragraph.append(line)


@pytest.mark.parametrize("page", WRAPPED, ids=lambda page: page.name)
def test_lines_and_paragraphs_are_short(page: Path) -> None:
    found = list(prose(page))
    assert found
    assert not [line for paragraph in found for line in paragraph if len(line) > WIDTH]
    assert not [paragraph for paragraph in found if len(paragraph) > 5]


def test_prose_is_found_between_tables_and_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\nOne\ntwo.\n\n```sh\ncode\n```\n\n- item\n  more\n- item\n| a | b |\nlast\n"
    )
    assert list(prose(page)) == [["One", "two."], ["- item", "  more"], ["- item"], ["last"]]


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= WIDTH  # its tables and code too


def test_the_readme_s_figures_are_those_of_the_results() -> None:
    text = (ROOT / "README.md").read_text()
    rows = [line for line in text.splitlines() if " ± " in line]
    assert 1 <= len(rows) <= 6
    cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")[2:]]
    assert len(cells) == 3 * len(rows)
    results = (ROOT / "docs" / "results.md").read_text()
    for cell in cells:
        assert f"| {cell} |" in results, cell


def test_the_glossary_s_words_live_where_it_says() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    assert len(text.splitlines()) <= 100
    places = re.findall(r"^\|.*\| `([^`]+)` \|[^|]*\|$", text, re.MULTILINE)
    assert len(places) > 40
    for place in places:
        path = ROOT / "src" / "protofission" / place
        assert path.is_dir() or path.with_name(f"{path.name}.py").is_file(), place


@pytest.mark.parametrize("name", ["architecture.md", "method.md"])
def test_functions_that_a_page_names_are_there(name: str) -> None:
    text = (ROOT / "docs" / name).read_text()
    text = text.partition("## Open choices")[0]  # beyond, such names are options
    package = ROOT / "src" / "protofission"
    rooms = "|".join(path.name.removesuffix(".py") for path in package.iterdir())
    named = re.findall(rf"`((?:{rooms})\.[\w.]+)`", text)
    assert len(named) > 10
    for dotted in named:
        module, parts = "protofission", dotted.split(".")
        while parts and find_spec(f"{module}.{parts[0]}"):
            module = f"{module}.{parts.pop(0)}"
            if not hasattr(import_module(module), "__path__"):
                break
        value: object = import_module(module)
        for part in parts:
            assert hasattr(value, part), dotted
            value = getattr(value, part)


def test_the_readme_s_commands_are_verbs_of_the_makefile() -> None:
    verbs = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(named) <= set(verbs)


def test_a_method_of_one_s_own_is_one_small_file_with_a_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protofission.methods.METHODS", METHODS.copy())
    monkeypatch.chdir(tmp_path)
    (file,) = blocks(ROOT / "docs" / "add_a_method.md")
    assert file.count("\n") <= 60
    Path("own_method.py").write_text(file)
    options = ("recipe.epochs=1", "recipe.steps_per_epoch=2", "method.agreement_weight=3")
    command = ["train", "pi+pf", "--preset", "digits", "--out", "run"]
    command += [part for option in options for part in ("--set", option)]
    monkeypatch.setattr(sys, "argv", ["own_method.py", *command])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path("own_method.py", run_name="__main__")
    assert not ended.value.code
    terms = json.loads(Path("run/history.json").read_text())[0]["terms"]
    assert terms["agreement"] > 0


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with torch.random.fork_rng():
        runpy.run_path(str(ROOT / "examples" / "fission_in_your_loop.py"), run_name="__main__")
    accuracy, purity = map(float, re.findall(r"\d\.\d{3}", capsys.readouterr().out)[:2])
    assert accuracy > 0.95
    assert purity > 0.3  # five digits behind each class: a blind cut gives 0.2


@pytest.mark.parametrize("page", ["results.md", "report.md"])
def test_the_tables_of_the_results_are_those_of_their_files(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "results"))
    import tables

    text = (ROOT / "docs" / page).read_text()
    assert text.count("<!-- end -->") > 2
    assert tables.filled(text) == text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of optuna's own libraries
def test_the_search_with_optuna_goes_on_where_it_was(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    script = runpy.run_path(str(ROOT / "examples" / "optuna_suite.py"))
    first = script["main"](tmp_path, 2)
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(runs) == 2 * 2 + 2  # two trials of two seeds, and the best with two others
    again = script["main"](tmp_path, 2)
    assert [trial.params for trial in again.trials] == [trial.params for trial in first.trials]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == runs
    assert 0 < again.best_value <= 1
