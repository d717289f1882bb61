"""Files of the project itself: releases by changelog, workflows and templates that GitHub reads."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import protofission
from conftest import LONGEST

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
SCHEMAS = {
    "vendor.github-workflows": sorted((GITHUB / "workflows").glob("*.yml")),
    "vendor.github-issue-forms": [
        path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"
    ],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


@pytest.fixture(scope="module")
def notes() -> dict[str, Any]:
    return runpy.run_path(str(GITHUB / "release_notes.py"))


def test_the_notes_of_a_release_are_its_section_of_the_changelog(notes: dict[str, Any]) -> None:
    text = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0 (2026-11-18)\n\n### Added\n\n- a\n\n"
    text += "## 0.20.0\n\n- other\n\n## [0.1.0] - today\n- first\n"
    assert notes["release_notes"](text, "0.2.0") == "### Added\n\n- a\n"
    assert notes["release_notes"](text, "0.1.0") == "- first\n"
    assert notes["release_notes"](text, "0.20.0") == "- other\n"
    for version in ("0.3.0", "0.2", "0x2.0"):
        with pytest.raises(ValueError, match="no section"):
            notes["release_notes"](text, version)
    with pytest.raises(ValueError, match="empty"):
        notes["release_notes"]("## 1.0.0\n\n## 0.9.0\n- a\n", "1.0.0")


def test_a_tag_of_another_version_is_refused_in_a_sentence(notes: dict[str, Any]) -> None:
    source = Path(str(protofission.__file__)).read_text(encoding="utf-8")
    assert notes["package_version"](source) == protofission.__version__
    ended = subprocess.run(
        [sys.executable, str(GITHUB / "release_notes.py"), "99.0.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("The tag is of 99.0.0, and the package is ")


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_workflows_templates_and_citation_follow_their_schemas(schema: str) -> None:
    """By the schemas that check-jsonschema brings along: no network."""
    pytest.importorskip("check_jsonschema")
    files = [str(path) for path in SCHEMAS[schema]]
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_workflows_call_what_is_there_and_publish_without_a_secret() -> None:
    verbs = re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pythons: set[str] = set()
    made: set[str] = set()
    for path in SCHEMAS["vendor.github-workflows"]:
        text = path.read_text(encoding="utf-8")
        assert "secrets." not in text
        for job in yaml.safe_load(text)["jobs"].values():
            pythons |= set(job.get("strategy", {}).get("matrix", {}).get("python", ()))
            for step in job["steps"]:
                for called in re.findall(r"make ([\w./ -]+?)(?= \w+=|$)", step.get("run", "")):
                    made |= set(called.split())
    assert made <= set(verbs)
    assert made >= {"lint", "types", "docs", *(verb for verb in verbs if "test" in verb)}
    assert len(pythons) == 3
    release = yaml.safe_load((GITHUB / "workflows" / "release.yml").read_text(encoding="utf-8"))
    assert release["jobs"]["pypi"]["permissions"] == {"id-token": "write"}


def test_the_citation_names_the_paper() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))[
        "preferred-citation"
    ]
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert found["title"] in page
    for author in found["authors"]:
        assert f"{author['family-names']}, {author['given-names']}" in page


def test_the_longest_test_files_are_there() -> None:
    for name in LONGEST:
        assert (ROOT / "tests" / name).is_file(), name
