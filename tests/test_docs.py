"""The code blocks of README and docs run, and their links lead somewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from protofission.methods import METHODS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


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


def test_the_readme_s_commands_are_verbs_of_the_makefile() -> None:
    verbs = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(named) <= set(verbs)


def test_a_method_of_one_s_own_is_one_small_file_with_a_command_line(tmp_path: Path) -> None:
    (file,) = blocks(ROOT / "docs" / "add_a_method.md")
    assert file.count("\n") <= 60
    (tmp_path / "own_method.py").write_text(file)
    options = ("recipe.epochs=1", "recipe.steps_per_epoch=2", "method.agreement_weight=3")
    command = ["train", "pi+pf", "--preset", "digits", "--out", "run"]
    command += [part for option in options for part in ("--set", option)]
    subprocess.run([sys.executable, "own_method.py", *command], cwd=tmp_path, check=True)
    terms = json.loads((tmp_path / "run" / "history.json").read_text())[0]["terms"]
    assert terms["agreement"] > 0


def test_the_example_runs_as_a_user_runs_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "fission_in_your_loop.py"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    accuracy, purity = map(float, re.findall(r"\d\.\d{3}", done.stdout)[:2])
    assert accuracy > 0.95
    assert purity > 0.3  # five digits behind each class: a blind cut gives 0.2


def test_the_tables_of_the_results_are_those_of_their_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "results"))
    import tables

    text = (ROOT / "docs" / "results.md").read_text()
    assert text.count("<!-- end -->") > 5
    assert tables.filled(text) == text
