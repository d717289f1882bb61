"""The docs site: every page in its navigation, every link with a target, nothing from elsewhere."""

import json
import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
MADE = {"changelog.md"}
"""Pages that the hooks make."""


@pytest.fixture(scope="module")
def hooks() -> dict[str, Any]:
    pytest.importorskip("mkdocs")
    return runpy.run_path(str(DOCS / "site_hooks.py"))


def navigation() -> list[str]:
    """The files of the navigation, as mkdocs.yml lists them."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (nav,) = re.findall(r"^nav:\n((?: .*\n)+)", text, re.MULTILINE)
    return re.findall(r": ([\w/]+\.(?:md|ipynb))$", nav, re.MULTILINE)


def test_the_navigation_has_every_page_and_notebook_once() -> None:
    pages = {path.relative_to(DOCS).as_posix() for path in [*DOCS.glob("*.md"), *NOTEBOOKS]}
    found = navigation()
    assert len(found) == len(set(found))
    assert set(found) == pages | MADE


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_anchors_of_links_are_headings_of_their_page(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        there = page.parent / target if target else page
        text = re.sub(r"^```.*?^```$", "", there.read_text(), flags=re.DOTALL | re.MULTILINE)
        headings = {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
        assert anchor in headings, f"{target}#{anchor}"


def test_links_to_sources_become_pages_of_the_site(hooks: dict[str, Any]) -> None:
    """Files, folders, data of docs/ and notebooks; pages and pictures stay as they are."""
    text = (
        "[a](../src/protofission/fission.py) [b](../tests) [c](results/starts.json) "
        "[d](guide.md#the-page) [e](notebooks/research.ipynb) [f](triage.png) [g](https://x.y/z)"
    )
    found = hooks["_sources"]("index.md", text, DOCS)
    assert [hooks["_page_of"](source, ROOT) for source in found] == [
        "source/src/protofission/fission.py.md",
        "source/tests.md",
        "source/docs/results/starts.json.md",
    ]
    page = hooks["source_page"](ROOT / "src" / "protofission" / "fission.py", ROOT)
    assert page.startswith("# src/protofission/fission.py\n\n````python\n")
    assert "class FissionHead" in page
    assert "- `fission.py`" in hooks["source_page"](ROOT / "src" / "protofission", ROOT)


def test_a_notebook_becomes_markdown_with_its_outputs(
    hooks: dict[str, Any], tmp_path: Path
) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "source": ["1 + 1"],
            "outputs": [{"data": {"text/plain": ["2"]}}, {"data": {"image/png": "AAEC"}}],
        },
    ]
    path = tmp_path / "small.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    text, pictures = hooks["notebook_page"](path)
    assert text == (
        "# Title\ntext\n\n```python\n1 + 1\n```\n\n```text\n2\n```\n\n"
        "![Output of the cell above](small_1_1.png)\n"
    )
    assert pictures == {"small_1_1.png": b"\x00\x01\x02"}


class Links(HTMLParser):
    """Links, loaded files and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {str(found[key]) for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        elif tag in ("img", "script", "iframe") and found.get("src"):
            self.loads.append(str(found["src"]))
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loads.append(str(found["href"]))


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_every_link_has_its_target(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    pages = {}
    for path in tmp_path.rglob("*.html"):
        pages[path.resolve()] = found = Links()
        found.feed(path.read_text(encoding="utf-8"))
    assert len(pages) > len(navigation())
    for path, found in pages.items():
        if path.name == "404.html":
            continue
        for target in [*found.links, *found.loads]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                assert target in found.links, f"{path.name} loads {target}"
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), f"{path.name}: {target}"
            if parts.fragment and there in pages:
                assert unquote(parts.fragment) in pages[there].anchors, f"{path.name}: {target}"
    styles = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.css"))
    assert not re.findall(r"url\(\s*[\"']?https?:", styles)
    reference = (tmp_path / "reference.html").read_text(encoding="utf-8")
    assert "Fit a model to labeled images and a pool" in reference


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_with_the_outputs_of_one_run(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert str(Path.home()) not in json.dumps(outputs)


def run_notebook(name: str, folder: Path, last: str) -> Any:
    """Run a notebook with one more cell, and the value that it shows."""
    nbformat = pytest.importorskip("nbformat")
    run = runpy.run_path(str(DOCS / "notebooks" / "run.py"))["run"]
    notebook = nbformat.read(DOCS / "notebooks" / f"{name}.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(f"import json; print(json.dumps({last}))"))
    nbformat.write(notebook, folder / "copy.ipynb")
    return json.loads(run(folder / "copy.ipynb", folder).cells[-1].outputs[0].text)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's own libraries
def test_the_practitioner_s_notebook_gains_a_class_and_exports(tmp_path: Path) -> None:
    found = run_notebook("two_folders", tmp_path, "[list(results.values()), new_digit]")
    (five, missing, gained), digit = found
    assert digit in "56789"
    assert five > 0.75
    assert gained > missing + 0.02
    rows = (tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) > 1 + 40
    assert (tmp_path / "model.onnx").stat().st_size > 2**20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_researcher_s_notebook_trains_the_head_and_a_method_of_its_own(tmp_path: Path) -> None:
    accuracy, purity, methods = run_notebook(
        "research", tmp_path, "[accuracy, purity, sorted(accuracies)]"
    )
    assert accuracy > 0.95
    assert purity > 0.3  # five digits behind each class: a blind cut gives 0.2
    assert methods == ["pi", "pi+pf", "supervised", "supervised+pf"]
    assert (tmp_path / "report" / "report.html").is_file()
    histories = [json.loads(p.read_text()) for p in tmp_path.glob("runs/pi*/history.json")]
    assert len(histories) == 4
    assert all(history[-1]["terms"]["agreement"] > 0 for history in histories)
